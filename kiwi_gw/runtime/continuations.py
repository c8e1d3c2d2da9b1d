"""What clients have left to do of what they asked for, a little in each round of the event loop.

Theory of operation. Who may go on does so in the order in which it asked, as long as something is left of the
budget of the round; the others in a later one. Who has used up its share rests; but while nothing else wants
the loop, the one that would rest the shortest goes on all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import trio

from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.runtime.loop_rounds import IDLE_SECONDS, LOOK_SECONDS, count_as_busy, is_idle
from kiwi_gw.wakeup import Wakeup

Then = Callable[[bool], None]


class Continuations:
    """`run` is its life. clock: monotonic seconds."""

    def __init__(self, round_budget: RoundBudget, clock: Callable[[], float]) -> None:
        self._round = round_budget
        self._clock = clock
        self._ready: deque[Then] = deque()
        self._resting: list[tuple[float, int, Then]] = []  # a heap: until when
        self._numbers = count()
        self._woken = Wakeup()

    def wants_rounds(self) -> bool:
        """Say whether any may go on."""
        return bool(self._ready)

    def add(self, seconds: float, then: Then) -> None:
        """Call `then` once, with False after so many seconds, or with True before that if nothing else wants
        the loop. It must not raise."""
        if seconds > 0:
            heappush(self._resting, (self._clock() + seconds, next(self._numbers), then))
        else:
            self._ready.append(then)
        self._woken.set()

    async def run(self) -> None:
        """Have them go on, until cancelled."""
        while True:
            # Whoever became ready during the first has run after the second.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            self._woken.clear()
            now = self._clock()
            while self._resting and self._resting[0][0] <= now:
                self._ready.append(heappop(self._resting)[2])
            if self._ready:
                count_as_busy()
                while self._ready and self._round.left > 0:
                    began = self._clock()
                    self._ready.popleft()(False)
                    self._round.charge(began, self._clock())
            elif not self._resting:
                await self._woken.wait()
            else:
                await self._rest(self._resting[0][0] - now)

    async def _rest(self, seconds: float) -> None:
        """Wait until one may go on, or have it go on if the loop is idle."""
        if await is_idle(min(seconds, IDLE_SECONDS)):
            heappop(self._resting)[2](True)
        else:
            with trio.move_on_after(min(seconds, LOOK_SECONDS)):
                await self._woken.wait()
