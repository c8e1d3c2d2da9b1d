"""What a subscription was not given, until the notice about it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from kiwi_gw.model import Batch, Gap, Positions, Ranges


@dataclass(slots=True)
class Loss:
    """What was given up since the last notice. `unknown`: some of it cannot be counted."""

    dropped: int = 0
    unknown: bool = False
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add_ranges(self, ranges: Ranges) -> None:
        for partition, (first, last) in ranges.items():
            old = self.ranges.get(partition)
            self.ranges[partition] = (first, last) if old is None else (min(old[0], first), max(old[1], last))

    def add_events(self, batch: Batch, first: int, floor: Positions) -> None:
        """Add the events of a batch from index `first` on that are not below the floor."""
        for partition, offset in zip(batch.partitions[first:], batch.offsets[first:], strict=True):
            if offset >= floor.get(partition, 0):
                self.dropped += 1
                self.add_ranges({partition: (offset, offset)})

    def add_gap(self, gap: Gap | None) -> None:
        if gap is not None:
            self.dropped += gap.count or 0
            self.unknown = self.unknown or gap.count is None
            self.add_ranges(gap.ranges)
