"""The sending half of one WebSocket connection.

Theory of operation. There is one writer per connection and no lock: everything that is written passes
through here, synchronously. Order on the wire: the rest of the frame that the kernel cut (the partial
frame), the control queue (replies, notices, pongs, the close frame), then events. Fan-out sends events
directly while the writer is `writable`. As soon as something has to wait, one drain task waits for the socket
and pumps: partial frame, control queue, then what is prepared of each waiting subscription in turn. So what a
stalled client costs is the rest of one frame and a bounded queue; its events stay in the window. What is
prepared takes turns with that of other clients (`runtime.delivery_turns`).

A close frame is the last thing that is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import trio

from kiwi_gw.core.lag_watch import take_lag
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.dialect_api.frames import close_frame
from kiwi_gw.edge.transports import Transport
from kiwi_gw.runtime.delivery_turns import DeliveryTurns
from kiwi_gw.runtime.meters import Histogram

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

_NOTHING = memoryview(b"")
_CONTROL = 0x08
"""The bit of an opcode that makes a frame one of control (RFC 6455, 5.5)."""
_STALL_SECONDS = 0.001
"""A socket that takes nothing for less is none that stalls: others may just have had their turn."""


class WebSocketWriter:
    """See the top of this file. Implements `core.frame_writer.FrameWriter`.

    spawn: starts a task in the connection's nursery. clock: monotonic seconds. turns: of all that are behind.
    sent_bytes, taken_at: what the socket took, and when it last took something. unsaid_bytes: of pings and
    pongs, which say nothing. delivery_seconds: that were spent on what is read from subscriptions, all in
    all. closing: called once, when the close frame is queued. stalls: how long the socket takes nothing, each
    time; None: not measured.
    """

    __slots__ = (
        "_clock",
        "_closing",
        "_control_bytes",
        "_control_limit",
        "_control_queue",
        "_control_room",
        "_controls_begun",
        "_corked",
        "_done",
        "_draining",
        "_partial_frame",
        "_pong",
        "_pumping",
        "_ready",
        "_send_bytes",
        "_spawn",
        "_stalls",
        "_transport",
        "_turn",
        "_turns",
        "awaits_turn",
        "close_code",
        "delivery_seconds",
        "sent_bytes",
        "taken_at",
        "unsaid_bytes",
        "writable",
    )

    def __init__(
        self,
        transport: Transport,
        spawn: Spawn,
        clock: Callable[[], float],
        turns: DeliveryTurns,
        control_bytes: int = 16 * 1024,
        send_bytes: int = 256 * 1024,
        closing: Callable[[], None] = lambda: None,
        stalls: Histogram | None = None,
    ) -> None:
        self._transport = transport
        self._spawn = spawn
        self._clock = clock
        self._turns = turns
        self._closing = closing
        self._stalls = stalls
        self._control_limit = control_bytes
        self._send_bytes = send_bytes
        self._partial_frame = _NOTHING
        self._control_queue: list[bytes] = []
        self._control_bytes = 0
        self._controls_begun = 0  # bytes of the partial frame that are controls
        self._pong: bytes | None = None
        self._ready: dict[Subscription, None] = {}
        self._control_room: trio.Event | None = None
        self._done: trio.Event | None = None
        self._draining = self._pumping = self._corked = False
        self._turn = False  # this is one, and nothing was sent yet
        self.writable, self.awaits_turn = True, False
        self.close_code: int | None = None
        self.delivery_seconds = 0.0
        self.sent_bytes = 0
        self.unsaid_bytes = 0
        self.taken_at = clock()

    # --- for fan-out (core.frame_writer.FrameWriter) ------------------------------------------------

    def send(self, data: memoryview | bytes) -> int:
        taken = self._transport.try_send(data)
        if taken:
            self.sent_bytes += taken
            self.taken_at = self._clock()
        if taken < len(data) or self._transport.pending:
            self._sent_as_much_as_goes(whole=taken == len(data))
        return taken

    def send_many(self, parts: Sequence[memoryview | bytes]) -> int:
        taken, size = self._transport.try_send_many(parts), sum(map(len, parts))
        self._count(taken)
        if taken < size or self._transport.pending:
            self._sent_as_much_as_goes(whole=taken == size)
        return taken

    def _sent_as_much_as_goes(self, *, whole: bool) -> None:
        self.writable = False
        if whole:
            self._write_now()  # the caller is done: only this sees to what TLS still holds

    def hold_remainder(self, rest: bytes) -> None:
        if rest:
            self._partial_frame = memoryview(rest)
            self.writable = False

    def mark_ready(self, subscription: Subscription) -> None:
        if self.close_code is None:
            self._ready[subscription] = None
            self._write_now()

    # --- for the connection ----------------------------------------------------------------

    def control(self, frame: bytes) -> None:
        """Write a control frame or a message, behind all events sent so far. Ignored once closing."""
        if self.close_code is None:
            self._control_queue.append(frame)
            self._control_bytes += len(frame)
            if frame[0] & _CONTROL:
                self.unsaid_bytes += len(frame)
            self._write_now()

    def pong(self, frame: bytes) -> None:
        """Write a pong. While it waits, a later one takes its place (RFC 6455, 5.5.3)."""
        if self.close_code is None:
            self._pong = frame
            self._write_now()

    def send_close(self, code: int, reason: str) -> None:
        """Write a close frame; nothing follows it."""
        self.end_with(close_frame(code, reason), code)

    def end_with(self, frame: bytes, code: int) -> None:
        """Write this close frame as the last thing of the connection. code: 1005 for one without a code."""
        if self.close_code is None:
            self._pong = None
            self._control_queue.append(frame)
            self._control_bytes += len(frame)
            self.close_code = code
            self._ready.clear()
            self._closing()
            self._write_now()

    def cork(self) -> None:
        """Collect what is written until `uncork`: replies then go before the events they set free."""
        self._corked = True

    def uncork(self) -> None:
        self._corked = False
        self._write_now()

    @property
    def control_full(self) -> bool:
        return self._control_bytes + self._controls_begun >= self._control_limit

    @property
    def idle(self) -> bool:
        """Nothing waits to be written."""
        return not (
            self._partial_frame or self._control_queue or self._pong is not None or self._transport.pending
        )

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
        return len(self._partial_frame) + self._control_bytes + len(self._pong or b"")

    async def wait_room(self) -> None:
        """Wait until the control queue has room again: before more is read that needs replies."""
        while self.control_full and not self._transport.broken:
            if self._control_room is None:
                self._control_room = trio.Event()
            await self._control_room.wait()

    async def wait_idle(self) -> None:
        """Until everything, the close frame too, is with the kernel, or the connection is broken."""
        while not self.idle and not self._transport.broken:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()

    def abandon(self) -> None:
        """Write nothing more: the connection is over."""
        self._ready.clear()
        self._control_queue.clear()
        self._control_bytes = self._controls_begun = 0
        self._partial_frame = _NOTHING
        self._pong = None
        self.close_code = self.close_code or 1006
        self.writable = self.awaits_turn = False
        # It holds the connection, which holds this: a cycle that no collection has to find now.
        self._spawn = _start_none
        self._wake_waiters()

    def take_turn(self) -> None:
        """See `runtime.delivery_turns.Sender`. What it raises ends this connection, in a task of its own."""
        if self.awaits_turn:
            self.awaits_turn, self._turn = False, True
            try:
                self._write_now()
            except Exception as error:  # noqa: BLE001
                self._spawn(partial(_raise, error))
            finally:
                self._turn = False

    # --- inside ----------------------------------------------------------------------------

    def _write_now(self) -> None:
        """Write what can be written now; leave the rest to a later turn, or to the drain task."""
        if self._corked or self._pumping or self._draining:
            if not self.idle:
                self.writable = False
            return
        if self._pump():
            self.writable = not self._transport.broken and self.close_code is None
            self._wake_waiters()
        else:
            self.writable = False
            if not self._transport.broken and not (self.awaits_turn and self.idle):
                self._draining = True
                self._spawn(self._drain)

    async def _drain(self) -> None:
        try:
            while True:
                await self._wait_writable()
                done = self._pump()
                self._wake_waiters()
                if done or self._transport.broken or (self.awaits_turn and self.idle):
                    break
        except trio.ClosedResourceError:
            pass  # closed while we waited: the connection's end has been seen to
        finally:
            self._draining = False
        over = self._transport.broken or self.close_code is not None
        self.writable = self.idle and not (over or self.awaits_turn)
        self._wake_waiters()

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
        """Write until nothing is left (True), nothing more is taken, or others have their turn (False)."""
        self._pumping = True
        try:
            return self._pump_bytes()
        finally:
            self._pumping = False

    def _pump_bytes(self) -> bool:
        transport = self._transport
        while True:
            if not transport.flush():
                return False
            if not self._partial_frame and (self._control_queue or self._pong is not None):
                self._begin_controls()
            may_read = bool(self._ready) and (self._turn or self._turns.may_send())
            if self._partial_frame and (not may_read or self._control_queue or self._pong is not None):
                taken = transport.try_send(self._partial_frame)
                self._count(taken)
                self._advance_partial(taken)
                if self._partial_frame:
                    return False
                continue
            if not self._ready:
                return not transport.broken
            if not may_read:
                if not self.awaits_turn:
                    self.awaits_turn = True
                    self._turns.add(self)
                return False
            subscription = next(iter(self._ready))
            del self._ready[subscription]
            began = self._clock()
            if subscription.lag_due:
                # Its reply lands in the control queue, which goes before what is prepared next.
                self._ready[subscription] = None
                subscription.owner.notify(subscription, take_lag(subscription, began))
                self._turns.charge(self._clock() - began)
                continue
            prepared = subscription.prepare(self._send_bytes)
            if prepared is None:
                self._turns.charge(self._clock() - began)
                if _notice_due(subscription):  # the look has found a loss
                    self._ready[subscription] = None
                continue
            # A reply goes out together with the events that it sets free.
            views = [self._partial_frame, *prepared.views] if self._partial_frame else prepared.views
            taken = transport.try_send_many(views) if views else 0
            self._count(taken)
            taken = self._advance_partial(taken)
            rest = subscription.commit(prepared, taken)
            spent = self._clock() - began
            self._turns.charge(spent)
            self._turn = False
            self.delivery_seconds += spent
            if subscription.readable:
                self._ready[subscription] = None
            if rest:
                # What `commit` had its owner write comes after the frame that was cut.
                self._partial_frame = memoryview(rest)
            if self._partial_frame or taken < prepared.size:
                return False

    def _advance_partial(self, taken: int) -> int:
        """So many bytes were taken, those of the partial frame first. Returns how many were beyond it."""
        partial = self._partial_frame
        # An empty slice would hold on to it all.
        self._partial_frame = partial[taken:] if taken < len(partial) else _NOTHING
        if not self._partial_frame:
            self._controls_begun = 0
        return max(0, taken - len(partial))

    def _begin_controls(self) -> None:
        """Begin with the control queue: from here on it is bytes to be written before anything else."""
        frames = [*self._control_queue] if self._pong is None else [*self._control_queue, self._pong]
        self.unsaid_bytes += len(self._pong or b"")
        self._pong = None
        self._control_queue.clear()
        self._partial_frame = memoryview(b"".join(frames))
        self._controls_begun, self._control_bytes = len(self._partial_frame), 0

    def _count(self, taken: int) -> None:
        if taken:
            self.sent_bytes += taken
            self.taken_at = self._clock()

    def _wake_waiters(self) -> None:
        if self._control_room is not None and (not self.control_full or self._transport.broken):
            self._control_room.set()
            self._control_room = None
        if self._done is not None and (self.idle or self._transport.broken):
            self._done.set()
            self._done = None


def _notice_due(subscription: Subscription) -> bool:
    """Ask anew: a type checker takes it that what was asked a moment ago still holds."""
    return subscription.lag_due


async def _raise(error: Exception) -> None:
    raise error


def _start_none(task: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start nothing: nothing is written any more."""
