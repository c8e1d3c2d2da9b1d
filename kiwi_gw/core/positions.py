"""Arithmetic of positions: who is where, compared partition by partition."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import Final

from kiwi_gw.model import Batch, Gap, Positions, Ranges

PIECE_EVENTS: Final = 1_000
PIECE_BYTES: Final = 256 * 1024
"""What is intercepted, encoded and picked from in one go: events, and bytes of their texts. It takes some
2 ms (`tests/unit/core/test_positions.py`)."""


def reached(here: Positions, goal: Positions) -> bool:
    """Say whether a reader at `here` has had everything below `goal`, in every partition of it."""
    return all(here.get(partition, 0) >= offset for partition, offset in goal.items())


def furthest(one: Positions, other: Positions) -> dict[int, int]:
    """Take in every partition the later of two positions."""
    found = dict(one)
    for partition, offset in other.items():
        if offset > found.get(partition, 0):
            found[partition] = offset
    return found


def nearest(one: Positions, other: Positions) -> dict[int, int]:
    """Take in every partition the earlier of two positions; a partition that only one names: that one."""
    return {**one, **{p: min(offset, one.get(p, offset)) for p, offset in other.items()}}


def ahead(goal: Positions, here: Positions) -> int:
    """Count the offsets from `here` to `goal`, where it is ahead. Exact in events where no offsets are
    missing."""
    return sum(offset - here.get(p, 0) for p, offset in goal.items() if offset > here.get(p, 0))


def between(here: Positions, goal: Positions) -> dict[int, tuple[int, int]]:
    """Find the ranges that a reader gives up by going from `here` to `goal`."""
    return {p: (here.get(p, 0), offset - 1) for p, offset in goal.items() if offset > here.get(p, 0)}


def above(gap: Gap, floor: Positions) -> Gap | None:
    """Cut a gap to what concerns a reader that has had everything below `floor`; None: nothing."""
    ranges: Ranges = {
        p: (max(first, floor.get(p, 0)), last)
        for p, (first, last) in gap.ranges.items()
        if last >= floor.get(p, 0)
    }
    if ranges == gap.ranges:
        return gap
    return _part(gap, ranges)


def below(gap: Gap, target: Positions) -> Gap | None:
    """Cut a gap to what lies before `target`; None: nothing. Partitions that `target` does not name are left
    as they are."""
    ranges: Ranges = {
        p: (first, min(last, target.get(p, last + 1) - 1))
        for p, (first, last) in gap.ranges.items()
        if first < target.get(p, last + 1)
    }
    if ranges == gap.ranges:
        return gap
    return _part(gap, ranges)


def pieces(batch: Batch, most_events: int = PIECE_EVENTS, most_bytes: int = PIECE_BYTES) -> Iterator[Batch]:
    """Cut it into batches of at most so many events and bytes, or one event; the gap belongs to the first.
    Each is made when it is asked for. They cost together what the batch says, or what its texts do."""
    size = len(batch)
    if size < 2 or (size <= most_events and batch.cost <= most_bytes):
        yield batch
        return
    texts = [column for column in batch.columns.values() if not isinstance(column, array)]
    rest, odd = divmod(max(0, batch.cost - sum(sum(_lengths(column)) for column in texts)), size)
    starts, gap, first = batch.starts, batch.gap, 0
    while first < size:
        stop = min(first + most_events, size)
        weights = [rest + (index < odd) for index in range(first, stop)]
        for column in texts:
            weights = list(map(add, weights, _lengths(column[first:stop])))
        upto = list(accumulate(weights, initial=0))
        fitting = max(1, bisect_right(upto, most_bytes) - 1)
        stop = first + fitting
        piece = Batch(
            starts=starts,
            partitions=batch.partitions[first:stop],
            offsets=batch.offsets[first:stop],
            columns={name: column[first:stop] for name, column in batch.columns.items()},
            cost=upto[fitting],
            gap=gap,
        )
        yield piece
        starts, gap, first = piece.positions_at(len(piece)), None, stop


def _lengths(column: Sequence[object]) -> list[int]:
    """Return the bytes or characters of each; 0 where it is neither."""
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # some are no texts: the slower way
        return [len(value) if isinstance(value, bytes | str) else 0 for value in column]


def _part(gap: Gap, ranges: Ranges) -> Gap | None:
    if not ranges:
        return None
    # Where every offset of the whole was an event, those of a part can be counted, too.
    whole = gap.count is not None and gap.count == _size(gap.ranges)
    return Gap(ranges, _size(ranges) if whole else None)


def _size(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges.values())
