"""Arithmetic of positions: who is where, compared partition by partition."""

from __future__ import annotations

from kiwi_gw.model import Gap, Positions, Ranges


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


def earliest(one: Positions, other: Positions) -> dict[int, int]:
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


def _part(gap: Gap, ranges: Ranges) -> Gap | None:
    if not ranges:
        return None
    # Where every offset of the whole was an event, those of a part can be counted, too.
    whole = gap.count is not None and gap.count == _size(gap.ranges)
    return Gap(ranges, _size(ranges) if whole else None)


def _size(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges.values())
