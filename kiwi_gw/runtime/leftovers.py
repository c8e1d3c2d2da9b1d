"""What clients have left to do of what they asked for, a little in each round of the event loop.

Theory of operation. Who may go on does so in the order in which it asked, until `TURN_SECONDS` are over; the
others in a later round. Who has used up its share rests; but while nothing else wants the loop, the one that
would rest the shortest goes on all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

import trio

from kiwi_gw.runtime.evaluator import IDLE_SECONDS, LOOK_SECONDS, is_idle, works

TURN_SECONDS: Final = 0.0005
"""The last one that begins within it may take longer. Many only find that others have used up their time."""

Then = Callable[[bool], None]


class Leftovers:
    """`run` is its life. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: deque[Then] = deque()
        self._resting: list[tuple[float, int, Then]] = []  # a heap: until when
        self._numbers = count()
        self._woken = trio.Event()

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
            self._woken = trio.Event()
            now = self._clock()
            while self._resting and self._resting[0][0] <= now:
                self._ready.append(heappop(self._resting)[2])
            if self._ready:
                works()
                while self._ready and self._clock() < now + TURN_SECONDS:
                    self._ready.popleft()(False)
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
