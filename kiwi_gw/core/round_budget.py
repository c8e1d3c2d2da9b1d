"""What work that can wait may take of one round of the event loop, all of it together.

Theory of operation. A record needs several rounds of the loop on its way to its readers, so it is late by
several times what a round takes. Evaluating queries, carrying out the commands of clients that send many, and
going on with a query that was read elsewhere each take a slice of a round; where clients ask for all of it at
once, a round would take the sum. So they share one budget, and what finds it used up goes on in a later
round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

ROUND_SECONDS: Final = 0.00025
"""Of each round. Measured with 10 attackers (`benchmarks attackers`): 1 ms makes records 20 % later. With
twice as much the p99 of a lone publisher is 1.5 ms beside eight scans (`benchmarks beside`), with this
1.3."""

LIGHT_USER_SECONDS: Final = 0.002
"""Of each round besides, for the queries of those who use little (`accounts.ClientAccount.light_user`): to
postpone a hundred small ones costs more than to evaluate them."""

ROUND_SHARE: Final = 0.2
"""Of the rest of the last round, where that is more: long rounds are few."""

MOST_OWED_SECONDS: Final = 0.005
"""That much of a piece of work that took too long comes off the next rounds."""

SHARED_ROUNDS: Final = 1_000
"""For so many behind one in which somebody else was served the rounds are taken to be shared: where the loop
is busy they take 0.03 s or more."""

_LITTLE_SECONDS: Final = 0.0005
"""Less than this is charged by the clock on the wall, which is quicker to read than the processor's."""


class RoundBudget:
    """Hold what is left of a round, and know whether more than one has part in the rounds.

    left: seconds of this round. Below 0: a piece of work took longer than was left; that comes off the next
    rounds. given: what was left when it began. light_left: the same for those who use little, and without
    consequences. number: of this round. shared_in: the last one in which another was served than the time
    before. cpu: seconds of the processor, of this thread.
    """

    __slots__ = ("_cpu", "_cpu_at", "_served", "given", "left", "light_left", "number", "shared_in")

    def __init__(self, cpu: Callable[[], float] = time.thread_time) -> None:
        self.number = self.shared_in = 0
        self._served: object = None
        self.left = self.given = ROUND_SECONDS
        self.light_left = LIGHT_USER_SECONDS
        self._cpu = cpu
        self._cpu_at = cpu()

    def is_used_up(self) -> bool:
        """Say whether nothing may begin any more in this round."""
        return self.left <= 0 and self.light_left <= 0

    def serve(self, who: object) -> None:
        """Note that something is done for somebody: commands, a request, or events that are sent."""
        if who is not self._served:
            self._served, self.shared_in = who, self.number

    def is_shared(self) -> bool:
        """Say whether more than one had something done for it lately."""
        return self.number - self.shared_in <= SHARED_ROUNDS

    def charge(self, began: float, now: float, *, light_user: bool = False) -> float:
        """Take off a piece of work between two times of the clock. Returns its seconds of the processor."""
        used = now - began
        if used > _LITTLE_SECONDS:
            cpu = self._cpu()
            used, self._cpu_at = min(used, cpu - self._cpu_at), cpu
        if light_user:
            self.light_left -= used
        else:
            self.left -= used
        return used

    def renew(self, seconds: float) -> None:
        """Begin another round. seconds: what the last one took."""
        self.number += 1
        rest = seconds - (self.given - self.left)
        owed = max(min(self.left, 0.0), -MOST_OWED_SECONDS)
        self.left = self.given = max(ROUND_SECONDS, rest * ROUND_SHARE) + owed
        self.light_left = LIGHT_USER_SECONDS
        self._cpu_at = self._cpu()
