"""Commands of clients that send many: what one may use at once, and its turn in a round of the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Final

import pytest
import trio

from kiwi_gw.core.round_budget import ROUND_SECONDS, ROUND_SHARE, SHARED_ROUNDS, RoundBudget
from kiwi_gw.runtime.command_scheduler import (
    ALLOWANCE_SECONDS,
    OWN_SHARE,
    RESTING_ROUNDS,
    TURN_SECONDS,
    CommandScheduler,
    TimeAllowance,
)


class Rounds(trio.abc.Instrument):
    """How often the event loop has got round, and a budget that it renews as if each took so many seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.number = 0
        self.seconds = seconds
        self.budget = RoundBudget(lambda: 0.0)

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1
        self.budget.renew(self.seconds)


class OneTurn(RoundBudget):
    """A budget that has room for one turn in each round."""

    def renew(self, seconds: float) -> None:
        super().renew(seconds)
        self.left = TURN_SECONDS


@pytest.fixture
async def one_at_a_time() -> AsyncIterator[CommandScheduler]:
    """A scheduler that lets one go on at a time, and has just let one."""
    rounds = Rounds()
    rounds.budget = OneTurn()
    scheduler = CommandScheduler(rounds.budget)
    trio.lowlevel.add_instrument(rounds)
    await trio.lowlevel.checkpoint()
    await scheduler.wait(scheduler.allowance())
    yield scheduler
    trio.lowlevel.remove_instrument(rounds)


FIT: Final = int(ROUND_SECONDS / TURN_SECONDS)


@pytest.mark.parametrize(
    ("seconds", "together"),
    [(0.0, FIT), (TURN_SECONDS, FIT), ((2 * FIT + 0.01) * TURN_SECONDS / ROUND_SHARE, 2 * FIT)],
)
async def test_of_those_that_wait_as_many_go_on_in_every_third_round_as_fit_into_its_budget(
    seconds: float, together: int
) -> None:
    rounds = Rounds(seconds)
    rounds.budget.renew(seconds)
    trio.lowlevel.add_instrument(rounds)
    scheduler = CommandScheduler(rounds.budget)
    came: list[int] = []
    went: dict[int, list[int]] = {}

    async def client(number: int) -> None:
        allowance = scheduler.allowance()
        allowance.charge(0.0, 0.0)
        for _ in range(4):
            came.append(number)
            await scheduler.wait(allowance)
            allowance.charge(0.0, TURN_SECONDS)
            went.setdefault(rounds.number, []).append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6 * FIT):
            nursery.start_soon(client, number)
    trio.lowlevel.remove_instrument(rounds)
    assert list(went) == list(range(min(went), max(went) + 1, 1 + RESTING_ROUNDS)), "they rest no longer"
    sizes = [len(them) for them in went.values()]
    assert set(sizes[1:-1]) == {together}
    assert sum(sizes) == 4 * 6 * FIT
    for them in went.values():
        assert sorted(them) == sorted(came[: len(them)]), "in the order in which they came"
        del came[: len(them)]
    assert not len(scheduler)


@pytest.fixture
async def rounds() -> AsyncIterator[Rounds]:
    counted = Rounds()
    trio.lowlevel.add_instrument(counted)
    yield counted
    trio.lowlevel.remove_instrument(counted)


async def test_where_nothing_is_left_of_a_round_its_turn_comes_when_there_is(rounds: Rounds) -> None:
    scheduler = CommandScheduler(rounds.budget)
    rounds.budget.charge(0.0, ROUND_SECONDS / 2)
    rounds.budget.left = -2.5 * ROUND_SECONDS  # a long piece of work
    began = rounds.number
    await scheduler.wait(scheduler.allowance())
    assert rounds.number == began + 3
    assert rounds.budget.left == pytest.approx(ROUND_SECONDS / 2)
    assert not len(scheduler)


async def test_who_comes_alone_has_its_turn_at_once_and_the_next_behind_rounds_of_rest(
    rounds: Rounds,
) -> None:
    scheduler = CommandScheduler(rounds.budget)
    allowance, began = scheduler.allowance(), rounds.number
    for turn in range(3):
        await scheduler.wait(allowance)
        assert rounds.number == began + turn * (1 + RESTING_ROUNDS)
        allowance.charge(0.0, 0.0)
    for _ in range(1 + RESTING_ROUNDS):
        await trio.lowlevel.checkpoint()
    again = rounds.number
    await scheduler.wait(allowance)
    assert rounds.number == again


