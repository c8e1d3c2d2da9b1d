"""Compares what was produced with what one subscription was given and told. Pure: no I/O, no clock.

A history is what one client received, in order: runs of consecutive offsets of a partition, LAG notices,
and at last perhaps a SUBSCRIPTION_CLOSED. `judge` looks at sets and order of (partition, offset), never
at counts alone; a history without a fault means: received and given up are disjoint, together they are
what was produced, and every gap was announced before the first event behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Run:
    """Events with the offsets `first` to `last` of a partition, received one after the other."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Lag:
    """A LAG notice. ranges: first and last offset given up, per partition; dropped: how many events."""

    behind: int
    dropped: int | None
    count: int
    ranges: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Closed:
    """A SUBSCRIPTION_CLOSED notice. positions: next offset per partition; dropped: not given any more."""

    reason: str
    dropped: int | None
    positions: Mapping[int, int]


Item = Run | Lag | Closed


class Offsets:
    """A set of offsets of one partition, as disjoint ranges in ascending order."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Offsets({list(self)})"

    def within(self, first: int, last: int) -> Offsets:
        """Those from `first` to `last`."""
        start = max(0, bisect_right(self._firsts, first) - 1)
        found = []
        for index in range(start, len(self._firsts)):
            low, high = max(first, self._firsts[index]), min(last, self._lasts[index])
            if self._firsts[index] > last:
                break
            if low <= high:
                found.append((low, high))
        return Offsets(found)

    def common(self, other: Offsets) -> Offsets:
        """Those in both."""
        return Offsets(part for first, last in other for part in self.within(first, last))

    def without(self, other: Offsets) -> Offsets:
        """Those not in the other."""
        left = []
        for first, last in self:
            for low, high in other.within(first, last):
                if first < low:
                    left.append((first, low - 1))
                first = high + 1
            if first <= last:
                left.append((first, last))
        return Offsets(left)


Places = dict[int, Offsets]
"""Offsets per partition; a partition without any is left out."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one history; empty members where nothing is.

    lost: produced, neither received nor announced as given up. duplicate: received twice. reorder:
    received after a later one of its partition. skip_unannounced: passed over before any notice said so.
    announced_but_delivered: announced as given up, and received. invented: received, but never produced.
    miscounted: the sum of `dropped`, where it is not the number of events that the ranges held.
    """

    lost: Places = field(default_factory=dict)
    duplicate: Places = field(default_factory=dict)
    reorder: Places = field(default_factory=dict)
    skip_unannounced: Places = field(default_factory=dict)
    announced_but_delivered: Places = field(default_factory=dict)
    invented: Places = field(default_factory=dict)
    miscounted: int | None = None


def produced(ends: Mapping[int, int], starts: Mapping[int, int] | None = None) -> Places:
    """The records of a topic without holes: `ends` and `starts` are next offsets per partition."""
    starts = starts or {}
    return {p: Offsets([(starts.get(p, 0), end - 1)]) for p, end in ends.items() if end > starts.get(p, 0)}


def received(history: Sequence[Item]) -> Places:
    """All that came."""
    return _places((item.partition, item.first, item.last) for item in history if isinstance(item, Run))


def announced(history: Sequence[Item]) -> Places:
    """All that LAG notices said was given up (their ranges may hold offsets without a record)."""
    return _places((p, *ends) for item in history if isinstance(item, Lag) for p, ends in item.ranges.items())


def judge(history: Sequence[Item], produced: Places) -> Verdict:
    """Judge the history of one subscription that began with the first of `produced` and has had its last."""
    walk = _Walk(produced)
    for item in history:
        walk.take(item)
    came, told = received(history), announced(history)
    none = Offsets()
    dropped = [item.dropped for item in history if isinstance(item, Lag)]
    given_up = sum(len(produced.get(p, none).common(offsets)) for p, offsets in told.items())
    counted = sum(count for count in dropped if count is not None)
    return Verdict(
        lost=_kept(
            {
                p: offsets.without(came.get(p, none)).without(told.get(p, none))
                for p, offsets in produced.items()
            }
        ),
        duplicate=_places(walk.duplicate),
        reorder=_places(walk.reorder),
        skip_unannounced=_places(walk.skipped),
        announced_but_delivered=_kept({p: told.get(p, none).common(o) for p, o in came.items()}),
        invented=_kept({p: o.without(produced.get(p, none)) for p, o in came.items()}),
        miscounted=None if None in dropped or counted == given_up else counted,
    )


class _Walk:
    """The part of the judgement that depends on the order."""

    def __init__(self, produced: Places) -> None:
        self.duplicate: list[tuple[int, int, int]] = []
        self.reorder: list[tuple[int, int, int]] = []
        self.skipped: list[tuple[int, int, int]] = []
        self._produced = produced
        self._next = {p: next(iter(offsets))[0] for p, offsets in produced.items()}
        self._came: dict[int, list[tuple[int, int]]] = {}
        self._told: dict[int, list[tuple[int, int]]] = {}

    def take(self, item: Item) -> None:
        if isinstance(item, Lag):
            for partition, ends in item.ranges.items():
                self._told.setdefault(partition, []).append(ends)
        elif isinstance(item, Run):
            self._run(item.partition, item.first, item.last)

    def _run(self, partition: int, first: int, last: int) -> None:
        expected = self._next.get(partition, first)
        came = self._came.setdefault(partition, [])
        if first > expected:
            gap = self._produced.get(partition, Offsets()).within(expected, first - 1)
            for low, high in gap.without(Offsets(self._told.get(partition, ()))):
                self.skipped.append((partition, low, high))
        elif first < expected:
            again = Offsets([(first, min(last, expected - 1))])
            before = Offsets(came)
            self.duplicate.extend((partition, *part) for part in again.common(before))
            self.reorder.extend((partition, *part) for part in again.without(before))
        came.append((first, last))
        self._next[partition] = max(expected, last + 1)


def _places(parts: Iterable[tuple[int, int, int]]) -> Places:
    found: dict[int, list[tuple[int, int]]] = {}
    for partition, first, last in parts:
        found.setdefault(partition, []).append((first, last))
    return {partition: Offsets(ranges) for partition, ranges in sorted(found.items())}


def _kept(places: Places) -> Places:
    return {partition: offsets for partition, offsets in sorted(places.items()) if len(offsets)}
