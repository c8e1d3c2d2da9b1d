"""What a source holds of the pool: one topic, where its reader is, and what waits to be published."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import trio

from kiwi_gw.api import Batch, Gap, Unreadable
from kiwi_kafka.columns import Columns, Fetched, to_columns
from kiwi_kafka.lineage import Lineage
from kiwi_kafka.seam import Place, TopicView

_WAITING = 2
"""How many fetches may wait for a source that is slow to publish, before its partitions rest."""


@dataclass(frozen=True, slots=True)
class _Skip:
    """Offsets `first` to `next` - 1 of a partition that cannot be had."""

    partition: int
    first: int
    next: int
    count: int | None
    unreadable: Unreadable | None


class Lease:
    """One live source in the pool.

    There are two sets of positions. `next` is where a consumer goes on reading: whatever happens to
    the consumer, the next one is sent there. `_taken` is where the source is, and becomes `starts` of
    its next batch. Between them lies the queue, in order.
    """

    def __init__(
        self,
        view: TopicView,
        positions: Mapping[int, int],
        *,
        headers: bool,
        follow: bool,
        lineage: Lineage,
    ) -> None:
        self.topic = view.name
        self.topic_id = view.id
        self.lineage = lineage
        self.doubted: set[int] = set()  # partitions that rest, which nobody looks after yet
        self.follow = follow
        self.next = dict(positions)
        self.held: set[int] = set()  # partitions that rest until somebody has found out where to go on
        self.missing = 0  # how often in a row the topic was looked for in vain
        self.stalls: dict[int, tuple[int, float]] = {}  # the watch's notes: where a partition is since when
        self.on_room: Callable[[], None] = lambda: None
        self.ends: dict[int, int] = {}  # of its partitions, as the watch saw them last
        self.headers = headers
        self._nothing = to_columns((), headers).columns
        self._taken = dict(positions)
        self._queue: deque[Columns | _Skip] = deque()
        self._over: Exception | None = None
        self._something = trio.Event()

    @property
    def has_room(self) -> bool:
        return len(self._queue) < _WAITING

    @property
    def over(self) -> bool:
        return self._over is not None

    @property
    def behind(self) -> dict[int, int]:
        """By partition, how many offsets the source has not been given, as far as the watch has looked."""
        return {p: max(0, self.ends[p] - offset) for p, offset in self._taken.items() if p in self.ends}

    def added(self, partitions: Iterable[int]) -> list[int]:
        """Which of the topic's partitions are not read yet, and should be."""
        return [partition for partition in partitions if partition not in self.next]

    def goal(self, partition: int, end: int) -> int:
        """How far the partition is to be read, which ends at `end`."""
        return end

    def places(self) -> dict[Place, int]:
        """Where to read on, of the partitions that do not rest; nothing when it is over."""
        if self._over is not None:
            return {}
        return {Place(self.topic, p): offset for p, offset in self.next.items() if p not in self.held}

    # --- the reader's side ---

    def offer(self, fetched: Sequence[Fetched]) -> int:
        """What a consumer has read, to be published next. Returns the number of records."""
        if self._over is not None:
            return 0  # of a topic that is another one by now, for instance
        fetched = [part for part in fetched if not self._doubts(part)]
        columns = to_columns(fetched, self.headers)
        self.next.update(columns.ends)
        if columns.offsets:
            self._put(columns)
        return len(columns.offsets)

    def _doubts(self, part: Fetched) -> bool:
        """Whether it may be of another log; its partition then rests, and what came of it comes again."""
        if part.partition in self.doubted:
            return True
        if self.lineage.doubts(part):
            self.held.add(part.partition)
            self.doubted.add(part.partition)
            return True
        self.lineage.note(part)
        return False

    def advance(self, partition: int, offset: int) -> None:
        """The reader has passed offsets that hold no record."""
        if offset > self.next.get(partition, offset):
            self.next[partition] = offset

    def skip(
        self, partition: int, to: int, count: int | None = None, unreadable: Unreadable | None = None
    ) -> None:
        """Nothing of `partition` can be had before offset `to`: announce it, and go on there. unreadable:
        why, if the broker still has it."""
        first = self.next[partition]
        if to > first:
            self.next[partition] = to
            self._put(_Skip(partition, first, to, count, unreadable))
        self.held.discard(partition)
        self.doubted.discard(partition)

    def grow(self, partitions: Sequence[int]) -> None:
        """New partitions join, from their offset 0."""
        for partition in partitions:
            self.next.setdefault(partition, 0)

    def end(self, error: Exception) -> None:
        """Nothing more will come: `take` raises the error after what waits. The first error counts."""
        if self._over is None:
            self._over = error
            self._something.set()

    # --- the source's side ---

    async def take(self) -> Batch:
        """The next batch; waits for one. Raises what the lease was ended with."""
        while not self._queue:
            if self._over is not None:
                raise self._over
            self._something = trio.Event()
            await self._something.wait()
        item = self._queue.popleft()
        if len(self._queue) == _WAITING - 1:
            self.on_room()
        return self._batch(item)

    def _put(self, item: Columns | _Skip) -> None:
        self._queue.append(item)
        self._something.set()

    def _batch(self, item: Columns | _Skip) -> Batch:
        for partition in self.next:
            self._taken.setdefault(partition, 0)  # one that has joined
        if isinstance(item, _Skip):
            self._taken[item.partition] = item.next
            gap = Gap({item.partition: (item.first, item.next - 1)}, item.count, item.unreadable)
            return Batch(dict(self._taken), (), (), self._nothing, 0, gap)
        starts = dict(self._taken)
        self._taken.update(item.ends)
        return Batch(starts, item.partitions, item.offsets, item.columns, item.cost)
