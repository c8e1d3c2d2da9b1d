"""How many ids that a registry turns out not to know one source may ask for.

A producer can write another id, made up, into every record: a batch of 2,000 records then names 2,000 (4,000
with keys), of which the registry knows none. Asking for all of them would hold up the topic, and cost the
registry as many requests. So those that most records of the batch name are asked for first, and a batch asks
no more once its answers were refusals

- a hundred times, less those of the batches before, which come back at ten a second; or
- eight times, when two seconds have passed.

Ids that were not asked for are bad records in this batch: nothing is remembered of them. So made-up ids hold
up a batch for two seconds, and for the answers that are under way then: four in all, where the registry takes
two for each answer; where it takes 5 ms, 0.07. Ids that it knows are asked for in any case: there are only as
many of them as it has, and each is asked for once.
"""

from __future__ import annotations

MOST = 100
PER_SECOND = 10.0
LATE_SECONDS = 2.0
MOST_WHEN_LATE = 8


class RefusalBudget:
    """Count the refusals of one source. Time is in seconds, from anywhere."""

    def __init__(self) -> None:
        self._left = float(MOST)
        self._counted_at = 0.0

    def begin(self, now: float) -> BatchBudget:
        """Begin with a batch."""
        return BatchBudget(self, max(0, int(self._refilled(now))), now)

    def spend(self, now: float) -> None:
        """Count one refusal."""
        self._left = self._refilled(now) - 1
        self._counted_at = now

    def _refilled(self, now: float) -> float:
        return min(float(MOST), self._left + PER_SECOND * (now - self._counted_at))


class BatchBudget:
    """Count the refusals of one batch."""

    def __init__(self, source: RefusalBudget, most: int, began: float) -> None:
        self._source = source
        self._most = most
        self._began = began
        self._refused = 0

    def refused(self, now: float) -> None:
        """Count one refusal."""
        self._refused += 1
        self._source.spend(now)

    def spent(self, now: float) -> bool:
        """Return whether nothing more is to be asked for."""
        late = now - self._began >= LATE_SECONDS
        return self._refused >= (min(self._most, MOST_WHEN_LATE) if late else self._most)
