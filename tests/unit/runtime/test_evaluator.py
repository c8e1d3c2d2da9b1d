"""The task that goes on with postponed evaluations: when it takes the loop for an idle one."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares
from kiwi_gw.runtime.evaluator import Evaluator
from tests.unit.runtime.fakes import endless_round


class Resting(Evaluations):
    """Something is overdrawn for ever; notes what it is told of the loop."""

    def __init__(self) -> None:
        super().__init__(CpuShares(), endless_round())
        self.told: list[bool] = []
        self.enough = trio.Event()

    def go_on(self, *, idle: bool) -> float | None:
        self.told.append(idle)
        if len(self.told) == 20:
            self.enough.set()
        return 0.0 if idle else 100.0


async def told() -> list[bool]:
    resting = Resting()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Evaluator(resting).run)
        await resting.enough.wait()
        nursery.cancel_scope.cancel()
    return resting.told


async def test_a_loop_on_which_nothing_else_runs_is_idle(autojump_clock: MockClock) -> None:
    assert await told() == [False, True] * 10


async def test_a_loop_that_is_busy_with_small_pieces_is_not_idle(mock_clock: MockClock) -> None:
    async def pieces() -> None:
        while True:
            mock_clock.jump(0.000_01)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pieces)
        assert not any(await told())
        nursery.cancel_scope.cancel()
