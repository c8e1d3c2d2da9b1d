"""Whose turn it is to have its commands carried out, where clients send more than others can wait for.

Theory of operation. A round of the event loop runs every task that is ready, once. Whoever needs many rounds,
as a source may for what it fetches, is late by as many times what all connections do in one of them. So a
connection has an allowance: what it may use at once, which fills up by a small share of the time. A client
that asks for little stays within it and waits for nobody. One that has used it up waits for a turn, and has a
new allowance then. In each round as many of those that wait go on, in the order in which they came, as fit
into a share of what a round takes, and always one. Nobody sleeps: a loop with nothing else to do carries out
as much as it ever could.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

TURN_SECONDS: Final = 0.00025
"""Some twenty requests for credit. A shorter one costs more rounds than it saves others time."""

OWN_SHARE: Final = 0.001
"""Of the time, without waiting for a turn: some eighty requests for credit a second."""

ROUND_SHARE: Final = 0.2
"""Of a round, for those that wait: one of 5 ms, which sending a batch may take, has four turns."""


class TimeAllowance:
    """What one connection may use before it waits for a turn. Times in monotonic seconds."""

    __slots__ = ("_full_at",)

    def __init__(self) -> None:
        self._full_at = 0.0

    def charge(self, began: float, now: float) -> None:
        """Take off the time between them."""
        self._full_at = max(self._full_at, began) + (now - began) / OWN_SHARE

    def used_up(self, now: float) -> bool:
        """Say whether it has to wait for a turn."""
        return self._full_at - now >= TURN_SECONDS / OWN_SHARE

    def renew(self) -> None:
        """Fill it up: the connection has waited for its turn."""
        self._full_at = 0.0


class CommandScheduler:
    """Lets connections that have used up their allowance go on, the first of them first."""

    __slots__ = ("_clock", "_going_on", "_waiting", "_woke_at")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting: deque[trio.Event] = deque()
        self._going_on = 0  # those woken who have not run yet
        self._clock = clock
        self._woke_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + self._going_on

    async def wait(self) -> None:
        """Let others run; returns in a later round, when it is this one's turn."""
        mine = trio.Event()
        self._waiting.append(mine)
        if not self._going_on:
            self._wake()
        try:
            await mine.wait()
        finally:
            if not mine.is_set():
                self._waiting.remove(mine)
            else:
                self._going_on -= 1
                if not self._going_on:
                    self._wake()

    def _wake(self) -> None:
        """Have the next ones go on, in the next round."""
        now = self._clock()
        fit = int((now - self._woke_at) * ROUND_SHARE / TURN_SECONDS)
        self._woke_at = now
        self._going_on = min(max(fit, 1), len(self._waiting))
        for _ in range(self._going_on):
            self._waiting.popleft().set()
