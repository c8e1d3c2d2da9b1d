from __future__ import annotations

import itertools

import pytest

from kiwi_spark.states import TABLE, WORKS, Input, State, move


@pytest.mark.parametrize(("state", "item"), list(itertools.product(State, Input)))
def test_every_pair(state: State, item: Input) -> None:
    if (state, item) in TABLE:
        assert move(state, item) is TABLE[state, item]
    else:
        with pytest.raises(RuntimeError, match=f"a driver that is {state.value} cannot take '{item.value}'"):
            move(state, item)


def test_a_driver_that_lives_can_die_and_one_that_failed_stays_so() -> None:
    for state in (State.STARTING, *WORKS):
        assert move(state, Input.DIED) is State.BACKOFF
    assert not any(state is State.FAILED for state, _ in TABLE)


def test_every_state_can_come_about() -> None:
    reached = {State.STARTING}
    while more := {TABLE[pair] for pair in TABLE if pair[0] in reached} - reached:
        reached |= more
    assert reached == set(State)
