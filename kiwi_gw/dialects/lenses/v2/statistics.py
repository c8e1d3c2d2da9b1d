"""What an execution has read, counted as it goes (document 001, Stats)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kiwi_gw.core.commands import LabelLimit
from kiwi_gw.dialects.lenses.v2.messages import PartitionStats
from kiwi_gw.dialects.lenses.v2.records import BAD, BYTES, RESULTS, SCANNED
from kiwi_gw.model import Batch, Encoded, Positions

ALL = 2**63 - 1
"""A limit that nothing reaches."""


@dataclass(slots=True)
class _Read:
    records: int = 0
    bytes: int = 0
    end: int = -1


_NOTHING: Final = _Read()


class PartitionTally:
    """Implement `core.commands.Tally`: what was read of each partition.

    Of ten thousand partitions few change between two STATS: what was said of the others is kept.
    """

    def __init__(self) -> None:
        self._read: dict[int, _Read] = {}
        self._begin: Positions = {}
        self._until: Positions | None = None
        self._said: dict[str, PartitionStats] = {}
        self._changed: set[int] = set()

    def opened(self, begin: Positions, until: Positions | None) -> None:
        """Begin with these partitions: the first offset of each, and the one behind the last."""
        self._begin, self._until = begin, until
        self._said = {str(partition): self._of(partition) for partition in sorted(begin)}

    def passed(self, batch: Batch, encoded: Encoded, first: int, stop: int) -> None:
        """Count these events of a batch."""
        partitions = batch.partitions
        if len(set(partitions[first:stop])) == 1:  # most batches are of one
            self._add(batch, encoded, first, stop)
            return
        here = first
        for upto in range(first + 1, stop + 1):
            if upto == stop or partitions[upto] != partitions[here]:
                self._add(batch, encoded, here, upto)
                here = upto

    def _add(self, batch: Batch, encoded: Encoded, first: int, stop: int) -> None:
        """Count events of one partition. What an interceptor has taken out is not there to be counted, and
        not the last either."""
        records = encoded.prefix_counts_by_label[SCANNED]
        if records[stop] == records[first]:
            return
        sizes = encoded.prefix_counts_by_label[BYTES]
        partition = batch.partitions[first]
        read = self._read.setdefault(partition, _Read())
        self._changed.add(partition)
        read.records += records[stop] - records[first]
        read.bytes += sizes[stop] - sizes[first]
        read.end = batch.offsets[bisect_left(records, records[stop], first, stop) - 1]

    def of_partitions(self) -> Mapping[str, PartitionStats]:
        """Return it by partition. It is of use until more is counted."""
        for partition in self._changed & self._begin.keys():
            self._said[str(partition)] = self._of(partition)
        self._changed.clear()
        return self._said

    def _of(self, partition: int) -> PartitionStats:
        read, first, until = self._read.get(partition, _NOTHING), self._begin[partition], self._until
        bound = None if until is None else max(until.get(partition, first), first) - 1
        return PartitionStats(first, bound, read.bytes, read.records, max(read.end, first - 1))


@dataclass(slots=True)
class Counters:
    """Count what all executions count, by limits: `left` goes down. limit, max_bytes: None: there is none."""

    limits: dict[Hashable, LabelLimit] = field(default_factory=dict)
    _from: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, limit: int | None, max_bytes: int | None) -> Counters:
        """Begin at nothing."""
        most: dict[Hashable, int] = {RESULTS: limit or ALL, BYTES: max_bytes or ALL, SCANNED: ALL, BAD: ALL}
        return cls({label: LabelLimit(left) for label, left in most.items()}, most)

    def count(self, label: str) -> int:
        """Return how many there were."""
        return self._from[label] - self.limits[label].left
