"""Evaluating the queries of clients in turns, each within what it, its connection and all may use.

Theory of operation. A query is evaluated where its fragments are asked for, as long as there is time left in
this turn of the loop and on its accounts. Where it is not ready by then it is *postponed*: who asked
is behind, as one whose socket is full, and is woken when the fragments are there. What is postponed goes on,
a turn at a time, whenever `go_on` is called (by one task, between other tasks): of what may go on, whichever
has used least; and while nothing else waits for the loop, also what is overdrawn. Nothing is lost by
this: the cursor stays where it is, and if its event leaves the window meanwhile, that is the policy's matter.

What a postponed evaluation has made so far is kept with it, up to `MOST_HELD` bytes of all; beyond that the
evaluation whose query has used the most begins again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, Final, cast

from kiwi_gw.core.accounts import Account, AccountCache, OwnAccount, Payer, Pool
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Encoded, Steps, TimeSlice

if TYPE_CHECKING:
    from kiwi_gw.core.encoding import EncodingMemo
    from kiwi_gw.core.fanout import Group
    from kiwi_gw.core.feed import Feed
    from kiwi_gw.core.subscription import Subscription
    from kiwi_gw.core.window import Entry

TURN_SECONDS: Final = 0.002
"""How long one after the other is evaluated before others run."""

IDLE_SECONDS: Final = 0.001
"""The same, of what is overdrawn, while nothing else waits: something may come meanwhile."""

_QUERIES_KEPT: Final = 256
"""Accounts of queries that nobody asks for any more: each with its text."""

MOST_HELD: Final = 32 * 1024 * 1024
_DECODED: Final = 4
"""Times its own bytes: what is held of a batch that is being evaluated."""

_LITTLE_SECONDS: Final = 0.0005
"""Less than this is charged by the clock on the wall, which is quicker to read than the processor's."""

_LOOKED_AT: Final = 256
"""Of those not known to rest, so many are looked at in a turn to find the one that has used least."""

_LOOK_AGAIN_SECONDS: Final = 1.0
"""How soon it is looked again whether one still waits for others: they may have left, or paid for it."""

_BILL_SECONDS: Final = 0.002
"""Connections that share a query pay together when so much has come up."""

_BILLED: Final = 32
"""So many of them at a time, in turns: to charge all of ten thousand takes longer than what they pay for."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the time of the loop, while others wait: 0 to 1, 0 for no limit."""

    all: float = 0.25
    connection: float = 0.1
    query: float = 0.05


class Costs:
    """What the evaluations of one group have used. payers: the accounts of its connections, with the number
    of their subscriptions. jobs: what is postponed of it."""

    __slots__ = ("_modest", "jobs", "own", "payers", "rest_until", "unbilled")

    def __init__(self, own: Account) -> None:
        self.own = own
        self.payers: dict[OwnAccount, int] = {}
        self.jobs: dict[_Job, None] = {}
        self.unbilled = 0.0
        self.rest_until = 0.0
        self._modest = True

    def joined(self, payer: Payer | None) -> None:
        if payer is not None:
            self.payers[payer.account] = self.payers.get(payer.account, 0) + 1

    def left(self, payer: Payer | None) -> None:
        if payer is not None:
            self.payers[payer.account] -= 1
            if not self.payers[payer.account]:
                del self.payers[payer.account]

    def charge(self, seconds: float, now: float) -> None:
        self.own.charge(seconds, now)
        self.unbilled += seconds
        if self.payers and (self.unbilled >= _BILL_SECONDS or len(self.payers) == 1):
            billed = list(islice(self.payers, _BILLED))
            share, self.unbilled = self.unbilled / len(billed), 0.0
            for payer in billed:
                payer.charge(share, now)
            self._modest = any(payer.modest(now) for payer in billed)
            self.rest_until = now
            if len(billed) == len(self.payers):
                self.rest_until += min(payer.rests(now) for payer in billed)
            else:  # of so many one has something left; the next ones pay next
                for payer in billed:
                    self.payers[payer] = self.payers.pop(payer)

    def modest(self, now: float) -> bool:
        """Say whether one of its connections uses little."""
        if len(self.payers) == 1:
            (payer,) = self.payers
            return payer.modest(now)
        return self._modest

    def rests(self, now: float) -> float:
        """Return the seconds until it may be evaluated again; 0: now."""
        if len(self.payers) == 1:
            (payer,) = self.payers
            return max(self.own.rests(now), payer.rests(now))
        return max(self.own.rests(now), self.rest_until - now, 0.0)


