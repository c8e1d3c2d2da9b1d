"""The commits of one connection, without the source that keeps them."""

from __future__ import annotations

from collections.abc import Callable

from trio.testing import MockClock

from kiwi_gw.core.commands import Commit
from kiwi_gw.model import Refusal
from kiwi_gw.runtime.commit_queue import CommitQueue

SECONDS = 4.0
LATER = Refusal("unavailable", "later", retry=True)


class World:
    """begun: what was begun and is not over, with the seconds that it has. done: handles and results."""

    def __init__(self) -> None:
        self.begun: list[tuple[Commit, float, Callable[[Refusal | None], None]]] = []
        self.done: list[tuple[object, Refusal | None]] = []
        self.then: Callable[[], None] = lambda: None
        self.queue = CommitQueue(
            lambda command, within, done: self.begun.append((command, within, done)), self._over
        )

    def _over(self, command: Commit, asked_at: float | None, refusal: Refusal | None) -> None:
        self.done.append((command.handle, refusal))
        self.then()

    def add(self, handle: int, group: str = "g", source: str = "a") -> None:
        """Commit the handle as the offset of partition 0."""
        self.queue.add(Commit(handle, source, group, {0: (handle, "")}), None, SECONDS)

    def finish(self, refusal: Refusal | None = None) -> None:
        """The first of those that are under way is over."""
        _, _, done = self.begun.pop(0)
        done(refusal)

    @property
    def under_way(self) -> list[object]:
        """The offsets that are committed just now."""
        return [command.positions[0][0] for command, _, _ in self.begun]

    @property
    def results(self) -> list[tuple[object, str]]:
        """What became of each, in a word."""
        return [(handle, "ok" if result is None else result.code) for handle, result in self.done]


async def test_what_waited_for_too_long_is_refused_and_never_begun(mock_clock: MockClock) -> None:
    world = World()
    world.add(1)
    world.add(2)
    mock_clock.jump(SECONDS - 0.4)
    world.finish()
    assert world.results == [(1, "ok"), (2, "unavailable")]
    refusal = world.done[1][1]
    assert refusal is not None
    assert refusal.retry, "nothing was tried"
    assert world.begun == []
    world.add(3)
    assert world.under_way == [3]


async def test_those_that_are_not_late_go_on_with_the_time_of_the_first(mock_clock: MockClock) -> None:
    world = World()
    world.add(1)
    world.add(2)
    mock_clock.jump(1)
    world.add(3)
    mock_clock.jump(1)
    world.add(4)
    mock_clock.jump(1.75)
    world.finish()
    assert world.results == [(1, "ok"), (2, "unavailable")]
    ((command, within, _),) = world.begun
    assert (command.positions, within) == ({0: (4, "")}, 1.25)
    world.finish()
    assert world.results[2:] == [(3, "ok"), (4, "ok")]


async def test_groups_and_sources_do_not_wait_for_each_other() -> None:
    world = World()
    world.add(1)
    world.add(2, group="h")
    world.add(3, source="b")
    world.add(4)
    assert world.under_way == [1, 2, 3]


async def test_one_that_may_be_repeated_is_not_tried_again_for_each() -> None:
    world = World()
    for number in (1, 2, 3):
        world.add(number)
    world.finish()
    world.finish(LATER)
    assert world.results == [(1, "ok"), (2, "unavailable"), (3, "unavailable")]
    assert world.begun == []


async def test_an_answer_may_end_the_connection() -> None:
    world = World()
    world.add(1)
    world.add(2)
    world.then = world.queue.clear
    world.finish()
    assert world.results == [(1, "ok")]
    assert world.begun == []


async def test_an_answer_that_comes_behind_the_end_is_told_to_nobody() -> None:
    world = World()
    world.add(1)
    world.queue.clear()
    world.add(2)
    world.finish()
    assert world.done == []
    assert world.under_way == [2]
