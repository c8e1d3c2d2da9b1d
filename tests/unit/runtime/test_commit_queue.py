"""The commits of one connection, without the source that keeps them."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing
from trio.testing import MockClock

from kiwi_gw.core.commands import Commit
from kiwi_gw.model import Refusal
from kiwi_gw.runtime import commit_queue
from kiwi_gw.runtime.commit_queue import CommitQueue

SECONDS = 4.0
LATER = Refusal("unavailable", "later", retry=True)
WRONG = Refusal("positions", "one of them is beyond the end")
FORBIDDEN = Refusal("forbidden", "not any more")


class World:
    """begun: what was begun and is not over, with the seconds that it has. done: handles and results."""

    def __init__(self) -> None:
        self.begun: list[tuple[Commit, float, Callable[[Refusal | None], None]]] = []
        self.done: list[tuple[object, Refusal | None]] = []
        self.then: Callable[[], None] = lambda: None
        self.forbidden: set[str] = set()
        self.queue = CommitQueue(
            lambda command, within, done: self.begun.append((command, within, done)),
            self._over,
            lambda source_id: FORBIDDEN if source_id in self.forbidden else None,
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
    def first_open(self) -> int:
        """The first that has no answer, and is committed just now if anything is."""
        return len(self.done)

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


async def test_of_many_the_one_at_fault_is_found_by_few_more_writes() -> None:
    world = World()
    for number in range(201):
        world.add(number)
    world.finish()
    begun = 0
    while world.begun:
        begun += 1
        command, _, _ = world.begun[0]
        there = range(command.positions[0][0] + 1)
        world.finish(WRONG if 100 in there and world.first_open <= 100 else None)
    assert begun <= 2 * 8 + 1
    assert [result for _, result in world.results] == ["ok"] * 100 + ["positions"] + ["ok"] * 100
    assert [handle for handle, _ in world.results] == list(range(201))


async def test_a_client_is_not_read_while_many_commits_wait() -> None:
    world = World()
    for number in range(commit_queue.MOST_COMMITS - 1):
        world.add(number)
    assert not world.queue.full
    world.add(1_000)
    assert world.queue.full
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.queue.wait_room)
        await trio.testing.wait_all_tasks_blocked()
        world.finish()
    assert not world.queue.full
    large = World()
    positions = dict.fromkeys(range(commit_queue.MOST_POSITIONS), (1, ""))
    large.queue.add(Commit(1, "a", "g", positions), None, SECONDS)
    assert large.queue.full
    large.finish()
    assert not large.queue.full


async def test_what_waits_is_refused_where_it_is_no_longer_allowed() -> None:
    world = World()
    for number, source in enumerate("aabb"):
        world.add(number, source=source)
    world.forbidden = {"a"}
    world.queue.judge()
    assert world.results == [(1, "forbidden")]
    for _ in range(3):
        world.finish()
    assert world.results[1:] == [(0, "ok"), (2, "ok"), (3, "ok")]
    assert world.begun == []


async def test_what_is_no_longer_allowed_is_not_tried_again() -> None:
    world = World()
    for number in range(3):
        world.add(number)
    world.finish()
    world.forbidden = {"a"}
    world.finish(WRONG)
    assert world.results == [(0, "ok"), (1, "forbidden"), (2, "forbidden")]
    assert world.begun == []
