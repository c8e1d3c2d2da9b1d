"""The newest event of every key of one source: for snapshots, and for those who fell too far behind.

The index is shared by all subscriptions. A reader goes through it in the order of update, page by page (see
`snapshot_pages`): an event that is superseded before it comes to its page is left out, for what superseded
it comes later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from kiwi_gw.core.loss import Loss
from kiwi_gw.core.snapshot_pages import FEW_EVENTS, PAGE_EVENTS, SnapshotPage, SnapshotPages
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.model import Batch, Positions, Ranges

_OVERHEAD = 400
"""Bytes that a key costs beside its event: the row, its place in the order, two numbers."""


@dataclass(frozen=True, slots=True)
class LatestRow:
    """One event: its sequence number in the source's window, its place, and the values of its columns."""

    seq: int
    partition: int
    offset: int
    cells: Sequence[object]
    cost: int


@dataclass(slots=True, eq=False)
class SnapshotScan:
    """A reader's way through the index: from `seq` on, up to `stop`, where it enters the source's window.

    here: the positions that it has come to with the pages behind it. positions, lost, unknown: those of
    `stop`. left: how many events are still to come if none of them is superseded; None where nothing was
    promised (a snapshot). gone: those of them that were superseded before it came to their page.
    """

    seq: int
    stop: int
    here: Positions
    positions: Positions
    lost: int
    unknown: int
    left: int | None
    gone: Loss = field(default_factory=Loss)


