"""The rows of a statement of more than one record: a frame RECORD for each (document 001, Record).

A row of groups has an id, made of what the group has in common: one with the same id takes its place. A row
of `SELECT * ... ORDER BY` is a record with its place, one of `SELECT DISTINCT *` the value of one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal
from uuid import UUID, uuid5

import msgspec
from msgspec import UNSET, Raw, Struct

from kiwi_gw.dialect_api.frames import text_frame
from kiwi_gw.dialects.lenses.v2.messages import Record, RecordData, RecordMetadata
from kiwi_gw.dialects.lenses.v2.timestamps import time_of
from kiwi_gw.model import Batch, Encoded, WireFormat

BEYOND: Final = "beyond"
"""What is counted: rows that are too many."""

_ROWS: Final = UUID("0d7a1c55-6f3c-4a0e-9b53-0a4f3b0a9f0e")

_encode = msgspec.json.Encoder().encode


class _Whole(Struct):
    """A record as the engine gives it."""

    value: Raw
    offset: int
    partition: int
    timestamp: int | None
    key_size: int
    value_size: int
    key: Raw = Raw(b"null")


class _Value(Struct):
    """One of the values of records as the engine gives it."""

    value: Raw


_read_value = msgspec.json.Decoder(_Value).decode
_read_whole = msgspec.json.Decoder(_Whole).decode


Form = Literal["columns", "records", "values"]
"""What rows are: columns, whole records, or the values of those."""


def rows_wire(form: Form, iso: bool, most_rows: int, max_event_bytes: int) -> WireFormat:
    """Make the wire format of a result, which nobody else has: its key is equal to no other. iso: whether
    times of records are text. most_rows: those beyond yield nothing, and are counted."""
    return WireFormat(object(), RowFrames(form, iso, most_rows, max_event_bytes), chosen=True)


class RowFrames:
    """Make the frames of a batch of rows. One that is too large yields nothing and is `unsendable`."""

    __slots__ = ("_form", "_iso", "_max_event_bytes", "_most_rows")

    def __init__(self, form: Form, iso: bool, most_rows: int, max_event_bytes: int) -> None:
        self._form, self._iso = form, iso
        self._most_rows = most_rows
        self._max_event_bytes = max_event_bytes

    def __call__(self, batch: Batch) -> Encoded:
        frames: list[bytes] = []
        unsendable: list[int] = []
        for index, message in enumerate(self._messages(batch)):
            frame = text_frame(_encode(message)) if batch.offsets[index] < self._most_rows else b""
            if len(frame) > self._max_event_bytes:
                unsendable.append(index)
                frame = b""
            frames.append(frame)
        ends = array("Q", accumulate(map(len, frames)))
        there = array("Q", accumulate(map(bool, frames), initial=0))
        over = array("Q", accumulate((offset >= self._most_rows for offset in batch.offsets), initial=0))
        return Encoded(b"".join(frames), ends, there, {BEYOND: over}, tuple(unsendable))

    def _messages(self, batch: Batch) -> Iterator[Record]:
        columns: Mapping[str, Sequence[Any]] = batch.columns
        for key, value, number in zip(columns["key"], columns["value"], batch.offsets, strict=True):
            if self._form == "records":
                yield self._record(_read_whole(value), number)
            else:
                row = uuid5(_ROWS, str(number) if key is None else f"key {str(key, 'utf-8')}")
                shown = _read_value(value).value if self._form == "values" else Raw(value)
                yield Record(RecordData(shown, number), str(row), None)

    def _record(self, row: _Whole, number: int) -> Record:
        timestamp = time_of(row.timestamp) if self._iso else row.timestamp
        place = RecordMetadata(row.offset, row.partition, timestamp, row.key_size, row.value_size)
        key = UNSET if bytes(row.key) == b"null" else row.key
        return Record(RecordData(row.value, number, key, place))
