"""Whose turn it is to have its commands carried out, where clients send more than others can wait for.

Theory of operation. A round of the event loop runs every task that is ready, once. Whoever needs many rounds,
as a source may for what it fetches, is late by as many times what all connections do in one of them. So a
connection carries out what it was sent for `TURN_SECONDS`, and then waits; of those that wait one goes on in
each round, in the order in which they came. Nobody sleeps: a loop with nothing else to do carries out as much
as it ever could.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

TURN_SECONDS: Final = 0.00025
"""Some twenty requests for credit. A shorter one costs more rounds than it saves others time."""


class Turns:
    """Those that wait, the first of them first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[trio.Event] = deque()

    @property
    def crowded(self) -> bool:
        """Whether others wait, so that who comes now is to wait behind them."""
        return bool(self._waiting)

    async def wait(self) -> None:
        """Let others run; returns in a later round, when it is this one's turn."""
        mine, waiting = trio.Event(), self._waiting
        waiting.append(mine)
        try:
            if waiting[0] is mine:
                await trio.lowlevel.checkpoint()
            else:
                await mine.wait()  # until the one before it has had its turn, and a round more
        finally:
            first = waiting[0] is mine
            waiting.remove(mine)
            if first and waiting:
                waiting[0].set()