class LastValues:
    """At most `max_keys` keys and `max_bytes` bytes: those that were updated last.

    evicted: called with the entry of a page that goes. clock: monotonic seconds.
    """

    def __init__(
        self,
        max_keys: int,
        max_bytes: int,
        budget: MemoryBudget,
        evicted: Callable[[WindowEntry], None],
        clock: Callable[[], float],
    ) -> None:
        self.bytes = 0
        self.pages = SnapshotPages(budget, evicted, clock)
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._budget = budget
        self._names: tuple[str, ...] = ()
        self._rows: dict[object, LatestRow] = {}
        # In the order of update; items whose key was updated again are passed over, and removed in bulk.
        self._order: list[tuple[int, object]] = []
        self._first = 0
        self._lowest: dict[int, int] | None = {}  # the first offset of every partition, if it is known
        self._scans: dict[SnapshotScan, None] = {}  # those that something was promised to
        self._promised = 0  # no event from this number on was

    def __len__(self) -> int:
        return len(self._rows)

    def update(self, entry: WindowEntry) -> None:
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
        self._lowest = None
        gone: list[LatestRow] = []
        for seq, (key, partition, offset, cells) in enumerate(places, entry.base):
            if key is not None:
                old = rows.get(key)
                if old is not None:
                    gone.append(old)
                self._charge(cost if old is None else cost - old.cost)
                rows[key] = LatestRow(seq, partition, offset, cells, cost)
                order.append((seq, key))
        self._budget.make_room()
        if self._budget.exceeded:
            self.pages.sweep()
        while rows and (len(rows) > self._max_keys or self.bytes > self._max_bytes or self._budget.exceeded):
            self._forget_oldest(gone)
        self._superseded(gone)
        if len(order) > 2 * len(rows) + PAGE_EVENTS:
            self._order = [item for item in order[self._first :] if self._valid(item)]
            self._first = 0

    def held(self, first: int, stop: int, ranges: Ranges) -> tuple[int, dict[int, tuple[int, int]]]:
        """Count the keys that were updated last between two sequence numbers, and find what is left of the
        ranges of that run without those events at their ends."""
        offsets: dict[int, list[int]] = {}
        for row in self._between(first, stop):
            offsets.setdefault(row.partition, []).append(row.offset)
        return sum(map(len, offsets.values())), {
            partition: rest
            for partition, span in ranges.items()
            if (rest := _without(span, offsets.get(partition, []))) is not None
        }

    def starts(self, positions: Positions) -> dict[int, int]:
        """Return positions that no event of the index lies before. `positions`: those of the head."""
        if self._lowest is None:
            self._lowest = {}
            for row in self._rows.values():
                if row.offset < self._lowest.get(row.partition, row.offset + 1):
                    self._lowest[row.partition] = row.offset
        return {**positions, **self._lowest}

    def begin(self, scan: SnapshotScan) -> None:
        """Let a reader set out. What it was promised is remembered until `end`."""
        if scan.left is not None:
            self._scans[scan] = None
            self._promised = max(self._promised, scan.stop)

    def end(self, scan: SnapshotScan) -> None:
        """Forget a reader that is through, or gone."""
        self._scans.pop(scan, None)
        if not self._scans:
            self._promised = 0

    def page(self, scan: SnapshotScan) -> tuple[SnapshotPage, int] | None:
        """Return the next page of a scan, which moves behind it, and how many of its events are not for this
        reader. None: it is through."""
        page = self.pages.at(scan.seq, scan.stop) or self._make(scan.seq, scan.stop)
        skipped = 0 if page is None else bisect_left(page.numbers, scan.seq)
        scan.seq = scan.stop if page is None else page.stop
        if page is None:
            return None
        if scan.left is not None:
            scan.left -= len(page.numbers) - skipped
        return page, skipped

    def _make(self, first: int, stop: int) -> SnapshotPage | None:
        """Make the page from one sequence number on, up to the next that holds. None: nothing is there."""
        rows: list[LatestRow] = []
        limit, following = stop, self.pages.next_after(first)
        for row in self._between(first, stop):
            while following is not None and following <= row.seq:
                if not rows and (page := self.pages.at(following, stop)) is not None:
                    return page
                if len(rows) >= FEW_EVENTS:
                    limit = following  # the next page holds: go up to it
                    break
                following = self.pages.next_after(following)
            if limit != stop:
                break
            if len(rows) == PAGE_EVENTS:
                limit = row.seq
                break
            rows.append(row)
        if not rows:
            return None
        batch = Batch(
            starts={},  # readers have positions of their own
            partitions=[row.partition for row in rows],
            offsets=[row.offset for row in rows],
            columns={name: [row.cells[n] for row in rows] for n, name in enumerate(self._names)},
            cost=sum(row.cost for row in rows),
        )
        return self.pages.made(first, limit, [row.seq for row in rows], batch)

    def _superseded(self, gone: list[LatestRow]) -> None:
        if len(self.pages):
            self.pages.superseded([row.seq for row in gone])
        promised = [row for row in gone if row.seq < self._promised]
        if promised:
            for scan in self._scans:
                self._take_back(scan, promised)

    def _take_back(self, scan: SnapshotScan, gone: list[LatestRow]) -> None:
        for row in gone:
            if scan.seq <= row.seq < scan.stop:
                scan.left = (scan.left or 0) - 1
                scan.gone.dropped += 1
                scan.gone.add_ranges({row.partition: (row.offset, row.offset)})

    def clear(self) -> None:
        self.pages.clear()
        self._lowest = {}
        self._rows.clear()
        self._order.clear()
        self._first = 0
        self._charge(-self.bytes)

    def _between(self, first: int, stop: int) -> Iterator[LatestRow]:
        index = bisect_left(self._order, first, lo=self._first, key=itemgetter(0))
        while index < len(self._order) and self._order[index][0] < stop:
            item = self._order[index]
            if self._valid(item):
                yield self._rows[item[1]]
            index += 1

    def _valid(self, item: tuple[int, object]) -> bool:
        row = self._rows.get(item[1])
        return row is not None and row.seq == item[0]

    def _forget_oldest(self, gone: list[LatestRow]) -> None:
        item = self._order[self._first]
        if self._valid(item):
            row = self._rows.pop(item[1])
            gone.append(row)
            self._charge(-row.cost)
        self._first += 1

    def _charge(self, cost: int) -> None:
        self.bytes += cost
        self._budget.hold(cost)


def _without(span: tuple[int, int], offsets: list[int]) -> tuple[int, int] | None:
    """Return a range without those of these offsets (in order) that it begins or ends with."""
    first, last = span
    for offset in offsets:
        if offset > first:
            break
        first = max(first, offset + 1)
    for offset in reversed(offsets):
        if offset < last:
            break
        last = min(last, offset - 1)
    return (first, last) if first <= last else None
