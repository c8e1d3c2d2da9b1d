"""Records that are on their way to one partition, as a batch of Kafka's format (version 2)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kiwi_gw.api import Outgoing

_BATCH_BYTES: Final = 512 * 1024
"""A batch with more than one record is not larger: half of what brokers take if nobody has set it."""
_SHORT_KEY: Final = 64
_MAGIC, _UNCOMPRESSED = 2, 0


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

    def add(self, place: int, record: Outgoing) -> bool:
        """Take a record, if there is room. The first one has room in any case."""
        if not _append(self._builder, len(self.places), record):
            return False
        self.places.append(place)
        self._records.append(record)
        return True

    def encode(self, sequence: RecordSequence) -> bytes:
        """Return its bytes, the same as long as the sequence is."""
        if self._data is None or self._data[0] != sequence:
            if self._data is not None:
                self._builder = _new_builder()
                for offset, record in enumerate(self._records):
                    _append(self._builder, offset, record)
            self._builder.set_producer_state(*sequence)
            self._data = sequence, bytes(self._builder.build())
        return self._data[1]

    def halves(self) -> list[OutgoingBatch]:
        """Return two batches with its records."""
        middle = len(self.places) // 2
        parts = []
        for part in (slice(None, middle), slice(middle, None)):
            half = OutgoingBatch(self.partition)
            for place, record in zip(self.places[part], self._records[part], strict=True):
                half.add(place, record)
            parts.append(half)
        return parts


_hashed = lru_cache(maxsize=8_192)(murmur2)
"""aiokafka hashes byte by byte, and most keys come again."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's client chooses for a key, of so many."""
    hashed: int = _hashed(key) if len(key) <= _SHORT_KEY else murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions


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


def _append(builder: Any, offset: int, record: Outgoing) -> bool:
    key, value, headers, timestamp, _ = record
    return builder.append(offset, timestamp, key, value, list(headers)) is not None
