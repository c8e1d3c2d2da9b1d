"""The task that goes on with the evaluations that were postponed, between everybody else's turns."""

from __future__ import annotations

import trio

from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.runtime.loop_rounds import IDLE_SECONDS, LOOK_SECONDS, count_as_busy, is_idle, let_others_run
from kiwi_gw.wakeup import Wakeup


class Evaluator:
    """`run` is its life."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations
        self._woken = Wakeup()
        evaluations.woken = self._woken.set

    async def run(self) -> None:
        """Go on with what is postponed, until cancelled."""
        idle, look = False, IDLE_SECONDS
        while True:
            if idle:  # and then it still is, if nobody has become ready meanwhile
                idle = await let_others_run()
            else:
                # Whoever became ready during the first has run after the second.
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            self._woken.clear()
            wait = self._evaluations.go_on(idle=idle)
            if wait == 0:
                if not idle:
                    count_as_busy()
                continue
            idle = False
            if wait is None:
                await self._woken.wait()
            else:
                idle = await is_idle(min(wait, IDLE_SECONDS))
                if idle:
                    look = IDLE_SECONDS
                else:
                    await trio.sleep(min(wait, look))
                    look = min(2 * look, LOOK_SECONDS)
