"""What the rounds of the event loop tell."""

from __future__ import annotations

import trio
import trio.testing

from kiwi_gw.core.round_budget import ROUND_SECONDS, RoundBudget
from kiwi_gw.runtime.loop_rounds import renew_in_each_round


async def test_each_round_has_its_budget() -> None:
    budget = RoundBudget(lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(renew_in_each_round, budget)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            budget.left = 0.0
            await trio.lowlevel.checkpoint()
            assert budget.left >= ROUND_SECONDS
        nursery.cancel_scope.cancel()
    budget.left = 0.0
    await trio.lowlevel.checkpoint()
    assert budget.left == 0.0, "no longer"
