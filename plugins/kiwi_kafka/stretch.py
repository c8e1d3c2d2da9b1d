"""What is to be read again of a topic: from positions up to others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from kiwi_gw.api import Batch, Unreadable
from kiwi_kafka.columns import Columns, Fetched
from kiwi_kafka.lease import Lease
from kiwi_kafka.seam import Place, TopicView


class Stretch(Lease):
    """A lease of history: nothing at or beyond `until` is read, and the ends may be moved on.

    `next` stops at the end of a partition wherever the consumer is by then, so that it goes on there when
    the end is moved.
    """

    def __init__(self, live: Lease, positions: Mapping[int, int]) -> None:
        view = TopicView(live.topic, live.topic_id, {})
        super().__init__(view, positions, headers=live.headers, follow=False, lineage=live.lineage)
        self.wanted = False  # whether somebody waits for what is read
        self._until: dict[int, int] = {}

    @property
    def has_room(self) -> bool:
        return self.wanted

    def aim(self, until: Mapping[int, int]) -> None:
        """Read up to there. A partition that the positions did not name is read from its first offset."""
        for partition in until:
            self.next.setdefault(partition, 0)
        self._until = dict(until)

    def places(self) -> dict[Place, int]:
        """Where to read on, of the partitions that have not arrived."""
        places = super().places()
        return {place: offset for place, offset in places.items() if offset < self._end(place.partition)}

    def added(self, partitions: Iterable[int]) -> list[int]:
        """None: the partitions are those of the positions."""
        return []

    def goal(self, partition: int, end: int) -> int:
        """How far the partition is to be read, which ends at `end`."""
        return min(end, self._end(partition))

    def offer(self, fetched: Sequence[Fetched]) -> int:
        """What a consumer has read: what lies beyond the ends is thrown away."""
        return super().offer([self._cut(part) for part in fetched])

    def advance(self, partition: int, offset: int) -> None:
        """The reader has passed offsets that hold no record."""
        super().advance(partition, min(offset, self._end(partition)))

    def skip(
        self, partition: int, to: int, count: int | None = None, unreadable: Unreadable | None = None
    ) -> None:
        """Nothing of `partition` can be had before offset `to`; what lies beyond the end is no loss of
        this reader's."""
        super().skip(partition, min(to, self._end(partition)), count, unreadable)

    def next_batch(self) -> Batch | None:
        """What waits; an empty batch with the ends if there is nothing more; None: read on.

        Raises what it was ended with, after what waits.
        """
        if self._queue:
            return self._batch(self._queue.popleft())
        if self._over is not None:
            raise self._over
        if any(offset < self._end(partition) for partition, offset in self.next.items()):
            return None
        self._taken = dict(self.next)
        return Batch(dict(self._taken), (), (), self._nothing, 0)

    def turn_of(self, size: int, most: int) -> int:
        """How many records are about `size` bytes, going by those that came last, and at most `most`."""
        columns = self._queue[-1] if self._queue else None
        if not isinstance(columns, Columns):
            return most
        return max(1, min(most, size * len(columns.offsets) // max(1, columns.cost)))

    def _cut(self, part: Fetched) -> Fetched:
        end = self._end(part.partition)
        if part.next <= end:
            return part
        count = bisect_left(part.records, end, key=lambda record: record.offset)
        # A position that began beyond the end stays where it is.
        return Fetched(part.partition, part.records[:count], max(end, self.next[part.partition]), part.epoch)

    def _end(self, partition: int) -> int:
        return self._until.get(partition, 0)
