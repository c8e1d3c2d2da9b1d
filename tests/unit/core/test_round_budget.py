"""What work that can wait may take of one round of the event loop."""

from __future__ import annotations

import pytest

from kiwi_gw.core.round_budget import (
    MOST_OWED_SECONDS,
    ROUND_SECONDS,
    ROUND_SHARE,
    SHARED_ROUNDS,
    RoundBudget,
)


class Processor:
    """Hold the clock of the processor."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def processor() -> Processor:
    return Processor()


@pytest.fixture
def budget(processor: Processor) -> RoundBudget:
    return RoundBudget(processor)


def test_what_is_left_of_a_round_is_gone_with_it(budget: RoundBudget) -> None:
    assert budget.charge(1.0, 1.0 + ROUND_SECONDS / 4) == pytest.approx(ROUND_SECONDS / 4)
    assert budget.left == pytest.approx(ROUND_SECONDS * 3 / 4)
    budget.renew(ROUND_SECONDS / 4)
    assert budget.left == ROUND_SECONDS


def test_what_took_longer_than_was_left_comes_off_the_next_rounds(
    budget: RoundBudget, processor: Processor
) -> None:
    processor.now = 2.5 * ROUND_SECONDS
    budget.charge(0.0, 2.5 * ROUND_SECONDS)
    left = []
    for took in (2.5 * ROUND_SECONDS, 0.0, 0.0):
        left.append(budget.left / ROUND_SECONDS)
        budget.renew(took)
    assert left == pytest.approx([-1.5, -0.5, 0.5])
    assert budget.left == ROUND_SECONDS


def test_what_is_owed_has_an_end(budget: RoundBudget, processor: Processor) -> None:
    processor.now = 60.0
    budget.charge(0.0, 60.0)
    budget.renew(60.0)
    assert budget.left == pytest.approx(ROUND_SECONDS - MOST_OWED_SECONDS)


def test_a_long_round_gives_a_share_of_what_it_did_besides(budget: RoundBudget) -> None:
    budget.charge(0.0, ROUND_SECONDS)
    budget.renew(1.0 + ROUND_SECONDS)
    assert budget.left == pytest.approx(ROUND_SHARE)


def test_what_others_had_of_the_processor_meanwhile_is_not_charged(
    budget: RoundBudget, processor: Processor
) -> None:
    processor.now = 10.0
    budget.renew(0.0)
    processor.now += 0.001
    assert budget.charge(5.0, 5.5) == pytest.approx(0.001)


def test_rounds_are_shared_for_a_while_behind_one_in_which_somebody_else_was_served(
    budget: RoundBudget,
) -> None:
    one, other = object(), object()

    def shared_for() -> int:
        rounds = 0
        while budget.is_shared():
            budget.serve(one)
            budget.renew(0.0)
            rounds += 1
        return rounds

    budget.serve(one)
    assert shared_for() == SHARED_ROUNDS + 1
    budget.serve(one)
    assert not budget.is_shared()
    budget.serve(other)
    assert shared_for() == SHARED_ROUNDS + 1
