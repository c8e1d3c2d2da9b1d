"""The sending half of one WebSocket connection.

Theory of operation. There is one writer per connection and no lock: everything that is written passes
through here, synchronously. Order on the wire: the tail of the frame that the kernel cut, the control
lane (replies, notices, pongs, the close frame), then events. Fan-out sends events directly while the
outlet is `clear`; as soon as something has to wait, one drain task waits for the socket and pumps: tail,
lane, then one offer of each waiting subscription in turn. So what a stalled client costs is the tail of
one frame and a bounded lane; its events stay in the window.

A close frame is the last thing that is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import trio

from kiwi_gw.core.subscription import Subscription
from kiwi_gw.dialects.frames import close_frame
from kiwi_gw.edge.transports import Transport
from kiwi_gw.runtime.meters import Histogram

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

_NOTHING = memoryview(b"")
_TURN_BYTES = 4 * 1024 * 1024
"""How much one pump may send before it lets others run."""
_STALL_SECONDS = 0.001
"""A socket that takes nothing for less is none that stalls: others may just have had their turn."""


class Outlet:
    """See the top of this file. Implements `core.subscription.Outlet`.

    spawn: starts a task in the connection's nursery. clock: monotonic seconds.
    sent_bytes, taken_at: what the socket took, and when it last took something. closing: called once,
    when the close frame is queued. stalls: how long the socket takes nothing, each time; None: not measured.
    """

    __slots__ = (
        "_clock",
        "_closing",
        "_corked",
        "_cut",
        "_done",
        "_draining",
        "_gathered",
        "_lane",
        "_lane_bytes",
        "_lane_limit",
        "_pong",
        "_pumping",
        "_ring",
        "_room",
        "_send_bytes",
        "_spawn",
        "_stalls",
        "_tail",
        "_transport",
        "clear",
        "close_code",
        "sent_bytes",
        "taken_at",
    )

    def __init__(
        self,
        transport: Transport,
        spawn: Spawn,
        clock: Callable[[], float],
        lane_bytes: int = 16 * 1024,
        send_bytes: int = 256 * 1024,
        closing: Callable[[], None] = lambda: None,
        stalls: Histogram | None = None,
    ) -> None:
        self._transport = transport
        self._spawn = spawn
        self._clock = clock
        self._closing = closing
        self._stalls = stalls
        self._lane_limit = lane_bytes
        self._send_bytes = send_bytes
        self._tail = _NOTHING
        self._cut = False  # a frame was cut, and its rest is not here yet
        self._lane: list[bytes] = []
        self._lane_bytes = 0
        self._gathered = 0  # bytes of the tail that came from the lane
        self._pong: bytes | None = None
        self._ring: dict[Subscription, None] = {}
        self._room: trio.Event | None = None
        self._done: trio.Event | None = None
        self._draining = False
        self._pumping = False
        self._corked = False
        self.clear = True
        self.close_code: int | None = None
        self.sent_bytes = 0
        self.taken_at = clock()

    # --- for fan-out (core.subscription.Outlet) --------------------------------------------

    def send(self, data: memoryview | bytes) -> int:
        taken = self._transport.try_send(data)
        if taken:
            self.sent_bytes += taken
            self.taken_at = self._clock()
        if taken < len(data) or self._transport.pending:
            self.clear = False
            self._cut = 0 < taken < len(data)
            if taken == len(data):
                self._go()  # the caller is done: nobody else sees to what TLS still holds
        return taken

    def keep(self, tail: bytes) -> None:
        self._cut = False
        if tail:
            self._tail = memoryview(tail)
            self.clear = False

    def wake(self, subscription: Subscription) -> None:
        if self.close_code is None:
            self._ring[subscription] = None
            self._go()

    # --- for the connection ----------------------------------------------------------------

    def control(self, frame: bytes) -> None:
        """Write a control frame or a message, behind all events sent so far. Ignored once closing."""
        if self.close_code is None:
            self._lane.append(frame)
            self._lane_bytes += len(frame)
            self._go()

    def pong(self, frame: bytes) -> None:
        """Write a pong. While it waits, a later one takes its place (RFC 6455, 5.5.3)."""
        if self.close_code is None:
            self._pong = frame
            self._go()

    def hang_up(self, code: int, reason: str) -> None:
        """Write a close frame; nothing follows it."""
        self.end_with(close_frame(code, reason), code)

    def end_with(self, frame: bytes, code: int) -> None:
        """Write this close frame as the last thing of the connection. code: 1005 for one without a code."""
        if self.close_code is None:
            self._pong = None
            self._lane.append(frame)
            self._lane_bytes += len(frame)
            self.close_code = code
            self._ring.clear()
            self._closing()
            self._go()

    def cork(self) -> None:
        """Collect what is written until `uncork`: replies then go before the events they set free."""
        self._corked = True

    def uncork(self) -> None:
        self._corked = False
        self._go()

    @property
    def lane_full(self) -> bool:
        return self._lane_bytes + self._gathered >= self._lane_limit

    @property
    def idle(self) -> bool:
        """Nothing waits to be written."""
        return not (self._tail or self._lane or self._pong is not None or self._transport.pending)

    @property
    def full(self) -> bool:
        """Something waits until the socket takes more: bytes, or events that are still in the window."""
        return self._draining or not self.idle

    def unanswered(self) -> float | None:
        """See `Transport.unanswered`."""
        return self._transport.unanswered()

    @property
    def waiting_bytes(self) -> int:
        """What this connection owns that its client has not taken (for metrics)."""
        return len(self._tail) + self._lane_bytes + len(self._pong or b"")

    async def wait_room(self) -> None:
        """Until the lane has room again: whoever makes replies waits here before it reads on."""
        while self.lane_full and not self._transport.broken:
            self._room = self._room or trio.Event()
            await self._room.wait()

    async def wait_idle(self) -> None:
        """Until everything, the close frame too, is with the kernel, or the connection is broken."""
        while not self.idle and not self._transport.broken:
            self._done = self._done or trio.Event()
            await self._done.wait()

    def abandon(self) -> None:
        """The connection is over: nothing more is written."""
        self._ring.clear()
        self._lane.clear()
        self._lane_bytes = self._gathered = 0
        self._tail = _NOTHING
        self._pong = None
        self.close_code = self.close_code or 1006
        self.clear = False
        # It holds the connection, which holds this: a cycle that no collection has to find now.
        self._spawn = _start_none
        self._tell()

    # --- inside ----------------------------------------------------------------------------

    def _go(self) -> None:
        """Write what can be written now; leave the rest to the drain task."""
        if self._corked or self._cut or self._pumping or self._draining:
            if not self.idle:
                self.clear = False
            return
        if self._pump():
            self.clear = not self._transport.broken and self.close_code is None
            self._tell()
        else:
            self.clear = False
            if not self._transport.broken:
                self._draining = True
                self._spawn(self._drain)

    async def _drain(self) -> None:
        try:
            while True:
                await self._wait_writable()
                done = self._pump()
                self._tell()
                if done or self._transport.broken:
                    break
        except trio.ClosedResourceError:
            pass  # closed while we waited: the connection's end has been seen to
        finally:
            self._draining = False
        self.clear = not self._transport.broken and self.close_code is None and self.idle
        self._tell()

    async def _wait_writable(self) -> None:
        if self._stalls is None:
            await self._transport.wait_writable()
            return
        began = self._clock()
        try:
            await self._transport.wait_writable()
        finally:
            waited = self._clock() - began
            if waited >= _STALL_SECONDS:
                self._stalls.observe(waited)

    def _pump(self) -> bool:
        """Write until nothing is left (True), nothing more is taken, or the turn is over (False)."""
        self._pumping = True
        try:
            return self._pump_bytes()
        finally:
            self._pumping = False

    def _pump_bytes(self) -> bool:
        transport = self._transport
        budget = _TURN_BYTES
        while budget > 0:
            if not transport.flush():
                return False
            if not self._tail and (self._lane or self._pong is not None):
                self._gather()
            if self._tail and (not self._ring or self._lane or self._pong is not None):
                taken = transport.try_send(self._tail)
                budget -= taken
                self._count(taken)
                self._pass_tail(taken)
                if self._tail:
                    return False
                continue
            if not self._ring:
                return not transport.broken
            subscription = next(iter(self._ring))
            del self._ring[subscription]
            if subscription.lag_due:
                # Its reply lands in the lane, which goes before the next offer.
                self._ring[subscription] = None
                subscription.owner.notify(subscription, subscription.take_lag(self._clock()))
                continue
            offer = subscription.offer(self._send_bytes)
            if offer is None:
                if _notice_due(subscription):  # the look has found a loss
                    self._ring[subscription] = None
                continue
            # A reply goes out together with the events that it sets free.
            views = [self._tail, *offer.views] if self._tail else offer.views
            taken = transport.try_send_many(views) if views else 0
            budget -= max(taken, 1024)
            self._count(taken)
            taken = self._pass_tail(taken)
            tail = subscription.settle(offer, taken)
            if subscription.readable:
                self._ring[subscription] = None
            if tail:
                # What its owner was told by `settle` comes after the frame that was cut.
                self._tail = memoryview(tail)
            if self._tail or taken < offer.size:
                return False
        return False

    def _pass_tail(self, taken: int) -> int:
        """So many bytes were taken, those of the tail first. How many were beyond it."""
        tail = self._tail
        # An empty slice would hold on to it all.
        self._tail = tail[taken:] if taken < len(tail) else _NOTHING
        if not self._tail:
            self._gathered = 0
        return max(0, taken - len(tail))

    def _gather(self) -> None:
        """Begin with the lane: from here on it is bytes to be written before anything else."""
        frames = [*self._lane] if self._pong is None else [*self._lane, self._pong]
        self._pong = None
        self._lane.clear()
        self._tail = memoryview(b"".join(frames))
        self._gathered, self._lane_bytes = len(self._tail), 0

    def _count(self, taken: int) -> None:
        if taken:
            self.sent_bytes += taken
            self.taken_at = self._clock()

    def _tell(self) -> None:
        if self._room is not None and (not self.lane_full or self._transport.broken):
            self._room.set()
            self._room = None
        if self._done is not None and (self.idle or self._transport.broken):
            self._done.set()
            self._done = None


def _notice_due(subscription: Subscription) -> bool:
    return subscription.lag_due


def _start_none(task: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start nothing: nothing is written any more."""
