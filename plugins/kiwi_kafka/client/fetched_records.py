"""The records of one partition in the answer to one fetch.

A log is a run of batches, each with a head of fixed size (Kafka protocol guide, record batch). aiokafka's
decoder makes records of a batch; it takes them by the thousand, in C.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

from aiokafka import errors as kafka_errors
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

_HEAD: Final = Struct(">qiib")
"""Of a batch: first offset, length of what follows it, epoch of the leader that took it, version of the
format."""
_BEFORE_LENGTH_COUNTS: Final = 12
_WITH_EPOCHS: Final = 2
"""The version of the format that has epochs. In older ones the first offset is the last."""
_LAST: Final = Struct(">i")
_LAST_AT: Final = 23
"""Where in such a batch its last offset stands, from the first one."""


class _BatchBounds(NamedTuple):
    """Say where a batch begins and ends in bytes, and which offsets are its first and the one behind it."""

    begin: int
    end: int
    first: int
    behind: int
    has_epochs: bool


def _bounds(data: bytes | memoryview) -> Iterator[_BatchBounds]:
    """Walk over the whole batches, by their heads."""
    at, size = 0, len(data)
    while at + _HEAD.size <= size:
        first, length, _, version = _HEAD.unpack_from(data, at)
        end = at + _BEFORE_LENGTH_COUNTS + length
        if end > size or length <= 0:
            return
        has_epochs = version >= _WITH_EPOCHS
        last = _LAST.unpack_from(data, at + _LAST_AT)[0] if has_epochs and length > _LAST_AT else 0
        yield _BatchBounds(at, end, first, first + 1 + last, has_epochs)
        at = end


def whole_batches(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Find the whole batches in what was fetched from `offset` on. Returns the offset behind them, and how
    many bytes they are. Those in another version of the format than the first ones do not count, for the
    decoder cannot read both; they are fetched again."""
    end, format_began = 0, None
    for batch in _bounds(data):
        if format_began not in (None, batch.has_epochs):
            break
        format_began, end = batch.has_epochs, batch.end
        offset = max(offset, batch.behind)
    return offset, end


class FetchedRecords:
    """Decode what was fetched of one partition from `next` on, as it is taken.

    aborted: producers and first offsets of the transactions in it that were aborted; their records are left
    out, and so are the markers of transactions.
    next: the offset behind what was taken. epoch: of the batch before it; -1 where it is not known.
    """

    def __init__(self, data: bytes, offset: int, aborted: Collection[tuple[int, int]]) -> None:
        self.next = offset
        self.epoch = -1
        self.has_more = True
        self._data = data
        self._at = 0
        self._batches: Any = None
        self._aborted = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()
        self._batch: Any = None
        self._problem: Exception | None = None
        self._left: Iterator[Any] = iter(())

    def take(self, most: int) -> list[Any]:
        """Return the next records, at most `most`. Raises whatever decoding a batch raises, when what stands
        before it was taken, and from then on; `next` is within that batch or before it."""
        taken: list[Any] = []
        while len(taken) < most:
            if self._problem is not None:
                if taken:
                    break
                raise self._problem
            try:
                if self._batch is None and not self._open():
                    self.has_more = False
                    break
                records = list(islice(self._left, most - len(taken)))
            except Exception as error:  # noqa: BLE001  (whatever the decoder raises)
                self._problem = error
                continue
            first = self.next
            if len(records) == most - len(taken):
                self.next = max(first, records[-1].offset + 1)
            else:
                # Behind the batch and not behind its last record, which compaction may have removed.
                self.next = max(first, self._batch.next_offset)
                self._batch = None
            if records and records[0].offset < first:  # a fetch begins with a whole batch
                records = [record for record in records if record.offset >= first]
            taken += records
        return taken

    def _open(self) -> bool:
        """Go on to the next batch with records. Returns whether there is one."""
        if self._batches is None:
            self._batches = MemoryRecords(self._data)
        while self._batches.has_next():
            batch = self._batches.next_batch()
            if not batch.validate_crc():
                raise kafka_errors.CorruptRecordException("Invalid CRC")
            _, length, epoch, version = _HEAD.unpack_from(self._data, self._at)
            self._at += _BEFORE_LENGTH_COUNTS + length
            self.epoch = epoch if version >= _WITH_EPOCHS else -1
            if not self._is_left_out(batch):
                self._batch = batch
                self._left = filter(None, batch)  # the batch itself can only be iterated in one go
                return True
            self.next = max(self.next, batch.next_offset)
        return False

    def _is_left_out(self, batch: Any) -> bool:
        producer = batch.producer_id
        if producer is None:  # a format without transactions
            return False
        while self._aborted and self._aborted[-1][1] <= batch.base_offset:
            self._aborting.add(self._aborted.pop()[0])
        if batch.is_control_batch:
            record = next(batch, None)  # compaction keeps empty ones
            if record is not None and ControlRecord.parse(record.key) == ABORT_MARKER:
                self._aborting.discard(producer)
            return True
        return batch.is_transactional and producer in self._aborting


def first_corrupt_batch(data: bytes) -> tuple[int, int, int] | None:
    """Return first and next offset of the first batch that cannot be decoded, and its end in `data`.

    Batches of older formats only say where they end: their first offset is where the one before ended, or 0.
    """
    behind = 0
    for begin, end, first, next_offset, has_epochs in _bounds(data):
        bounds = (first if has_epochs else behind, next_offset, end)
        behind = next_offset
        try:
            batch = MemoryRecords(data[begin:end]).next_batch()
            if not batch.validate_crc():
                return bounds
            for _ in batch:
                pass
        except Exception:  # noqa: BLE001  (whatever the decoder raises is what is looked for)
            return bounds
    return None
