"""Events as sources hand them over: as columns."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiwi_gw.model.positions import (
    Positions,
    Ranges,
)


class Unreadable(enum.Enum):
    """Say why a source steps over events that its origin still has."""

    DAMAGED = "damaged"  # they cannot be decoded
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Gap:
    """Describe events that the source itself gave up before a batch (history gone, a record too large).

    `count` is None where the source cannot know how many there were. unreadable: why, if they are still
    there; it feeds `source_decode_errors_total`.
    """

    ranges: Ranges
    count: int | None
    unreadable: Unreadable | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Hold the events that a source handed over together, as columns.

    partitions, offsets: where each event is; offsets grow within a partition.
    columns: by name, every one as long as `offsets`; what they mean is said by the source's `EventSchema`.
        By convention `key` and `value` hold `bytes | None`, `timestamp` ms since the epoch or -1,
        `headers` a sequence of `(str, bytes | None)` pairs.
    starts: the next offset of *every* partition of the source before the first event of this batch.
    cost: what the batch weighs in memory, in bytes, without the fixed overhead that the window adds.
    gap: what the source lost just before it.
    """

    starts: Positions
    partitions: Sequence[int]
    offsets: Sequence[int]
    columns: Mapping[str, Sequence[object]]
    cost: int
    gap: Gap | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def column(self, name: str) -> Sequence[object]:
        """Return the named column, `partition` and `offset` included. Raises KeyError if it does not
        exist."""
        if name == "offset":
            return self.offsets
        if name == "partition":
            return self.partitions
        return self.columns[name]

    def positions_at(self, index: int) -> dict[int, int]:
        """Return the positions of a reader that has had the first `index` events of this batch."""
        positions = dict(self.starts)
        # Offsets grow within a partition, so the last one written is the highest.
        positions.update(zip(self.partitions[:index], [o + 1 for o in self.offsets[:index]], strict=True))
        return positions
