"""The demo's clients: each watches one source, shows its first events in words and counts the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import trio

from kiwi_gw.client.address import Address
from kiwi_gw.client.messages import Event, Lag, SubscriptionClosed
from kiwi_gw.client.transport import dialler
from kiwi_gw.client.watch import Happening, Plan, Reconnecting, Subscribed, watch
from kiwi_gw.terminal import escape

SHOWN = 5
"""How many events of each subscription, and how many of its notices, are shown."""


class Viewer:
    """Watches one source in one mode. `received` and `lags` count events and LAG notices."""

    def __init__(self, address: Address, plan: Plan, say: Callable[[str], None]) -> None:
        self.received = 0
        self.lags = 0
        self.subscribed = trio.Event()
        self.first = trio.Event()
        self._moved = trio.Event()
        self._address = address
        self._plan = plan
        self._say = say

    async def run(self) -> None:
        """Watches for as long as it is let. Raises `Stopped` where the gateway refuses for good."""
        await watch(self._address, self._plan, self.take, dial=dialler())

    async def received_at_least(self, count: int) -> None:
        """Returns once so many events have come."""
        while self.received < count:
            await self._moved.wait()

    async def take(self, happening: Happening) -> None:
        match happening:
            case Subscribed():
                self.subscribed.set()
            case Event(data=data):
                self.received += 1
                self.first.set()
                self._moved.set()
                self._moved = trio.Event()
                if self.received <= SHOWN:
                    self._show(in_words(data))
                if self.received == SHOWN:
                    self._show("... and so on")
            case Lag(data=data):
                self.lags += 1
                if self.lags <= SHOWN:
                    self._show(f"LAG: {data.get('count')} events behind")
            case SubscriptionClosed(message=message):
                self._show(f"closed: {message}")
            case Reconnecting(why=why, seconds=seconds):
                self._show(f"{why}; again in {seconds:.1f} s")
            case _:
                pass

    def _show(self, text: str) -> None:
        self._say(f"  {self._plan.mode}  {escape(text)}")


def in_words(data: Mapping[str, Any]) -> str:
    """A RESULT of the source `flights` on one line; of any other source, its data as JSON."""
    try:
        flight = json.loads(data["value"])
        name = f"{flight['carrier']} {flight['flight']}"
        delay = "cancelled" if flight["dep_delay"] is None else f"left {flight['dep_delay']:+d} min"
        return (
            f"{name:<8} {flight['origin']} to {flight['dest']}, due {flight['sched_dep']}, {delay:<13}"
            f" (partition {data['partition']}, offset {data['offset']})"
        )
    except (KeyError, TypeError, ValueError):
        return json.dumps(data)
