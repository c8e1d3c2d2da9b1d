"""The demo's clients: each watches one source, keeps its newest lines, and counts."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from kiwi_demo.tally import Tally
from kiwi_gw.backoff import Backoff
from kiwi_gw.client.address import Address
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.client.watch import (
    CreditsGranted,
    Happening,
    Reconnecting,
    SubscriptionOpened,
    WatchPlan,
    watch,
)
from kiwi_gw.dialects.kiwi.messages import Draining, Lag, SubscriptionClosed
from kiwi_gw.terminal import escape

SHOWN: Final = 5
"""How many events of each subscription are said."""

KEPT: Final = 40
"""How many of the newest lines are kept for a screen."""

_LONGEST_PAUSE: Final = 2.0
"""Seconds between attempts: the gateway is our own, and Spark may take a while to start."""

_FEW_BYTES: Final = 4096
"""The receive buffer of a client: where it stalls, the kernel is not to hold seconds of flights."""


class Viewer:
    """Watch one source. `tally` counts what came.

    say: takes its first events; note: what else happens to it, if not `say`. label: what its lines begin
    with; the mode, if empty. words: an event's data on one line; an empty line is not shown. lines: the
    newest, for a screen. balance: of its credits; None if it needs none.
    """

    def __init__(
        self,
        address: Address,
        plan: WatchPlan,
        say: Callable[[str], None],
        *,
        label: str = "",
        note: Callable[[str], None] | None = None,
        words: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        self.tally = Tally()
        self.plan = plan
        self.label = label or plan.mode
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.balance: int | None = None
        self.subscribed = trio.Event()
        self.first = trio.Event()
        self._connected = False
        self._reading = trio.Event()
        self._reading.set()
        self._moved = trio.lowlevel.ParkingLot()
        self._address = address
        self._say = say
        self._say_note = note or say
        self._words = words or in_words

    @property
    def state(self) -> str:
        """Return what it does now."""
        if not self._reading.is_set():
            return "stalled: it reads nothing"
        return "reading" if self._connected else "connecting"

    async def run(self) -> None:
        """Watch until cancelled. Raises `WatchEnded` where the gateway refuses for good."""
        backoff = Backoff(longest=_LONGEST_PAUSE, jitter=1.0)
        await watch(self._address, self.plan, self.take, dial=_dial, backoff=backoff)

    def stall(self) -> None:
        """Read nothing any more: neither from the socket."""
        if self._reading.is_set():
            self._reading = trio.Event()

    def go_on(self) -> None:
        """Read again."""
        self._reading.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Return once `done`, which is looked at whenever something has come."""
        while not done():
            await self._moved.park()

    async def take(self, happening: Happening) -> None:
        """Take what happens, in order; while it is stalled, not before it goes on."""
        await self._reading.wait()
        match happening:
            case SubscriptionOpened():
                again = self.subscribed.is_set()
                self._connected = True
                self.subscribed.set()
                if again:
                    self._note("connected again; goes on where it was")
            case Event(data=data):
                self._event(data)
            case Noticed(data=Lag() as lag):
                self._lag(lag)
            case Noticed(data=SubscriptionClosed(message=message)):
                self._note(f"closed: {message}")
            case Noticed(data=Draining()):
                self._note("the gateway says that it restarts")
            case CreditsGranted(balance=balance):
                self.balance = balance
            case Reconnecting(why=why, seconds=seconds):
                # Attempts to subscribe to a source that takes its time to start are none to be told.
                if self._connected:
                    self._note(f"{why}; again in {seconds:.1f} s")
                self._connected = False
            case _:
                pass
        self._moved.unpark_all()

    def _event(self, data: Mapping[str, Any]) -> None:
        self.tally.event(data)
        if self.balance:
            self.balance -= 1
        self.first.set()
        words = self._words(data)
        if not words:
            return
        self.lines.append(escape(words))
        if self.tally.received <= SHOWN:
            self._show(words)
        if self.tally.received == SHOWN:
            self._show("... and so on")

    def _lag(self, lag: Lag) -> None:
        self.tally.lag(lag.dropped)
        if lag.dropped:
            self._note(f"LAG: {lag.dropped} events given up, {_ranges(lag.ranges)}")
            return
        text = f"LAG: {lag.count} events behind"
        self.lines.append(f"* {text}")
        if self.tally.lags <= SHOWN:
            self._show(text)

    def _note(self, text: str) -> None:
        self.lines.append(f"* {escape(text)}")
        self._say_note(f"  {self.label}  {escape(text)}")

    def _show(self, text: str) -> None:
        self._say(f"  {self.label}  {escape(text)}")


async def _dial(address: Address) -> trio.abc.Stream:
    """Connect, with a small receive buffer."""
    sock = trio.socket.socket()
    try:
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, _FEW_BYTES)
        await sock.connect((address.host, address.port))
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(sock)


def _ranges(ranges: object) -> str:
    """Word the ranges of a LAG: the first and last offset of every partition."""
    if not isinstance(ranges, Mapping):
        return "the gateway does not know which"
    words = (f"{first} to {last} of partition {partition}" for partition, (first, last) in ranges.items())
    return "offsets " + ", ".join(words)


def in_words(data: Mapping[str, Any]) -> str:
    """Word a RESULT of `flights` or `late-flights` on one line; of any other source, its data as JSON."""
    try:
        value = data["value"]
        place = f"partition {data['partition']}, offset {data['offset']}" if "offset" in data else ""
        place = place or f"batch {data['batch']}, row {data['row']}"
        flight = json.loads(value) if isinstance(value, str) else value
        name = f"{flight['carrier']} {flight['flight']}"
        delay = "cancelled" if flight["dep_delay"] is None else f"left {flight['dep_delay']:+d} min"
        # Spark writes microseconds, the records do not.
        due = str(flight["sched_dep"]).replace(".000000Z", "Z")
    except (KeyError, TypeError, ValueError):
        return json.dumps(data)
    return f"{name:<8} {flight['origin']} to {flight['dest']}, due {due}, {delay:<13} ({place})"
