"""Events as sources hand them over: as columns."""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import add
from typing import Final

from kiwi_gw.model.positions import Positions, Ranges

PIECE_EVENTS: Final = 1_000
PIECE_BYTES: Final = 256 * 1024
"""What is intercepted, encoded and picked from in one go: events, and bytes of their texts. It takes some
2 ms (`tests/unit/model/test_batch.py`)."""


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
        partitions, offsets = self.partitions[:index], self.offsets[:index]
        if partitions and partitions.count(partitions[-1]) == index:
            return {**self.starts, partitions[-1]: offsets[-1] + 1}
        # Offsets grow within a partition, so the last one written is the highest.
        last = dict(zip(partitions, offsets, strict=True))
        return {**self.starts, **{partition: offset + 1 for partition, offset in last.items()}}


def batch_pieces(
    batch: Batch, most_events: int = PIECE_EVENTS, most_bytes: int = PIECE_BYTES
) -> Iterator[Batch]:
    """Cut it into batches of at most so many events and bytes, or one event; the gap belongs to the first.
    Each is made when it is asked for. They cost together what the batch says, or what its texts do."""
    size = len(batch.offsets)
    if size < 2 or (size <= most_events and batch.cost <= most_bytes):
        yield batch
        return
    weights = [0] * size
    for column in batch.columns.values():
        if not isinstance(column, array):
            weights = list(map(add, weights, _lengths(column)))
    rest, odd = divmod(max(0, batch.cost - sum(weights)), size)
    upto = list(accumulate(map(add, weights, chain(repeat(rest + 1, odd), repeat(rest))), initial=0))
    starts, gap, first = batch.starts, batch.gap, 0
    while first < size:
        most = min(first + most_events, size)
        stop = max(first + 1, bisect_right(upto, upto[first] + most_bytes, first, most + 1) - 1)
        piece = Batch(
            starts=starts,
            partitions=batch.partitions[first:stop],
            offsets=batch.offsets[first:stop],
            columns={name: column[first:stop] for name, column in batch.columns.items()},
            cost=upto[stop] - upto[first],
            gap=gap,
        )
        yield piece
        starts, gap, first = piece.positions_at(len(piece)), None, stop


def _lengths(column: Sequence[object]) -> list[int]:
    """Return the bytes or characters of each; 0 where it is neither."""
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # some are None
        pass
    try:
        return [0 if value is None else len(value) for value in column]  # type: ignore[arg-type]
    except TypeError:  # some are no texts: the slowest way
        return [len(value) if isinstance(value, bytes | str) else 0 for value in column]
