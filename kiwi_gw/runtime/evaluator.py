"""The task that goes on with the evaluations that were postponed, between everybody else's turns."""

from __future__ import annotations

import trio

from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.runtime.loop_rounds import IDLE_SECONDS, LOOK_SECONDS, is_idle, works


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
