"""How long a batch is sent to its readers before others have their turn, and how many rounds they have then.

Theory of operation. A record that a client writes takes several rounds of the event loop until it is
answered, and each of them waits while a batch is sent to many. So batches give way more often, and for
several rounds, as long as clients write, unless they write very many: those are handed over together, and
wait for each other.

What those rounds take makes a batch late, so it is bounded: by an account of the processor's time, and they
are not given while something waits that would use them up, as queries do, and the commands of clients that
send without end. A batch is sent as is configured then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, Protocol

import trio

from kiwi_gw.core.accounts import Account
from kiwi_gw.core.round_budget import RoundBudget

WRITING_SECONDS: Final = 0.25
"""For so long after a record clients are taken to write."""

MANY_RECORDS: Final = 10_000
"""A second: who writes more gains nothing. A lone publisher that waits for each answer writes up to 3,000.
Beside producers that write 90,000 (`benchmarks rest-beside`) the p99 of subscribers is 16 ms with this bound,
29 ms without."""

SHORT_SLICE_SECONDS: Final = 0.0002
"""Measured beside 200 records/s to 100 clients (`benchmarks beside-fan-out`): the p99 of a lone publisher is
two thirds of what it is without, beside 50 records/s half; with 1 ms it is as without. Each delivery is 5 %
dearer."""

ROUNDS: Final = 3
"""That a record needs on its way to its source, and its answer on the way back. With one the same p99 is 1.3
times as long."""

SHARE: Final = 0.2
"""Of all time: what these rounds may take of the processor, for whatever is done in them. A lone publisher
beside 200 records/s to 100 clients makes it 13 %, in bursts: with half as much saved, 0.2 was used up 7
times in 100. Eight clients that write over HTTP, one record in each request, take all of it: the p99 of
subscribers beside them is 30 ms with 0.2, 41 with 0.35, 22 without these rounds, and that publisher's 10.1,
9.8 and 10.6 (8 to 17 runs each, on a slow machine)."""

SAVED_SECONDS: Final = 0.03
"""What flows in within this time may be used at once: it is 6 ms that a batch may be late by."""


class Contender(Protocol):
    """Has clients wait for the rounds of the event loop, and gives them something of each."""

    def wants_rounds(self) -> bool:
        """Say whether something waits for one."""


class FanOutPace:
    """clock: monotonic seconds. cpu: seconds of the processor, of this thread."""

    __slots__ = ("_account", "_clock", "_contenders", "_cpu", "_records", "_round", "_writing_until")

    def __init__(
        self,
        clock: Callable[[], float],
        round_budget: RoundBudget,
        *contenders: Contender,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._cpu, self._contenders = clock, cpu, contenders
        self._round = round_budget
        self._account = Account(SHARE, SAVED_SECONDS)
        self._records = Account(MANY_RECORDS, WRITING_SECONDS)  # of records, not of seconds
        self._writing_until = -math.inf

    def records_written(self, count: int) -> None:
        """Note that clients write so many records."""
        now = self._clock()
        self._records.charge(count, now)
        if self._records.left(now) > 0:
            self._writing_until = now + WRITING_SECONDS

    def serves_writers(self) -> bool:
        """Say whether clients write now, not very many records, and nothing would take their rounds."""
        if self._clock() >= self._writing_until:
            return False
        return not any(contender.wants_rounds() for contender in self._contenders)

    def serves_readers(self) -> None:
        """Note that a batch is sent to some."""
        self._round.serve(self)

    def slice_seconds(self, most: float) -> float:
        """Return for how long a batch may be sent now. most: what is configured."""
        return min(most, SHORT_SLICE_SECONDS) if self._gives_way_often() else most

    async def give_way(self) -> None:
        """Let others have their turn."""
        if not self._gives_way_often():
            await trio.lowlevel.checkpoint()
            return
        for _ in range(ROUNDS):
            began = self._cpu()
            await trio.lowlevel.checkpoint()
            self._account.charge(self._cpu() - began, self._clock())
            if not self._gives_way_often():
                break

    def _gives_way_often(self) -> bool:
        return self.serves_writers() and self._account.left(self._clock()) > 0