@dataclass(slots=True, eq=False)
class _Job:
    """One entry for one group. steps: None if it has not begun."""

    feed: Feed
    entry: Entry
    group: Group
    costs: Costs
    steps: Steps[Encoded] | None = None
    turn: TimeSlice = field(default_factory=TimeSlice)
    held: int = 0


class Evaluations:
    """See the top of this file. clock: monotonic seconds; cpu: seconds of the processor, of this thread.

    woken: called when there is something to do for `go_on`.
    """

    def __init__(
        self,
        shares: Shares,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.shares = shares
        self.all = Pool(shares.all)
        self._kept: AccountCache[Account] = AccountCache(_QUERIES_KEPT)
        self.woken: Callable[[], None] = lambda: None
        self.seconds = 0.0
        self.postponed = 0
        self._clock = clock
        self._cpu = cpu
        self._cpu_at = cpu()
        self._turn_used = 0.0
        self._jobs: dict[_Job, None] = {}  # all, in the order of their turns
        self._ready: dict[_Job, None] = {}  # those that are not known to rest
        self._resting: list[tuple[float, int, _Job]] = []  # a heap of the others: until when; some are gone
        self._numbers = count()
        self._by_entry: dict[Entry, dict[Group, _Job]] = {}
        self._held = 0
        self._to_wake: deque[Subscription] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def costs(self, source_id: str, key: Hashable) -> Costs:
        """Begin those of a new group of a source, with what is left of a wire key that was there before."""
        return Costs(self._kept.take((source_id, key), self._clock()) or Account(self.shares.query))

    def turned(self) -> None:
        """Begin another turn: others have had theirs."""
        self._turn_used = 0.0
        self._cpu_at = self._cpu()

    def encoded(
        self, memo: EncodingMemo, feed: Feed, entry: Entry, group: Group, *, keep: bool, wait: bool
    ) -> Encoded | None:
        """Return the fragments of an entry; None: not yet. wait: those who are parked in the entry are woken
        then; else only what is kept is looked at.

        Raises EncodingFailed.
        """
        found = memo.found(entry, group.wire)
        if found is not None:
            return found
        if not wait or self.awaited(entry, group):
            return None
        costs = group.costs
        assert costs is not None  # noqa: S101  who asks here has a query
        job = _Job(feed, entry, group, costs)
        now = self._clock()
        if self._turn_used < TURN_SECONDS and not self._rests(costs, now):
            made = self._run(memo, job, now + TURN_SECONDS - self._turn_used)
            if made is not None:
                if keep:
                    memo.keep(entry, group.wire, made)
                return made
        self.postponed += 1
        self._jobs[job] = self._ready[job] = costs.jobs[job] = None
        self._by_entry.setdefault(entry, {})[group] = job
        self._hold(job, now)
        self.woken()
        return None

    def awaited(self, entry: Entry, group: Group) -> bool:
        """Say whether it is postponed."""
        return group in self._by_entry.get(entry, ())

    def forget(self, entry: Entry) -> None:
        """Drop an entry that has left the window. Whoever waited there has to see to that."""
        jobs = list(self._by_entry.get(entry, {}).values())
        for job in jobs:
            self._to_wake.extend(_waiting(job))
            self._drop(job)
        if jobs:
            self.woken()

    def emptied(self, source_id: str, group: Group) -> None:
        """Drop what is postponed for a group that nobody is in any more."""
        if group.costs is not None:
            self._kept.keep((source_id, group.wire.key), group.costs.own, self._clock())
            for job in list(group.costs.jobs):
                self._drop(job)

    def go_on(self, *, idle: bool) -> float | None:
        """Do a turn's work. Returns in how many seconds there is more to do, None if there is nothing.

        idle: nothing else has waited for the loop since this was last called.
        """
        self.turned()
        until = self._clock() + TURN_SECONDS
        while self._to_wake:
            subscription = self._to_wake.popleft()
            if not subscription.closed:
                subscription.outlet.wake(subscription)
            if self._clock() >= until:
                return 0.0
        if not self._jobs:
            self._resting.clear()
            return None
        now = self._clock()
        job, rest = self._next(now)
        if job is not None:
            self._go_on(job, until)
        elif idle:
            self._go_on(next(iter(self._jobs)), now + IDLE_SECONDS, charged=False)
        else:
            return rest
        return 0.0

    def _rests(self, costs: Costs, now: float) -> float:
        return costs.rests(now) or self.all.rests(now, modest=costs.modest(now))

    def _next(self, now: float) -> tuple[_Job | None, float]:
        """Find what may go on now, or how long it is until something may."""
        least = self.all.rests(now, modest=True)
        if least:
            return None, least
        for _ in range(_LOOKED_AT):
            if not self._resting or self._resting[0][0] > now:
                break
            job = heappop(self._resting)[2]
            if job in self._jobs:
                self._ready[job] = None
        found, most = None, (False, -inf)
        for job in list(islice(self._ready, _LOOKED_AT)):
            rest = self._rests(job.costs, now)
            if rest:
                del self._ready[job]
                rest = max(job.costs.own.rests(now), min(rest, _LOOK_AGAIN_SECONDS))
                heappush(self._resting, (now + rest, next(self._numbers), job))
            elif (little := (job.costs.modest(now), job.costs.own.left(now))) > most:
                found, most = job, little
        if found is not None or self._ready:
            return found, 0.0
        return None, max(self._resting[0][0] - now, 0.0)

    def _go_on(self, job: _Job, until: float, *, charged: bool = True) -> None:
        memo = job.feed.memo
        waiting = _waiting(job)
        if not waiting:  # they have gone on, or are gone
            self._drop(job)
            return
        try:
            made = self._run(memo, job, until, charged=charged)
        except EncodingFailed as error:
            self._drop(job)
            job.feed.group_failed(job.group, str(error))
            return
        if made is None:
            if job in self._jobs:
                for jobs in (self._jobs, self._ready):
                    if jobs.pop(job, job) is None:
                        jobs[job] = None  # others first
                self._hold(job, self._clock())
            return
        self._drop(job)
        memo.keep(job.entry, job.group.wire, made)
        self._to_wake.extend(waiting)

    def _run(self, memo: EncodingMemo, job: _Job, until: float, *, charged: bool = True) -> Encoded | None:
        """Evaluate until then. charged: what that has used; not where nobody else wanted the time."""
        if job.steps is None:
            job.turn = TimeSlice(until, self._clock)
            job.steps = memo.steps(job.entry, job.group.wire, job.turn)
        job.turn.until = until
        began = self._clock()
        modest = job.costs.modest(began)
        try:
            next(job.steps)
        except StopIteration as done:
            made: Encoded = done.value
            return made
        finally:
            now = self._clock()
            used = now - began
            if used > _LITTLE_SECONDS:
                cpu = self._cpu()
                used, self._cpu_at = min(used, cpu - self._cpu_at), cpu
            self._turn_used += used
            self.seconds += used
            if charged:
                self.all.charge(used, now, modest=modest)
                job.costs.charge(used, now)
        return None

    def _hold(self, job: _Job, now: float) -> None:
        """Keep what it has made so far, if there is room for that."""
        self._let_go(job)
        if job.steps is not None:
            job.held = job.turn.held + _DECODED * job.entry.batch.cost
            self._held += job.held
        while self._held > MOST_HELD:
            begun = [item for item in self._jobs if item.steps is not None]
            if len(begun) < 2:
                return
            worst = min(begun, key=lambda item: item.costs.own.left(now))
            self._let_go(worst)
            worst.steps = None

    def _let_go(self, job: _Job) -> None:
        self._held -= job.held
        job.held = 0

    def _drop(self, job: _Job) -> None:
        self._let_go(job)
        job.steps = None
        self._ready.pop(job, None)
        if self._jobs.pop(job, job) is None:
            del job.costs.jobs[job]
            jobs = self._by_entry[job.entry]
            del jobs[job.group]
            if not jobs:
                del self._by_entry[job.entry]


def _waiting(job: _Job) -> list[Subscription]:
    parked = cast("dict[Subscription, None]", job.entry.parked)
    return [item for item in parked if item.group is job.group]
