"""What a subscription was not given, until the notice about it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from kiwi_gw.model import Ranges


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
