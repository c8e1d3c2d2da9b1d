"""A source's history that exists only here: what was produced, less what was compacted or deleted since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kiwi_gw.core.history import SharedHistoryReader
from kiwi_gw.model import Batch, Gap, OffsetRange, Positions, batch_pieces
from tests.unit.core.fakes import Place, World


@dataclass
class Past:
    """Hold the history of a `World`'s source. made: what it ever had; unreadable: what it cannot give, which
    it announces; first: what was deleted lies below it."""

    world: World
    made: set[Place] = field(default_factory=set)
    compacted: set[Place] = field(default_factory=set)
    unreadable: set[Place] = field(default_factory=set)
    first: dict[int, int] = field(default_factory=dict)
    reads: int = 0

    def __post_init__(self) -> None:
        self.first = dict(self.world.start)

    @property
    def offset_range(self) -> OffsetRange:
        return OffsetRange(dict(self.first), dict(self.world.next))

    def has(self, place: Place) -> bool:
        return place in self.made and place not in self.compacted and place[1] >= self.first[place[0]]

    def read(self, here: dict[int, int], until: Positions, size: int) -> Batch:
        """Read as `HistoryReader.read`, at most `size` events; moves `here`."""
        self.reads += 1
        gaps: dict[int, tuple[int, int]] = {}
        for p, offset in here.items():
            after = max(offset, min(self.first[p], until[p]))
            while after < until[p] and (p, after) in self.unreadable:
                after += 1
            if after > offset:
                gaps[p], here[p] = (offset, after - 1), after
        starts = dict(here)
        found: list[Place] = []
        for p, end in until.items():
            while here[p] < end and len(found) < size and (p, here[p]) not in self.unreadable:
                if self.has((p, here[p])):
                    found.append((p, here[p]))
                here[p] += 1
            # Where nothing is left it is behind the holes, however far they go.
            while here[p] >= end and here[p] < self.world.next[p] and self.is_hole((p, here[p])):
                here[p] += 1
        if not found:
            starts = dict(here)
        gap = Gap(gaps, None) if gaps else None
        return Batch(starts, [p for p, _ in found], [o for _, o in found], {}, 0, gap)

    def is_hole(self, place: Place) -> bool:
        return not self.has(place) and place not in self.unreadable and place[1] >= self.first[place[0]]


class Driver:
    """Do what `runtime.history_task` does for one reader, step by step."""

    def __init__(self, past: Past, reader: SharedHistoryReader) -> None:
        self.past = past
        self.reader = reader
        self.here = dict(reader.positions)
        self._pieces: list[Batch] = []
        self._steps: Iterator[None] | None = None

    def step(self, size: int = 5) -> bool:
        """Return whether it did something."""
        reader = self.reader
        if reader.closed:
            return False
        if self._steps is not None:
            if next(self._steps, self) is self:
                self._steps = None
            return True
        if not reader.members:
            reader.close()
            return True
        if self._pieces:
            if not reader.fits(self._pieces[0]):
                return False
            self._steps = reader.take(self._pieces.pop(0))
            return True
        if reader.arrived:
            return False
        self._pieces = list(batch_pieces(self.past.read(self.here, reader.catch_up_target(), size), 3))
        return True


def drive(drivers: Iterable[Driver], size: int = 5) -> None:
    """Drive them until none can go on."""
    going = True
    while going:
        going = sum(driver.step(size) for driver in drivers) > 0
