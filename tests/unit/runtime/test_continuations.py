"""What clients have left to do: in turns, and sooner on an idle loop."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares
from kiwi_gw.core.round_budget import ROUND_SECONDS, RoundBudget
from kiwi_gw.runtime.continuations import Continuations
from kiwi_gw.runtime.evaluator import Evaluator
from kiwi_gw.runtime.loop_rounds import IDLE_SECONDS, LOOK_SECONDS
from tests.unit.runtime.fakes import endless_round


async def until_quiet(rounds: int = 20) -> None:
    for _ in range(rounds):
        await trio.lowlevel.checkpoint()


async def test_those_that_take_long_go_on_one_in_each_round_in_the_order_in_which_they_asked() -> None:
    now, rounds, ran = 0.0, 0, []
    budget = RoundBudget(lambda: now)
    leftovers = Continuations(budget, lambda: now)

    def client(name: str, seconds: float) -> None:
        def then(idle: bool) -> None:
            nonlocal now
            assert not idle
            ran.append((name, rounds))
            now += seconds

        leftovers.add(0, then)

    for name in "abc":
        client(name, 2 * ROUND_SECONDS)
    for name in "def":
        client(name, ROUND_SECONDS / 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leftovers.run)
        while rounds < 20:
            rounds += 1
            budget.renew(0.0)
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert [name for name, _ in ran] == list("abcdef")
    heavy = [at for _, at in ran[:4]]
    assert len(set(heavy)) == 4, "each in a round of its own"
    assert len({at for _, at in ran[3:]}) == 1, "those that do little share one"


async def test_on_an_idle_loop_nobody_rests(autojump_clock: MockClock) -> None:
    leftovers = Continuations(endless_round(), trio.current_time)
    told: list[tuple[str, bool]] = []
    done = trio.Event()
    leftovers.add(100.0, lambda idle: done.set())
    leftovers.add(50.0, lambda idle: told.append(("sooner", idle)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leftovers.run)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert told == [("sooner", True)]
    assert trio.current_time() < 1


async def test_on_a_busy_loop_they_rest_for_as_long_as_they_must(mock_clock: MockClock) -> None:
    leftovers = Continuations(endless_round(), trio.current_time)
    told: list[tuple[float, bool]] = []
    done = trio.Event()

    def then(idle: bool) -> None:
        told.append((trio.current_time(), idle))
        done.set()

    async def pieces() -> None:
        while True:
            mock_clock.jump(0.0001)
            await trio.lowlevel.checkpoint()

    leftovers.add(0.5, then)
    asked_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pieces)
        nursery.start_soon(leftovers.run)
        await done.wait()
        nursery.cancel_scope.cancel()
    ((at, idle),) = told
    assert at >= asked_at + 0.5
    assert not idle


async def test_who_comes_while_others_rest_goes_on_at_once(mock_clock: MockClock) -> None:
    leftovers = Continuations(endless_round(), trio.current_time)
    came = trio.Event()

    async def busy() -> None:
        while True:
            mock_clock.jump(0.0001)
            await trio.lowlevel.checkpoint()

    leftovers.add(1000.0, lambda idle: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leftovers.run)
        nursery.start_soon(busy)
        await until_quiet(200)
        leftovers.add(0, lambda idle: came.set())
        await came.wait()
        assert trio.current_time() < 1
        nursery.cancel_scope.cancel()


async def test_two_that_wait_for_an_idle_loop_do_not_hinder_each_other(autojump_clock: MockClock) -> None:
    told: list[bool] = []
    done = trio.Event()

    def then(idle: bool) -> None:
        told.append(idle)
        if len(told) == 40:
            done.set()

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            leftovers = Continuations(endless_round(), trio.current_time)
            for _ in range(20):
                leftovers.add(100.0, then)
            nursery.start_soon(leftovers.run)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert all(told)
    took = 20 * IDLE_SECONDS  # side by side
    assert trio.current_time() < took + 1.5 * LOOK_SECONDS


class Postponed(Evaluations):
    """Rests until there is something left, of which each turn takes 2 ms. told: whether the loop was idle."""

    def __init__(self, clock: MockClock) -> None:
        super().__init__(CpuShares(), endless_round())
        self.left = 0
        self.told: list[bool] = []
        self.done = trio.Event()
        self._mock = clock

    def go_on(self, *, idle: bool) -> float | None:
        self.told.append(idle)
        if not self.left:
            return 100.0
        self._mock.jump(0.002)
        self.left -= 1
        if not self.left:
            self.done.set()
        return 0.0


async def test_a_loop_that_evaluates_what_it_must_is_not_idle(autojump_clock: MockClock) -> None:
    postponed, leftovers = Postponed(autojump_clock), Continuations(endless_round(), trio.current_time)
    told: list[bool] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Evaluator(postponed).run)
        await trio.sleep(1)  # it has rested, and looked whether the loop is idle
        postponed.left = 100
        await trio.sleep(2 * LOOK_SECONDS)
        assert 0 < postponed.left < 100
        leftovers.add(1000.0, told.append)
        nursery.start_soon(leftovers.run)
        await postponed.done.wait()
        nursery.cancel_scope.cancel()
    assert told == []


async def test_a_loop_that_carries_out_what_may_go_on_is_not_idle(autojump_clock: MockClock) -> None:
    postponed, leftovers = Postponed(autojump_clock), Continuations(endless_round(), trio.current_time)
    done = trio.Event()
    left = 100

    def then(idle: bool) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        else:
            autojump_clock.jump(0.002)
            leftovers.add(0, then)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leftovers.run)
        leftovers.add(1000.0, then)  # it rests, and goes on because the loop is idle
        await trio.sleep(0.01)
        assert left < 100
        nursery.start_soon(Evaluator(postponed).run)
        await done.wait()
        assert not any(postponed.told)
        nursery.cancel_scope.cancel()
