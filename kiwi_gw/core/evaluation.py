"""Evaluating the queries of clients in turns, each within what it, its connection and all may use.

Theory of operation. A query is evaluated where its fragments are asked for, as long as there is time left of
this round of the loop and on its accounts. Where it is not ready by then it is *postponed*: who asked
is behind, as one whose socket is full, and is woken when the fragments are there. What is postponed goes on,
a turn at a time, whenever `go_on` is called (by one task, between other tasks): of what may go on, whichever
has used least; and while nothing else waits for the loop, also what is overdrawn. Nothing is lost by
this: the cursor stays where it is, and if its event leaves the window meanwhile, that is the policy's matter.

What a postponed evaluation has made so far is kept with it, up to `MOST_HELD` bytes of all; beyond that the
evaluation whose query has used the most begins again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any, Final, Protocol, cast

from kiwi_gw.core.accounts import Account, AccountCache, SharedAccount
from kiwi_gw.core.evaluation_costs import CpuShares, EvaluationCosts
from kiwi_gw.core.round_budget import ROUND_SECONDS, RoundBudget
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Encoded, Steps, TimeSlice

FIRST_IDLE_SECONDS: Final = 0.00025
IDLE_SECONDS: Final = 0.001
IDLE_SHARE: Final = 1 / 10
"""How long what is overdrawn is evaluated at once while nothing else waits, for something may come meanwhile:
this share of the time since something came, at most so long, and not before it is as long as the first. So
what comes each two milliseconds, as at everyday rates, does not wait for it."""

_QUERIES_KEPT: Final = 256
"""Accounts of queries that nobody asks for any more: each with its text."""

MOST_HELD: Final = 32 * 1024 * 1024
_DECODED: Final = 4
"""Times its own bytes: what is held of a batch that is being evaluated."""

_LOOKED_AT: Final = 256
"""Of those not known to rest, so many are looked at in a turn to find the one that has used least."""

_LOOK_AGAIN_SECONDS: Final = 1.0
"""How soon it is looked again whether one still waits for others: they may have left, or paid for it."""


class Fragments(Protocol):
    """Makes fragments and keeps them (`encoding.EncodingMemo`). keyed: what it makes them by."""

    def get_kept(self, entry: WindowEntry, keyed: Any) -> Encoded | None: ...

    def keep(self, entry: WindowEntry, keyed: Any, made: Encoded) -> None: ...

    def steps(self, entry: WindowEntry, keyed: Any, turn: TimeSlice) -> Steps[Encoded]: ...


class Group(Protocol):
    """So many readers that are sent the same fragments (`encoding.EncodingGroup`). failed: called where those
    turn out later not to be made, with the group and why."""

    size: int

    @property
    def wire(self) -> Any: ...

    @property
    def memo(self) -> Fragments: ...

    @property
    def failed(self) -> Failed: ...

    @property
    def costs(self) -> EvaluationCosts | None: ...


class Waiter(Protocol):
    """A reader that is parked in an entry whose fragments are not there yet."""

    @property
    def group(self) -> Group: ...

    @property
    def closed(self) -> bool: ...

    def wake(self) -> None:
        """They may be there now."""


Failed = Callable[[Any, str], None]
"""Called with a group whose fragments cannot be made, and why."""


@dataclass(slots=True, eq=False)
class _EvaluationJob:
    """One entry for one group. steps: None if it has not begun."""

    entry: WindowEntry
    group: Group
    costs: EvaluationCosts
    steps: Steps[Encoded] | None = None
    turn: TimeSlice = field(default_factory=TimeSlice)
    held: int = 0


class Evaluations:
    """See the top of this file. clock: monotonic seconds.

    woken: called when there is something to do for `go_on`.
    """

    def __init__(
        self,
        shares: CpuShares,
        round_budget: RoundBudget,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shares = shares
        self.all = SharedAccount(shares.all)
        self._kept: AccountCache[Account] = AccountCache(_QUERIES_KEPT)
        self.woken: Callable[[], None] = lambda: None
        self.seconds = 0.0
        self.postponed = 0
        self._round = round_budget
        self._clock = clock
        self._jobs: dict[_EvaluationJob, None] = {}  # all, in the order of their turns
        self._ready: dict[_EvaluationJob, None] = {}  # those that are not known to rest
        # A heap of the others: until when they rest. Some are gone.
        self._resting: list[tuple[float, int, _EvaluationJob]] = []
        self._numbers = count()
        self._busy_at = -math.inf
        self._by_entry: dict[WindowEntry, dict[Group, _EvaluationJob]] = {}
        self._by_group: dict[Group, dict[_EvaluationJob, None]] = {}
        self._held = 0
        self._to_wake: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def wants_rounds(self) -> bool:
        """Say whether any may go on: is postponed, and not known to rest."""
        return bool(self._ready or self._to_wake)

    def costs(self, source_id: str, key: Hashable) -> EvaluationCosts:
        """Begin those of a new group of a source, with what is left of a wire key that was there before."""
        return EvaluationCosts(self._kept.take((source_id, key), self._clock()) or Account(self.shares.query))

    def encoded(self, entry: WindowEntry, group: Group, *, keep: bool, wait: bool) -> Encoded | None:
        """Return the fragments of an entry; None: not yet. wait: those who are parked in the entry are woken
        then; else only what is kept is looked at.

        Raises EncodingFailed.
        """
        found = group.memo.get_kept(entry, group.wire)
        if found is not None:
            return found
        if not wait or self.awaited(entry, group):
            return None
        costs = group.costs
        assert costs is not None  # noqa: S101  who asks here has a query
        job = _EvaluationJob(entry, group, costs)
        now = self._clock()
        left = self._left(costs, now)
        if left > 0 and not self._rests(costs, now):
            made = self._run(job, now + left)
            if made is not None:
                if keep:
                    group.memo.keep(entry, group.wire, made)
                return made
        self.postponed += 1
        self._jobs[job] = self._ready[job] = None
        self._by_group.setdefault(group, {})[job] = None
        self._by_entry.setdefault(entry, {})[group] = job
        self._hold(job, now)
        self.woken()
        return None

    def awaited(self, entry: WindowEntry, group: Group) -> bool:
        """Say whether it is postponed."""
        return group in self._by_entry.get(entry, ())

    def forget(self, entry: WindowEntry) -> None:
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
            for job in list(self._by_group.get(group, ())):
                self._drop(job)

    def go_on(self, *, idle: bool) -> float | None:
        """Do a turn's work. Returns in how many seconds there is more to do, None if there is nothing.

        idle: nothing else has waited for the loop since this was last called.
        """
        until = self._clock() + ROUND_SECONDS
        while self._to_wake:
            waiter = self._to_wake.popleft()
            if not waiter.closed:
                waiter.wake()
            if self._clock() >= until:
                return 0.0
        if not self._jobs:
            self._resting.clear()
            return None
        if self._round.is_used_up():  # to look for jobs takes time, too
            return 0.0
        now = self._clock()
        jobs, rest = self._next(now)
        for job in jobs:
            if self._round.is_used_up():
                break
            now = self._clock()
            left = self._left(job.costs, now)
            if left > 0 and job in self._jobs and not self._rests(job.costs, now):
                self._go_on(job, now + left)
        if not idle:
            self._busy_at = now
        if jobs:
            return 0.0
        if not idle:
            return rest
        seconds = min(IDLE_SHARE * (now - self._busy_at), IDLE_SECONDS)
        if seconds < FIRST_IDLE_SECONDS:
            return min(rest, (FIRST_IDLE_SECONDS - seconds) / IDLE_SHARE)
        self._go_on(next(iter(self._jobs)), now + seconds, charged=False)
        return 0.0

    def _left(self, costs: EvaluationCosts, now: float) -> float:
        """Return the seconds of this round that these may use at once. A light user's evaluation gives way
        like others', unless much is held already: what is begun and begun anew costs more."""
        if not costs.light_user(now):
            return self._round.left
        return min(self._round.light_left, ROUND_SECONDS if self._held < MOST_HELD // 2 else math.inf)

    def _rests(self, costs: EvaluationCosts, now: float) -> float:
        return costs.wait_seconds(now) or self.all.wait_seconds(now, light_user=costs.light_user(now))

    def _next(self, now: float) -> tuple[list[_EvaluationJob], float]:
        """Find what may go on now, what has used least first; or how long it is until something may."""
        least = self.all.wait_seconds(now, light_user=True)
        if least:
            return [], least
        for _ in range(_LOOKED_AT):
            if not self._resting or self._resting[0][0] > now:
                break
            job = heappop(self._resting)[2]
            if job in self._jobs:
                self._ready[job] = None
        found: list[tuple[bool, float, _EvaluationJob]] = []
        for job in list(islice(self._ready, _LOOKED_AT)):
            rest = self._rests(job.costs, now)
            if rest:
                del self._ready[job]
                rest = max(job.costs.own.wait_seconds(now), min(rest, _LOOK_AGAIN_SECONDS))
                heappush(self._resting, (now + rest, next(self._numbers), job))
            else:
                found.append((job.costs.light_user(now), job.costs.own.left(now), job))
        if found or self._ready:
            found.sort(key=lambda each: each[:2], reverse=True)
            return [job for _, _, job in found], 0.0
        return [], max(self._resting[0][0] - now, 0.0)

    def _go_on(self, job: _EvaluationJob, until: float, *, charged: bool = True) -> None:
        waiting = _waiting(job)
        if not waiting:  # they have gone on, or are gone
            self._drop(job)
            return
        try:
            made = self._run(job, until, charged=charged)
        except EncodingFailed as error:
            self._drop(job)
            job.group.failed(job.group, str(error))
            return
        if made is None:
            if job in self._jobs:
                for jobs in (self._jobs, self._ready):
                    if jobs.pop(job, job) is None:
                        jobs[job] = None  # others first
                self._hold(job, self._clock())
            return
        self._drop(job)
        job.group.memo.keep(job.entry, job.group.wire, made)
        self._to_wake.extend(waiting)

    def _run(self, job: _EvaluationJob, until: float, *, charged: bool = True) -> Encoded | None:
        """Evaluate until then. charged: what that has used; not where nobody else wanted the time."""
        if job.steps is None:
            job.turn = TimeSlice(until, self._clock)
            job.steps = job.group.memo.steps(job.entry, job.group.wire, job.turn)
        job.turn.until = until
        began = self._clock()
        light_user = job.costs.light_user(began)
        try:
            next(job.steps)
        except StopIteration as done:
            made: Encoded = done.value
            return made
        finally:
            now = self._clock()
            used = self._round.charge(began, now, light_user=light_user)
            self.seconds += used
            if charged:
                self.all.charge(used, now, light_user=light_user)
                job.costs.charge(used, now)
        return None

    def _hold(self, job: _EvaluationJob, now: float) -> None:
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

    def _let_go(self, job: _EvaluationJob) -> None:
        self._held -= job.held
        job.held = 0

    def _drop(self, job: _EvaluationJob) -> None:
        self._let_go(job)
        job.steps = None
        self._ready.pop(job, None)
        if self._jobs.pop(job, job) is None:
            of_group, of_entry = self._by_group[job.group], self._by_entry[job.entry]
            del of_group[job], of_entry[job.group]
            if not of_group:
                del self._by_group[job.group]
            if not of_entry:
                del self._by_entry[job.entry]


def _waiting(job: _EvaluationJob) -> list[Waiter]:
    parked = cast("dict[Waiter, None]", job.entry.parked)
    return [item for item in parked if item.group is job.group]
