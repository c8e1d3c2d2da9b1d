"""A source's share of the pool: one topic, where its reader is, and what waits to be published."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kiwi_gw.api import Batch, Gap, Unreadable, Wakeup
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.ports import FetchedPartition, HeaderPairs, TopicDescription, TopicPartition

_WAITING = 2
"""How many fetches may wait for a source that is slow to publish, before its partitions rest."""
_OBJECT = 33
"""Bytes that a `bytes` object weighs beside its content (CPython, 64 bit)."""
_ROW = 2 * 8 + 4 + 8 + 8
"""References to key and value, and the partition, offset and timestamp of one record."""
_HEADERS = 48
"""An empty tuple of pairs, and the reference to it."""
_HEADER = 56 + 8 + 57 + _OBJECT
"""A pair, the reference to it, a name and a value, without their content."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Hold records of one topic as columns. `ends`: the next offset of each partition that they touch."""

    partitions: Sequence[int]
    offsets: Sequence[int]
    columns: Mapping[str, Sequence[object]]
    cost: int
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _UnavailableRange:
    """Hold the offsets `first` to `next` - 1 of a partition, which cannot be had."""

    partition: int
    first: int
    next: int
    count: int | None
    unreadable: Unreadable | None


class TopicReader:
    """Hold where one source is in its topic, and what it has not published yet.

    There are two sets of positions. `next` is where a consumer goes on reading: whatever happens to
    the consumer, the next one is sent there. `_taken` is where the source is, and becomes `starts` of
    its next batch. Between them lies the queue, in order.
    """

    def __init__(
        self,
        info: TopicDescription,
        positions: Mapping[int, int],
        *,
        headers: bool,
        follow_new_partitions: bool,
        lineage: TopicLineage,
    ) -> None:
        self.topic = info.name
        self.topic_id = info.id
        self.lineage = lineage
        self.unverified: set[int] = set()  # partitions that rest and are not looked into yet
        self.follow_new_partitions = follow_new_partitions
        self.next = dict(positions)
        self.suspended: set[int] = set()  # partitions that rest until it is known where to go on
        self.missing = 0  # how often in a row the topic was looked for in vain
        # The topic monitor's notes: at which offset a partition is, and since when.
        self.stalls: dict[int, tuple[int, float]] = {}
        self.on_capacity: Callable[[], None] = lambda: None
        self.has_subscription: Callable[[], bool] = lambda: True  # whether somebody waits for what it reads
        self.ends: dict[int, int] = {}  # of its partitions, as the topic monitor saw them last
        self.headers = headers
        self._nothing = to_columns((), headers).columns
        self._taken = dict(positions)
        self._queue: deque[RecordColumns | _UnavailableRange] = deque()
        self._end_error: Exception | None = None
        self._has_passed = False  # offsets that hold no record, and has not said so
        self._something = Wakeup()

    @property
    def has_capacity(self) -> bool:
        return len(self._queue) < _WAITING

    @property
    def ended(self) -> bool:
        return self._end_error is not None

    @property
    def behind(self) -> dict[int, int]:
        """Count by partition the offsets that the source was not given, as the topic monitor last saw."""
        return {p: max(0, self.ends[p] - offset) for p, offset in self._taken.items() if p in self.ends}

    def new_partitions(self, partitions: Iterable[int]) -> list[int]:
        """Return which of the topic's partitions are not read yet, and should be."""
        return [partition for partition in partitions if partition not in self.next]

    def read_target(self, partition: int, end: int) -> int:
        """Return how far the partition is to be read, which ends at `end`."""
        return end

    def fetch_positions(self) -> dict[TopicPartition, int]:
        """Return where to read on, of the partitions that do not rest; nothing when it has ended."""
        if self._end_error is not None:
            return {}
        return {
            TopicPartition(self.topic, p): offset
            for p, offset in self.next.items()
            if p not in self.suspended
        }

    # --- the reader's side ---

    def accept(self, fetched: Sequence[FetchedPartition]) -> int:
        """Take what a consumer has read, to be published next. Returns the number of records."""
        if self._end_error is not None:
            return 0  # of a topic that is another one by now, for instance
        fetched = [part for part in fetched if not self._needs_verification(part)]
        columns = to_columns(fetched, self.headers)
        if any(part.next > self._behind_records(part) for part in fetched):
            self._has_passed = True
            self._something.set()
        self.next.update(columns.ends)
        if columns.offsets:
            self._put(columns)
        return len(columns.offsets)

    def _behind_records(self, part: FetchedPartition) -> int:
        """Return where it would be if no offsets without a record came behind what was read."""
        return part.records[-1].offset + 1 if part.records else self.next.get(part.partition, 0)

    def _needs_verification(self, part: FetchedPartition) -> bool:
        """Return whether it may be of another log; its partition then rests, and what came of it comes
        again. So does what comes of one that rests: what came before it has been dropped."""
        if part.partition in self.suspended:
            return True
        if self.lineage.needs_verification(part):
            self.suspended.add(part.partition)
            self.unverified.add(part.partition)
            return True
        self.lineage.note(part)
        return False

    def advance(self, partition: int, offset: int) -> None:
        """Pass offsets that hold no record."""
        if offset > self.next.get(partition, offset):
            self.next[partition] = offset

    def skip(
        self, partition: int, to: int, count: int | None = None, unreadable: Unreadable | None = None
    ) -> None:
        """Announce that nothing of `partition` can be had before offset `to`, and go on there. unreadable:
        why, if the broker still has it."""
        first = self.next[partition]
        if to > first:
            self.next[partition] = to
            self._put(_UnavailableRange(partition, first, to, count, unreadable))
        self.suspended.discard(partition)
        self.unverified.discard(partition)

    def add_partitions(self, partitions: Sequence[int]) -> None:
        """Read new partitions, too, from their offset 0. That they are there is told at once."""
        for partition in partitions:
            self.next.setdefault(partition, 0)
        self._has_passed = True
        self._something.set()

    def end(self, error: Exception) -> None:
        """Let nothing more come: `take` raises the error after what waits. The first error counts."""
        if self._end_error is None:
            self._end_error = error
            self._something.set()

    # --- the source's side ---

    async def take(self) -> Batch:
        """Return the next batch; waits for one. One without events says that there are none up to where it
        begins (behind markers of transactions): who reads up to the end waits for that. Raises what the
        reader was ended with."""
        while (batch := self.take_nowait()) is None:
            if self._has_passed:
                return self.take_nothing()
            self._something.clear()
            await self._something.wait()
        if len(self._queue) == _WAITING - 1:
            self.on_capacity()
        return batch

    def take_nowait(self) -> Batch | None:
        """Return the next batch, None if none waits. Raises what the reader was ended with, after those."""
        if self._queue:
            return self._batch(self._queue.popleft())
        if self._end_error is not None:
            raise self._end_error
        return None

    def take_nothing(self) -> Batch:
        """Return a batch without events, at the place up to which everything was read."""
        self._taken = dict(self.next)
        self._has_passed = False
        return Batch(dict(self._taken), (), (), self._nothing, 0)

    @property
    def newest(self) -> RecordColumns | None:
        """Return what came last, if it waits and is not a gap."""
        item = self._queue[-1] if self._queue else None
        return item if isinstance(item, RecordColumns) else None

    def _put(self, item: RecordColumns | _UnavailableRange) -> None:
        self._queue.append(item)
        self._something.set()

    def _batch(self, item: RecordColumns | _UnavailableRange) -> Batch:
        for partition in self.next:
            self._taken.setdefault(partition, 0)  # one that has joined
        if isinstance(item, _UnavailableRange):
            self._taken[item.partition] = item.next
            gap = Gap({item.partition: (item.first, item.next - 1)}, item.count, item.unreadable)
            return Batch(dict(self._taken), (), (), self._nothing, 0, gap)
        starts = dict(self._taken)
        self._taken.update(item.ends)
        return Batch(starts, item.partitions, item.offsets, item.columns, item.cost)


