"""Records that are on their way to one partition, as a batch of Kafka's format (version 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kiwi_gw.api import Outgoing

_BATCH_BYTES: Final = 512 * 1024
"""A batch with more than one record is not larger: half of what brokers take if nobody has set it."""
_SHORT_KEY: Final = 64
_MAGIC, _UNCOMPRESSED = 2, 0
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []


class RecordSequence(NamedTuple):
    """Say who has written a batch, so that a broker knows one that comes again.

    first: the number of its first record, among those of its producer in its partition.
    """

    producer_id: int
    epoch: int
    first: int


class OutgoingBatch:
    """Collect records of one partition.

    places: where each record stands among those that were handed over together. in_doubt: it was sent, and
    no answer says that it was not written.
    """

    __slots__ = ("_builder", "_data", "_records", "in_doubt", "partition", "places")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.places: list[int] = []
        self.in_doubt = False
        self._records: list[Outgoing] = []
        self._builder = _new_builder()
        self._data: tuple[RecordSequence, bytes] | None = None

    def add(self, places: Sequence[int], records: Sequence[Outgoing]) -> int:
        """Take records as far as there is room, and return how many. A first one has room in any case."""
        taken = _append(self._builder, len(self.places), records)
        self.places += places[:taken]
        self._records += records[:taken]
        return taken

    def encode(self, sequence: RecordSequence) -> bytes:
        """Return its bytes, the same as long as the sequence is."""
        if self._data is None or self._data[0] != sequence:
            if self._data is not None:
                self._builder = _new_builder()
                _append(self._builder, 0, self._records)
            self._builder.set_producer_state(*sequence)
            self._data = sequence, bytes(self._builder.build())
        return self._data[1]

    def halves(self) -> list[OutgoingBatch]:
        """Return batches with its records: two, or more where they do not fit into two."""
        middle, all_of_them = len(self.places) // 2, range(len(self.places))
        return [batch for part in (all_of_them[:middle], all_of_them[middle:]) for batch in self.only(part)]

    def only(self, indexes: Sequence[int]) -> list[OutgoingBatch]:
        """Return batches with these of its records."""
        places = [self.places[index] for index in indexes]
        return list(batches_of(self.partition, places, [self._records[index] for index in indexes]))


def batches_of(partition: int, places: Sequence[int], records: Sequence[Outgoing]) -> Iterator[OutgoingBatch]:
    """Put records into as many batches as they need."""
    first = 0
    while first < len(records):
        batch = OutgoingBatch(partition)
        first += batch.add(places[first:], records[first:])
        yield batch


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's client chooses for a key, of so many. Hashing takes 0.1 us a byte."""
    return _partition_of(key, partitions) if len(key) <= _SHORT_KEY else _hashed(key, partitions)


def _hashed(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


_partition_of = lru_cache(maxsize=8_192)(_hashed)
"""Most keys come again."""


def _new_builder() -> Any:
    return DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=_UNCOMPRESSED,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_BATCH_BYTES,
    )


def _append(builder: Any, first: int, records: Sequence[Outgoing]) -> int:
    """Write records as far as there is room, the first with this offset. Returns how many."""
    append = builder.append
    for offset, (key, value, headers, timestamp, _) in enumerate(records, first):
        if append(offset, timestamp, key, value, list(headers) if headers else _NO_HEADERS) is None:
            return offset - first
    return len(records)
