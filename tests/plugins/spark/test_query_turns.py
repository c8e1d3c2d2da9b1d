"""How many queries of clients run, and how many wait."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import SourceFailed
from kiwi_spark.gateway.query_turns import RUNNING, TOO_MANY, WAITING, QueryTurns


async def test_two_run_and_eight_wait_in_their_order_and_no_more() -> None:
    turns = QueryTurns()
    took: list[int] = []

    async def take(number: int) -> None:
        await turns.take(number)
        took.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(RUNNING + WAITING):
            nursery.start_soon(take, number)
            await wait_all_tasks_blocked()
        assert (turns.running, turns.waiting, took) == (2, 8, [0, 1])
        with pytest.raises(SourceFailed, match=TOO_MANY):
            await turns.take(99)
        for number in range(WAITING):
            turns.give_back(number)
            await wait_all_tasks_blocked()
            assert took[-1] == number + RUNNING
    assert took == list(range(RUNNING + WAITING))


async def test_a_turn_is_given_back_once_and_one_that_was_not_taken_never() -> None:
    turns = QueryTurns()
    await turns.take(1)
    turns.give_back(2)
    assert turns.running == 1
    turns.give_back(1)
    turns.give_back(1)
    assert turns.running == 0


async def test_who_goes_away_while_it_waits_is_forgotten() -> None:
    turns = QueryTurns()
    await turns.take(1)
    await turns.take(2)
    with trio.CancelScope() as gone:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.take, 3)
            await wait_all_tasks_blocked()
            gone.cancel()
    assert (turns.running, turns.waiting) == (2, 0)
    turns.give_back(1)
    assert turns.running == 1
