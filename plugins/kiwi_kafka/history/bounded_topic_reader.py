"""The part of a topic that is to be read again: from positions up to others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from kiwi_gw.api import Batch, Unreadable
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.ports import FetchedPartition, TopicDescription, TopicPartition


class BoundedTopicReader(TopicReader):
    """Read a topic again: nothing at or beyond `until` is read, and the ends may be moved on.

    `next` stops at the end of a partition wherever the consumer is by then, so that it goes on there when
    the end is moved.
    """

    def __init__(self, live: TopicReader, positions: Mapping[int, int]) -> None:
        info = TopicDescription(live.topic, live.topic_id, {})
        super().__init__(
            info, positions, headers=live.headers, follow_new_partitions=False, lineage=live.lineage
        )
        self.wanted = False  # whether a call waits for what is read
        self._until: dict[int, int] = {}

    @property
    def has_capacity(self) -> bool:
        return self.wanted

    def read_until(self, until: Mapping[int, int]) -> None:
        """Read up to there. A partition that the positions did not name is read from its first offset."""
        for partition in until:
            self.next.setdefault(partition, 0)
        self._until = dict(until)

    def fetch_positions(self) -> dict[TopicPartition, int]:
        """Return where to read on, of the partitions that have not arrived."""
        tps = super().fetch_positions()
        return {tp: offset for tp, offset in tps.items() if offset < self._end(tp.partition)}

    def new_partitions(self, partitions: Iterable[int]) -> list[int]:
        """Return none: the partitions are those of the positions."""
        return []

    def read_target(self, partition: int, end: int) -> int:
        """Return how far the partition is to be read, which ends at `end`."""
        return min(end, self._end(partition))

    def accept(self, fetched: Sequence[FetchedPartition]) -> int:
        """Take what a consumer has read, and throw away what lies beyond the ends."""
        return super().accept([self._cut(part) for part in fetched])

    def advance(self, partition: int, offset: int) -> None:
        """Pass offsets that hold no record."""
        super().advance(partition, min(offset, self._end(partition)))

    def skip(
        self, partition: int, to: int, count: int | None = None, unreadable: Unreadable | None = None
    ) -> None:
        """Give up what `partition` has before `to`; what lies beyond the end is not lost to this reader."""
        super().skip(partition, min(to, self._end(partition)), count, unreadable)

    def next_batch(self) -> Batch | None:
        """Return what waits; an empty batch with the ends if there is nothing more; None: read on.

        Raises what it was ended with, after what waits.
        """
        batch = self.take_nowait()
        if batch is None and all(offset >= self._end(partition) for partition, offset in self.next.items()):
            return self.take_nothing()
        return batch

    def turn_of(self, size: int, most: int) -> int:
        """Return how many records are about `size` bytes, going by those that came last, and at most
        `most`."""
        columns = self.newest
        if columns is None:
            return most
        return max(1, min(most, size * len(columns.offsets) // max(1, columns.cost)))

    def _cut(self, part: FetchedPartition) -> FetchedPartition:
        end = self._end(part.partition)
        if part.next <= end:
            return part
        count = bisect_left(part.records, end, key=lambda record: record.offset)
        # A position that began beyond the end stays where it is.
        return FetchedPartition(
            part.partition, part.records[:count], max(end, self.next[part.partition]), part.epoch
        )

    def _end(self, partition: int) -> int:
        return self._until.get(partition, 0)
