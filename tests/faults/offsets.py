"""Sets of offsets as ranges: what the checker and the ledgers compare."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping


class Offsets:
    """Hold a set of offsets of one partition, as disjoint ranges in ascending order."""

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
        """Return those from `first` to `last`."""
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
        """Return those in both."""
        return Offsets(part for first, last in other for part in self.within(first, last))

    def without(self, other: Offsets) -> Offsets:
        """Return those not in the other."""
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


def places(parts: Iterable[tuple[int, int, int]]) -> Places:
    """Make places from (partition, first, last)."""
    found: dict[int, list[tuple[int, int]]] = {}
    for partition, first, last in parts:
        found.setdefault(partition, []).append((first, last))
    return {partition: Offsets(ranges) for partition, ranges in sorted(found.items())}


def minus(left: Mapping[int, Offsets], *rights: Mapping[int, Offsets]) -> Places:
    """Return what is in `left` and in none of the others."""
    kept = {}
    for partition, offsets in sorted(left.items()):
        for right in rights:
            offsets = offsets.without(right.get(partition, Offsets()))
        if len(offsets):
            kept[partition] = offsets
    return kept


def both(left: Mapping[int, Offsets], right: Mapping[int, Offsets]) -> Places:
    """Return what is in both."""
    found = {p: offsets.common(right.get(p, Offsets())) for p, offsets in sorted(left.items())}
    return {partition: offsets for partition, offsets in found.items() if len(offsets)}