async def test_who_has_the_rounds_for_itself_goes_on_in_each_until_somebody_else_is_served(
    rounds: Rounds,
) -> None:
    scheduler = CommandScheduler(rounds.budget)
    allowance = scheduler.allowance()

    async def rounds_of_one_turn() -> int:
        allowance.charge(0.0, 0.0)
        before = rounds.number
        await scheduler.wait(allowance)
        return rounds.number - before

    await scheduler.wait(allowance)
    for somebody_else in (scheduler.allowance(), object()):
        assert await rounds_of_one_turn() == 1 + RESTING_ROUNDS
        rounds.budget.number += SHARED_ROUNDS
        await trio.lowlevel.checkpoint()
        await scheduler.wait(allowance)
        assert [await rounds_of_one_turn() for _ in range(9)] == [1] * 9
        rounds.budget.serve(somebody_else)
        assert await rounds_of_one_turn() == 1 + RESTING_ROUNDS


async def test_who_has_done_something_in_this_round_has_its_turn_in_a_later_one(rounds: Rounds) -> None:
    scheduler = CommandScheduler(rounds.budget)
    allowance, began = scheduler.allowance(), rounds.number
    allowance.charge(0.0, 0.0)
    await scheduler.wait(allowance)
    assert rounds.number == began + 1
    assert allowance.charged_in == began


@pytest.mark.parametrize("cost", [2 * TURN_SECONDS, ROUND_SECONDS, 4 * ROUND_SECONDS])
async def test_behind_every_round_in_which_some_go_on_others_have_theirs_however_dear_the_commands_are(
    rounds: Rounds, cost: float
) -> None:
    scheduler = CommandScheduler(rounds.budget)
    went: set[int] = set()

    async def client() -> None:
        allowance = scheduler.allowance()
        for _ in range(3):
            await scheduler.wait(allowance)
            allowance.charge(0.0, 0.0)
            rounds.budget.left -= cost
            went.add(rounds.number)

    async with trio.open_nursery() as nursery:
        for _ in range(2 * FIT):
            nursery.start_soon(client)
    assert all(later - earlier > RESTING_ROUNDS for earlier, later in pairwise(sorted(went)))


async def test_those_that_come_in_rounds_of_rest_go_together_as_far_as_they_fit(rounds: Rounds) -> None:
    scheduler = CommandScheduler(rounds.budget)
    went: list[int] = []
    await scheduler.wait(scheduler.allowance())
    began = rounds.number

    async def client() -> None:
        await scheduler.wait(scheduler.allowance())
        went.append(rounds.number)
        rounds.budget.left -= TURN_SECONDS

    async with trio.open_nursery() as nursery:
        for _ in range(FIT + 1):
            nursery.start_soon(client)
    assert went == [began + 1 + RESTING_ROUNDS] * FIT + [began + 2 * (1 + RESTING_ROUNDS)]


class Indebted(RoundBudget):
    """A budget of which nothing is left as long as it owes something."""

    owes = True

    def renew(self, seconds: float) -> None:
        super().renew(seconds)
        if self.owes:
            self.left = -1.0


async def test_a_newcomer_does_not_go_at_once_where_others_wait(rounds: Rounds) -> None:
    rounds.budget = budget = Indebted(lambda: 0.0)
    scheduler = CommandScheduler(budget)
    budget.left = -1.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scheduler.wait, scheduler.allowance())
        for _ in range(4):
            await trio.lowlevel.checkpoint()
        assert len(scheduler) == 1
        budget.left, budget.owes = ROUND_SECONDS, False
        came = rounds.number
        await scheduler.wait(scheduler.allowance())
        assert rounds.number > came


async def test_of_many_that_wait_few_look_in_each_round(rounds: Rounds) -> None:
    scheduler = CommandScheduler(rounds.budget)
    rounds.seconds = 60.0  # long rounds: there is much to give away behind them

    async def client() -> None:
        allowance = scheduler.allowance()
        allowance.charge(0.0, 0.0)
        await scheduler.wait(allowance)

    async with trio.open_nursery() as nursery:
        for _ in range(2_000):
            nursery.start_soon(client)
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        assert len(scheduler) >= 1_000
        assert scheduler._awake <= 256


