"""Whose turn it is among the queries of clients: a few run at a time, in the order in which they came."""

from __future__ import annotations

from typing import Final

import trio

from kiwi_gw.api import SourceFailed

RUNNING: Final = 2
"""Queries that run at a time."""

WAITING: Final = 8
"""Queries that wait for their turns; those that come then are turned away."""

TOO_MANY: Final = "too many queries are waiting; try again"
"""What they are told."""


class QueryTurns:
    """The turns, by the numbers of runs."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(RUNNING)
        self._taken: set[int] = set()

    @property
    def running(self) -> int:
        """Return how many have their turns now."""
        return len(self._taken)

    @property
    def waiting(self) -> int:
        """Return how many wait for theirs."""
        return self._limiter.statistics().tasks_waiting

    async def take(self, number: int) -> None:
        """Wait for a turn. SourceFailed: too many do."""
        if self.waiting >= WAITING:
            raise SourceFailed(TOO_MANY)
        await self._limiter.acquire_on_behalf_of(number)
        self._taken.add(number)

    def give_back(self, number: int) -> None:
        """Let another have it, if it was taken and not given back."""
        if number in self._taken:
            self._taken.remove(number)
            self._limiter.release_on_behalf_of(number)