def to_columns(fetched: Sequence[FetchedPartition], headers: bool) -> RecordColumns:
    """Make columns of what was fetched of one topic, partition by partition, each in its order.

    headers: whether the column `headers` is wanted. `cost` is what the columns weigh in memory.
    """
    partitions = array("i")
    offsets = array("q")
    timestamps = array("q")
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    pairs: list[HeaderPairs] = []
    for part in fetched:
        records = part.records
        partitions.extend(array("i", (part.partition,)) * len(records))
        offsets.extend([record.offset for record in records])
        timestamps.extend([record.timestamp for record in records])
        keys.extend([record.key for record in records])
        values.extend([record.value for record in records])
        if headers:
            pairs.extend([tuple(record.headers) for record in records])
    columns: dict[str, Sequence[object]] = {"key": keys, "value": values, "timestamp": timestamps}
    cost = _ROW * len(offsets) + _weight(keys) + _weight(values)
    if headers:
        columns["headers"] = pairs
        cost += _HEADERS * len(pairs) + sum(map(_header_weight, chain.from_iterable(pairs)))
    return RecordColumns(partitions, offsets, columns, cost, {part.partition: part.next for part in fetched})


def _weight(texts: list[bytes | None]) -> int:
    try:
        return sum(map(len, texts)) + _OBJECT * len(texts)  # type: ignore[arg-type]
    except TypeError:  # some are None: the slower way
        return _present(text for text in texts if text is not None)


def _present(texts: Iterable[bytes]) -> int:
    return sum(len(text) + _OBJECT for text in texts)


def _header_weight(pair: tuple[str, bytes | None]) -> int:
    name, value = pair
    return _HEADER + len(name) + (len(value) if value is not None else 0)
