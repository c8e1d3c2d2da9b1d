"""Whom judging and telling of sources still reaches, when connections and sources come and go meanwhile."""

from __future__ import annotations

import pytest
import trio

from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.model import SourceInfo
from kiwi_gw.runtime.reauthorization import Reauthorization
from tests.unit.core.desk import Gateway


class Connection:
    """Takes 6 ms to be judged, more than a turn, on the clock of a test. heard: what it was told."""

    def __init__(self, clock: list[float]) -> None:
        self.closed = self.due = False
        self.heard: list[str] = []
        self._clock = clock

    def reauthorize(self) -> None:
        self.due = False
        self.heard.append("judged")
        self._clock[0] += 0.006

    def source_appeared(self, info: SourceInfo) -> None:
        self.heard.append(info.id)


class World:
    """Two connections, of which `ask` sees to the first at once. hubs: the sources that are there."""

    def __init__(self) -> None:
        self.clock = [0.0]
        self.hubs: dict[str, SourceHub] = Gateway("a", "b").hubs
        self.first, self.second = Connection(self.clock), Connection(self.clock)
        self.judging = Reauthorization(self.hubs.get, lambda: self.clock[0])

    def ask(self, *appeared: str) -> None:
        self.judging.ask([self.first, self.second], appeared)  # type: ignore[list-item]

    async def go_on(self) -> None:
        """Until nobody is due."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.judging.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


async def test_who_is_asked_for_twice_is_judged_once_and_told_of_all_in_order() -> None:
    world = World()
    world.ask("a")
    world.ask("b", "a")
    assert world.second.heard == ["judged", "a", "b"]
    await world.go_on()
    assert world.first.heard == ["judged", "a", "judged", "b", "a"]
    assert world.second.heard == ["judged", "a", "b"]


@pytest.mark.parametrize("closed", [False, True])
async def test_who_is_gone_meanwhile_is_neither_judged_nor_told(closed: bool) -> None:
    world = World()
    world.ask("a")
    world.second.closed = closed
    await world.go_on()
    assert world.second.heard == ([] if closed else ["judged", "a"])


async def test_of_a_source_that_is_gone_meanwhile_nobody_is_told() -> None:
    world = World()
    world.ask("a", "b")
    del world.hubs["a"]
    await world.go_on()
    assert world.first.heard == ["judged", "a", "b"]
    assert world.second.heard == ["judged", "b"]
