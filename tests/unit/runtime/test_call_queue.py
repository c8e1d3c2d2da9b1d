"""The calls of one connection, without what they ask for."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from kiwi_gw.core.commands import MAX_CALLS, Call, LogIn
from kiwi_gw.model import Identity, Refusal, Token
from kiwi_gw.runtime.call_queue import CallQueue

ANN = Identity("ann")


class World:
    """begun: what was begun and is not over, with its callback. done: handles and results."""

    def __init__(self) -> None:
        self.begun: list[tuple[LogIn, Callable[[Identity | Refusal], None]]] = []
        self.done: list[tuple[object, Identity | Refusal]] = []
        self.then: Callable[[], None] = lambda: None
        self.calls = CallQueue(lambda request, done: self.begun.append((request, done)), self._over)

    def _over(self, call: Call, result: Identity | Refusal, asked_at: float | None) -> None:
        self.done.append((call.handle, result))
        self.then()

    def add(self, *handles: object, pause: bool = False) -> None:
        for handle in handles:
            self.calls.add(Call(handle, LogIn(Token(str(handle))), pause))

    def finish(self, result: Identity | Refusal = ANN) -> None:
        """The one that is under way is over; there is never another one."""
        ((_, done),) = self.begun
        self.begun.clear()
        done(result)


def test_one_is_under_way_at_a_time_and_the_next_begins_when_it_is_over() -> None:
    world = World()
    world.add("a", "b")
    no = Refusal("invalid_token", "no")
    world.finish(no)
    assert world.done == [("a", no)]
    world.finish()
    assert world.done == [("a", no), ("b", ANN)]
    assert world.begun == []


def test_the_client_is_read_up_to_a_bound() -> None:
    world = World()
    world.add(*range(MAX_CALLS - 1))
    assert not world.calls.full
    world.add("last")
    assert world.calls.full
    world.add("too many")
    ((handle, result),) = world.done
    assert handle == "too many"
    assert isinstance(result, Refusal)
    assert (result.code, result.retry) == ("busy", True)
    world.finish()
    assert not world.calls.full


def test_a_call_that_pauses_the_client_does_so_until_it_is_over() -> None:
    world = World()
    world.add("a")
    world.add("b", pause=True)
    assert world.calls.full
    world.finish()
    assert world.calls.full
    world.finish()
    assert not world.calls.full


async def test_whoever_waits_for_room_goes_on_when_there_is_some() -> None:
    world = World()
    world.add("a", "b", pause=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.calls.wait_room)
        await trio.testing.wait_all_tasks_blocked()
        world.finish()
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        world.finish()


async def test_what_is_given_up_is_answered_to_nobody() -> None:
    world = World()
    world.add("a", "b", pause=True)
    world.calls.clear()
    await world.calls.wait_room()
    world.finish()
    assert (world.done, world.begun) == ([], [])
    world.add("c")
    world.finish()
    assert world.done == [("c", ANN)]


def test_what_an_answer_brings_about_comes_behind_the_others() -> None:
    world = World()
    world.add("a", "b")
    world.then = lambda: world.add("again") if len(world.done) == 1 else None
    for _ in range(3):
        world.finish()
    assert [handle for handle, _ in world.done] == ["a", "b", "again"]


def test_an_answer_may_end_the_connection() -> None:
    world = World()
    world.add("a", "b")
    world.then = world.calls.clear
    world.finish()
    assert ([handle for handle, _ in world.done], world.begun) == (["a"], [])
