"""The task that goes on with the evaluations that were postponed, between everybody else's turns."""

from __future__ import annotations

from typing import Final
from weakref import WeakSet

import trio

from kiwi_gw.core.evaluation import Evaluations

IDLE_SECONDS: Final = 0.001
"""A loop on which nothing else runs for so long is idle."""

LOOK_SECONDS: Final = 0.01
"""How often it is found out whether it is, while something is overdrawn."""


class Evaluator:
    """`run` is its life."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations
        self._woken = trio.Event()
        evaluations.woken = self._wake

    async def run(self) -> None:
        """Go on with what is postponed, until cancelled."""
        idle = False
        while True:
            # Whoever became ready during the first has run after the second.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            self._woken = trio.Event()
            wait = self._evaluations.go_on(idle=idle)
            if wait == 0 and not idle:
                works()
            idle = False
            if wait is None:
                await self._woken.wait()
            elif wait:
                idle = await is_idle(min(wait, IDLE_SECONDS))
                if not idle:
                    await trio.sleep(min(wait, LOOK_SECONDS))

    def _wake(self) -> None:
        self._woken.set()


_lookers: Final[WeakSet[trio.lowlevel.Task]] = WeakSet()


def works() -> None:
    """Have the loop count as busy with this task, until that looks again whether it is idle."""
    _lookers.discard(trio.lowlevel.current_task())


class _Others(trio.abc.Instrument):
    """Whether any task has run, but for those that look as this one does: each would keep the others from
    what it waits for itself."""

    def __init__(self) -> None:
        self.ran = False
        _lookers.add(trio.lowlevel.current_task())

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.ran = self.ran or task not in _lookers


async def is_idle(seconds: float) -> bool:
    """Wait for so long. Returns whether nothing else ran meanwhile, however short."""
    others = _Others()
    trio.lowlevel.add_instrument(others)
    try:
        await trio.sleep(seconds)
    finally:
        trio.lowlevel.remove_instrument(others)
    return not others.ran
