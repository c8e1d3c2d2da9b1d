"""The task that goes on with postponed evaluations: when it takes the loop for an idle one."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares
from kiwi_gw.runtime.evaluator import Evaluator
from kiwi_gw.runtime.loop_rounds import count_as_busy, count_as_idle, counting_alike
from kiwi_gw.wakeup import Wakeup
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


async def told(resting: Resting | None = None) -> list[bool]:
    resting = Resting() if resting is None else resting
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Evaluator(resting).run)
        await resting.enough.wait()
        nursery.cancel_scope.cancel()
    return resting.told


async def test_a_loop_on_which_nothing_else_runs_is_idle(autojump_clock: MockClock) -> None:
    assert await told() == [False] + [True] * 19


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("for_queries", [False, True])
async def test_it_is_not_idle_behind_what_has_run_meanwhile(
    autojump_clock: MockClock, *, for_queries: bool, started: bool
) -> None:
    """Unless that is part of evaluating queries, or what such a task has started."""
    came = Wakeup()

    class Disturbed(Resting):
        def go_on(self, *, idle: bool) -> float | None:
            if idle:
                came.set()
            return super().go_on(idle=idle)

    async def disturb() -> None:
        while True:
            await came.wait()
            came.clear()

    async def run() -> None:
        if started:
            count_as_busy()  # it may change what it is, and so does what it has started
            with counting_alike():
                nursery.start_soon(disturb)
            await trio.testing.wait_all_tasks_blocked()
        if for_queries:
            count_as_idle()
        if not started:
            await disturb()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        expected = [False] + [True] * 19 if for_queries else [False, True] * 10
        assert await told(Disturbed()) == expected
        nursery.cancel_scope.cancel()


async def test_a_loop_that_is_busy_with_small_pieces_is_not_idle(mock_clock: MockClock) -> None:
    async def pieces() -> None:
        while True:
            mock_clock.jump(0.000_01)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pieces)
        assert not any(await told())
        nursery.cancel_scope.cancel()
