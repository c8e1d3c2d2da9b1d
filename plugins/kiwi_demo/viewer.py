"""The demo's clients: each watches one source, shows its first events in words and counts the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import trio

from kiwi_gw.backoff import Backoff
from kiwi_gw.client.address import Address
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.client.transport import dialler
from kiwi_gw.client.watch import Happening, Reconnecting, SubscriptionOpened, WatchPlan, watch
from kiwi_gw.dialects.kiwi.messages import Lag, SubscriptionClosed
from kiwi_gw.terminal import escape

SHOWN = 5
"""How many events of each subscription, and how many of its notices, are shown."""
_LONGEST_PAUSE = 2.0  # seconds between attempts: the gateway is our own, and Spark may take a while to start


class Viewer:
    """Watch one source in one mode. `received` and `lags` count events and LAG notices.

    label: what its lines begin with; the mode, if empty. words: an event's data on one line; an empty
    line is not shown.
    """

    def __init__(
        self,
        address: Address,
        plan: WatchPlan,
        say: Callable[[str], None],
        *,
        label: str = "",
        words: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        self.received = 0
        self.lags = 0
        self.subscribed = trio.Event()
        self.first = trio.Event()
        self._moved = trio.Event()
        self._address = address
        self._plan = plan
        self._say = say
        self._label = label or plan.mode
        self._words = words or in_words

    async def run(self) -> None:
        """Watch until cancelled. Raises `WatchEnded` where the gateway refuses for good."""
        backoff = Backoff(longest=_LONGEST_PAUSE, jitter=1.0)
        await watch(self._address, self._plan, self.take, dial=dialler(), backoff=backoff)

    async def received_at_least(self, count: int) -> None:
        """Return once so many events have come."""
        while self.received < count:
            await self._moved.wait()

    async def take(self, happening: Happening) -> None:
        match happening:
            case SubscriptionOpened():
                self.subscribed.set()
            case Event(data=data):
                self._event(data)
            case Noticed(data=Lag(count=count)):
                self.lags += 1
                if self.lags <= SHOWN:
                    self._show(f"LAG: {count} events behind")
            case Noticed(data=SubscriptionClosed(message=message)):
                self._show(f"closed: {message}")
            case Reconnecting(why=why, seconds=seconds) if self.subscribed.is_set():
                self._show(f"{why}; again in {seconds:.1f} s")
            case _:  # also attempts to subscribe to a source that takes its time to start
                pass

    def _event(self, data: Mapping[str, Any]) -> None:
        self.received += 1
        self.first.set()
        self._moved.set()
        self._moved = trio.Event()
        words = self._words(data)
        if words and self.received <= SHOWN:
            self._show(words)
        if words and self.received == SHOWN:
            self._show("... and so on")

    def _show(self, text: str) -> None:
        self._say(f"  {self._label}  {escape(text)}")


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
