"""What is on the demo's stage, what is done to it, and how it came out."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import trio

from kiwi_demo.broker import Broker, raise_when_ended
from kiwi_demo.gateway import Gateway
from kiwi_demo.results import Results
from kiwi_demo.viewer import Viewer
from kiwi_gw.client.address import Address
from kiwi_gw.client.watch import WatchPlan
from kiwi_gw.errors import KiwiError

TOPIC: Final = "flights"
PULL_RATE: Final = 5.0
_SLOW_CAPACITY: Final = 50
"""How many flights `drop_oldest` may be behind: so few that a stall of seconds costs some."""
_BROKER_AWAY_SECONDS: Final = 3.0


class Act(enum.Enum):
    """What can be done, with its key."""

    STALL = "s"
    GO_ON = "r"
    BREAK = "b"
    RESTART = "g"


class DemoFailed(KiwiError):  # noqa: N818  (it says what happened)
    """Report that the parts are there, and do not do what they should."""


_PLANS: Final = {
    "push": WatchPlan(TOPIC),
    "pull": WatchPlan(TOPIC, "pull", rate=PULL_RATE),
    "slow, drop_oldest": WatchPlan(TOPIC, overflow="drop_oldest", buffer_capacity=_SLOW_CAPACITY),
    "slow, replay": WatchPlan(TOPIC, overflow="replay"),
}
"""The clients of the flights. Those that are slow stall."""


class Stage:
    """Hold the parts of the demo. clients: of the flights. results: what Spark makes of them. produced: how
    many flights so far. say: takes what is told; events: whether the first events of all clients are, too."""

    def __init__(
        self,
        broker: Broker,
        gateway: Gateway,
        address: Address,
        say: Callable[[str], None],
        *,
        spark: bool,
        events: bool,
    ) -> None:
        self.say = say
        self.produced = 0
        shown = say if events else _nothing
        self.clients = tuple(
            Viewer(address, plan, shown, label=label, note=self._note) for label, plan in _PLANS.items()
        )
        self.results = Results(address, shown, gateway.log) if spark else None
        self._broker = broker
        self._gateway = gateway
        self._doing = trio.Lock()
        self._changes = 0
        self._settled = trio.Event()
        self._settled.set()

    def _note(self, line: str) -> None:
        self.say(line)  # whoever takes it by now

    def on_produced(self, count: int) -> None:
        self.produced += count

    async def act(self, what: Act) -> None:
        """Do one thing, after the one before it is done."""
        async with self._doing:
            match what:
                case Act.STALL:
                    self.say("both slow clients stop reading; the connections stay open")
                    for client in self.clients:
                        if client.label.startswith("slow"):
                            client.stall()
                case Act.GO_ON:
                    self.say("the slow clients read again")
                    self.all_read()
                case Act.BREAK:
                    await self._break()
                case Act.RESTART:
                    await self._restart()

    def all_read(self) -> None:
        """Have no client stall any more."""
        for client in self.clients:
            client.go_on()

    async def _break(self) -> None:
        self.say("kill -9 of the broker")
        with self._changing():
            await self._broker.kill()
            await trio.sleep(_BROKER_AWAY_SECONDS)
            await self._broker.start()
        self.say("the broker is there again")

    async def _restart(self) -> None:
        self.say("the gateway is restarted under its clients")
        with self._changing():
            await self._gateway.end()
            await self._gateway.start()
        self.say("the gateway is there again")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let parts end within the block."""
        self._settled = trio.Event()
        self._changes += 1
        yield
        self._settled.set()  # not where this was cut off: then the end of a part is no news

    async def raise_when_ended(self) -> None:
        """Raise when the broker or the gateway ends by itself."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guard, partial(raise_when_ended, self._broker))
            nursery.start_soon(self._guard, self._gateway.raise_when_ended)

    async def _guard(self, raise_at_end: Callable[[], Awaitable[None]]) -> None:
        while True:
            changes = self._changes
            try:
                await raise_at_end()
            except KiwiError:
                if changes == self._changes:
                    raise
            await self._settled.wait()

    # --- how it came out ---

    async def caught_up(self, within: int) -> None:
        """Wait until to all that are pushed to no more than so many flights are still to come."""
        for client in self.clients:
            if client.plan.mode == "push":
                await client.until(partial(self._has, client, within))

    def _has(self, client: Viewer, within: int) -> bool:
        return client.tally.to_come(self.produced) <= within

    def account(self) -> list[str]:
        """Word what was produced, and what became of it at each client."""
        head = f"  {'':<18}{'received':>9}{'missed':>8}{'announced':>11}{'doubled':>9}{'to come':>9}"
        lines = [f"  {self.produced} flights were produced", head]
        for client in self.clients:
            tally = client.tally
            lines.append(
                f"  {client.label:<18}{tally.received:>9}{tally.missed:>8}{tally.announced:>11}"
                f"{tally.doubled:>9}{tally.to_come(self.produced):>9}"
            )
        return lines

    def mistakes(self) -> list[str]:
        """Word what does not add up: nothing, it is hoped."""
        return [
            f"{client.label}: {client.tally.missed} flights were missed, {client.tally.announced} announced,"
            f" and {client.tally.doubled} came twice"
            for client in self.clients
            if not client.tally.agrees(self.produced)
        ]


def _nothing(line: str) -> None:
    """Say nothing."""
