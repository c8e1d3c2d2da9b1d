"""The task that goes on with the evaluations that were postponed, between everybody else's turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
import trio

from kiwi_gw.core.evaluation import Evaluations

log = structlog.get_logger(__name__)

IDLE_SECONDS: Final = 0.000_5
"""A loop that is round twice within this time has nothing else to do."""

LOOK_SECONDS: Final = 0.01
"""How often it is found out whether the loop is idle, while something is overdrawn."""


class Evaluator:
    """`run` is its life. clock: monotonic seconds."""

    def __init__(self, evaluations: Evaluations, clock: Callable[[], float] = trio.current_time) -> None:
        self._evaluations = evaluations
        self._clock = clock
        self._woken = trio.Event()
        evaluations.woken = self._wake

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            idle = await self._idle()
            self._woken = trio.Event()
            wait = self._evaluations.go_on(idle=idle)
            if wait is None:
                await self._woken.wait()
            elif wait:
                await trio.sleep(min(wait, LOOK_SECONDS))

    def _wake(self) -> None:
        self._woken.set()

    async def _idle(self) -> bool:
        """Let everybody else have a turn. Whether they took no time for it."""
        began = self._clock()
        # Whoever became ready during the first has run after the second.
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        return self._clock() - began < IDLE_SECONDS
