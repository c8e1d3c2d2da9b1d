"""The newest event of every key of one source: for snapshots, and for those who fell too far behind.

The index is shared by all subscriptions. A reader goes through it in the order of update, page by page: an
event that is superseded before its page is made is left out, for what superseded it comes later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from kiwi_gw.core.window import Budget, Entry
from kiwi_gw.model import Batch, Positions

PAGE_EVENTS = 1_000

_OVERHEAD = 400
"""Bytes that a key costs beside its event: the row, its place in the order, two numbers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One event: its sequence number in the source's window, its place, and the values of its columns."""

    seq: int
    partition: int
    offset: int
    cells: Sequence[object]
    cost: int


@dataclass(slots=True)
class Pass:
    """A reader's way through the index: from `seq` on, up to `stop`, where it enters the source's window.

    positions, lost, unknown: those of `stop`. left: how many events are still to come if none of them is
    superseded; None where nothing was promised (a snapshot).
    """

    seq: int
    stop: int
    positions: Positions
    lost: int
    unknown: int
    left: int | None


class LastValues:
    """At most `max_keys` keys and `max_bytes` bytes: those that were updated last."""

    def __init__(self, max_keys: int, max_bytes: int, budget: Budget) -> None:
        self.bytes = 0
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._budget = budget
        self._names: tuple[str, ...] = ()
        self._rows: dict[object, Row] = {}
        # In the order of update; items whose key was updated again are passed over, and removed in bulk.
        self._order: list[tuple[int, object]] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._rows)

    def update(self, entry: Entry) -> None:
        """Take in a batch. Events without a key are not for this index; a tombstone is an event."""
        batch, rows, order = entry.batch, self._rows, self._order
        if not len(batch) or "key" not in batch.columns:
            return
        self._names = tuple(batch.columns)
        cost = batch.cost // len(batch) + _OVERHEAD
        columns = [batch.columns[name] for name in self._names]
        places = zip(
            batch.columns["key"], batch.partitions, batch.offsets, zip(*columns, strict=True), strict=True
        )
        for seq, (key, partition, offset, cells) in enumerate(places, entry.base):
            if key is not None:
                old = rows.get(key)
                self._charge(cost if old is None else cost - old.cost)
                rows[key] = Row(seq, partition, offset, cells, cost)
                order.append((seq, key))
        self._budget.make_room()
        while rows and (len(rows) > self._max_keys or self.bytes > self._max_bytes or self._budget.exceeded):
            self._forget_oldest()
        if len(order) > 2 * len(rows) + PAGE_EVENTS:
            self._order = [item for item in order[self._first :] if self._valid(item)]
            self._first = 0

    def count(self, first: int, stop: int) -> int:
        """How many keys were updated last between two sequence numbers."""
        return sum(1 for _ in self._between(first, stop))

    def starts(self, positions: Positions) -> dict[int, int]:
        """Positions that no event of the index lies before. `positions`: those of the head."""
        starts = dict(positions)
        for row in self._rows.values():
            if row.offset < starts.get(row.partition, 0):
                starts[row.partition] = row.offset
        return starts

    def page(self, progress: Pass, starts: Positions) -> Batch:
        """The next events of a pass, which moves behind them; none: it is through. `starts`: the reader's."""
        rows: list[Row] = []
        for row in self._between(progress.seq, progress.stop):
            rows.append(row)
            if len(rows) == PAGE_EVENTS:
                break
        progress.seq = rows[-1].seq + 1 if rows else progress.stop
        if progress.left is not None:
            progress.left -= len(rows)
        return Batch(
            starts=starts,
            partitions=[row.partition for row in rows],
            offsets=[row.offset for row in rows],
            columns={name: [row.cells[n] for row in rows] for n, name in enumerate(self._names)},
            cost=sum(row.cost for row in rows),
        )

    def clear(self) -> None:
        self._rows.clear()
        self._order.clear()
        self._first = 0
        self._charge(-self.bytes)

    def _between(self, first: int, stop: int) -> Iterator[Row]:
        index = bisect_left(self._order, first, lo=self._first, key=itemgetter(0))
        while index < len(self._order) and self._order[index][0] < stop:
            item = self._order[index]
            if self._valid(item):
                yield self._rows[item[1]]
            index += 1

    def _valid(self, item: tuple[int, object]) -> bool:
        row = self._rows.get(item[1])
        return row is not None and row.seq == item[0]

    def _forget_oldest(self) -> None:
        item = self._order[self._first]
        if self._valid(item):
            self._charge(-self._rows.pop(item[1]).cost)
        self._first += 1

    def _charge(self, cost: int) -> None:
        self.bytes += cost
        self._budget.hold(cost)