async def test_who_leaves_while_it_waits_holds_up_nobody(one_at_a_time: CommandScheduler) -> None:
    went: list[int] = []
    scheduler, scopes = one_at_a_time, [trio.CancelScope() for _ in range(6)]

    async def client(number: int) -> None:
        with scopes[number]:
            await scheduler.wait(scheduler.allowance())
            went.append(number)
            if len(went) == 1:
                assert len(scheduler) == 5
                for other in [other for other in range(6) if other != number][1:4]:
                    scopes[other].cancel()

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(client, number)
    others = [number for number in range(6) if number != went[0]]
    assert set(went[1:]) | {others[0]} >= {others[0], others[4]}
    assert len(went) <= 4, "one that was woken already may go on"
    assert not len(scheduler)


async def test_the_first_of_those_that_wait_may_leave(one_at_a_time: CommandScheduler) -> None:
    went: list[int] = []
    scheduler, scope = one_at_a_time, trio.CancelScope()

    async def client(number: int) -> None:
        await scheduler.wait(scheduler.allowance())
        went.append(number)

    with scope:
        scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client, 0)
            nursery.start_soon(client, 1)
    assert not went
    assert not len(scheduler)
    with trio.fail_after(1):
        await scheduler.wait(scheduler.allowance())


async def test_one_whose_turn_has_come_may_leave_before_it_runs(one_at_a_time: CommandScheduler) -> None:
    scheduler, scope = one_at_a_time, trio.CancelScope()
    went: list[str] = []

    async def first() -> None:
        with scope:
            await scheduler.wait(scheduler.allowance())
            await trio.sleep_forever()

    async def second() -> None:
        await scheduler.wait(scheduler.allowance())
        went.append("second")

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            nursery.start_soon(second)
            scope.cancel()
    assert went == ["second"]
    assert not len(scheduler)


def test_who_asks_for_little_never_uses_up_its_allowance() -> None:
    allowance, now = TimeAllowance(RoundBudget()), 1000.0
    for _ in range(10_000):
        assert not allowance.used_up(now)
        allowance.charge(now, now + 15e-6)
        now += 15e-6 / OWN_SHARE


def test_what_is_used_at_once_has_an_end_and_comes_back_with_time() -> None:
    allowance, now = TimeAllowance(RoundBudget()), 1000.0
    allowance.charge(now, now + ALLOWANCE_SECONDS * 0.9)
    assert not allowance.used_up(now)
    allowance.charge(now, now + ALLOWANCE_SECONDS * 0.2)
    assert allowance.used_up(now)
    assert not allowance.used_up(now + ALLOWANCE_SECONDS * 0.11 / OWN_SHARE)
    allowance.charge(now, now + 60)
    assert allowance.used_up(now + 3600)


def test_a_turn_is_shorter_than_what_may_be_used_at_once() -> None:
    allowance, now = TimeAllowance(RoundBudget()), 1000.0
    allowance.charge(now, now + 60)
    allowance.renew(now)
    allowance.charge(now, now + TURN_SECONDS * 0.9)
    assert not allowance.used_up(now)
    allowance.charge(now, now + TURN_SECONDS * 0.2)
    assert allowance.used_up(now)


@pytest.mark.parametrize("does", ["asks for something", "goes on after it has waited"])
def test_rounds_are_shared_by_two_that_do_something_in_turn(does: str) -> None:
    budget, now = RoundBudget(), 1000.0
    one, other = TimeAllowance(budget), TimeAllowance(budget)
    for allowances, shared in (([one], False), ([one, other], True), ([one], False)):
        for _ in range(2 * SHARED_ROUNDS):
            budget.renew(0.0)
            for allowance in allowances:
                if does == "asks for something":
                    allowance.charge(now, now)
                else:
                    allowance.renew(now)
        assert budget.is_shared() is shared


def test_who_has_the_rounds_for_itself_may_use_again_what_may_be_used_at_once() -> None:
    budget, now = RoundBudget(), 1000.0
    allowance = TimeAllowance(budget)
    allowance.charge(now, now + 60)
    budget.number += SHARED_ROUNDS + 1
    allowance.renew(now)
    allowance.charge(now, now + ALLOWANCE_SECONDS * 0.9)
    assert not allowance.used_up(now)
    allowance.charge(now, now + ALLOWANCE_SECONDS * 0.2)
    assert allowance.used_up(now)
