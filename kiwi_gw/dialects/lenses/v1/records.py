"""The records in a KAFKAMSG (document 000, Subscription): one fragment each, a JSON object and a comma.

Theory of operation. As in `kiwi_gw.dialects.encoder`: columns become rows of a msgspec struct at C speed,
with a closer look only where a column holds something else than is expected. Nothing in a fragment is a
client's own, so that all who read a table the same way share its bytes; what stands around them is each
frame's.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES, UNENCODABLE
from kiwi_gw.dialects.lenses.decoders import column_writer, json_text
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Decode, Encoded, WireFormat
from kiwi_gw.query.decode import objects
from kiwi_gw.query.filtered import PROJECTION

SEPARATOR: Final = 1
"""Bytes behind every fragment that are left out behind the last one of a frame: a comma."""

_encode = msgspec.json.Encoder().encode


class _Row(Struct, gc=False):  # it lives for a microsecond
    key: Any
    value: Any
    topic: Raw
    partition: int
    offset: int
    timestamp: int


def records_wire(
    table: str, decode: Decode, *, projects: bool = False, max_event_bytes: int = MAX_EVENT_BYTES
) -> WireFormat:
    """Make the wire format of a table; equal ones are one object. decode: how its bytes are read. projects:
    the value is what a query makes of it. max_event_bytes: of a fragment; a larger one is unsendable."""
    return _wire(table, decode, projects, max_event_bytes)


@lru_cache(maxsize=1024)
def _wire(table: str, decode: Decode, projects: bool, max_event_bytes: int) -> WireFormat:
    key = f"lenses v1 {(table, decode, projects, max_event_bytes)!r}"
    return WireFormat(key, RecordEncoder(table, decode, projects, max_event_bytes))


def _times(column: Sequence[object]) -> Iterable[object]:
    """Return -1 for what is no time of a record: a source may call so what it likes."""
    if isinstance(column, array) or set(map(type, column)) <= {int}:
        return column
    return [each if type(each) is int else -1 for each in column]


class RecordEncoder:
    """Make the fragments of a batch. One record that cannot be decoded yields nothing and is `decode_errors`;
    one that is too large yields nothing and is `unsendable`. One that cannot be decoded is `failing`, if the
    source says so.
    """

    __slots__ = ("_close", "_max_event_bytes", "_projects", "_topic", "_write_key", "_write_value")

    def __init__(self, table: str, decode: Decode, projects: bool, max_event_bytes: int) -> None:
        self._topic = Raw(_encode(table))
        self._write_key = column_writer(decode, "key")
        self._write_value = column_writer(decode, "value")
        self._projects = projects
        self._max_event_bytes = max_event_bytes
        self._close = decode.close

    def __call__(self, batch: Batch) -> Encoded:
        try:
            lines = list(map(_encode, self._rows(batch)))
        except UNENCODABLE:
            return self._one_by_one(batch)
        if len(lines) != len(batch):
            raise EncodingFailed(f"a batch of {len(batch)} events has columns of {len(lines)} values")
        lengths = [len(line) + SEPARATOR for line in lines]
        if lines and max(lengths) > self._max_event_bytes:
            return self._one_by_one(batch)
        lines.append(b"")
        return Encoded(b",".join(lines), array("Q", accumulate(lengths)))

    def _rows(self, batch: Batch) -> Iterator[_Row]:
        size, columns = len(batch), batch.columns
        keys = self._write_key(columns) if "key" in columns else repeat(UNSET, size)
        timestamps = _times(columns["timestamp"]) if "timestamp" in columns else repeat(-1, size)
        values = self._values(batch)
        return map(_Row, keys, values, repeat(self._topic), batch.partitions, batch.offsets, timestamps)

    def _values(self, batch: Batch) -> Sequence[object] | Any:
        columns = batch.columns
        if self._projects:
            return map(bytes.decode, columns[PROJECTION])  # type: ignore[arg-type]
        if "value" in columns:
            return self._write_value(columns)
        return map(json_text, objects(list(columns), columns.values()))

    def _one_by_one(self, batch: Batch) -> Encoded:
        buffer = bytearray()
        ends, prefix_counts = array("Q"), array("Q", (0,))
        unsendable: list[int] = []
        decode_errors = 0
        failing: list[int] = []
        for index, row in enumerate(self._rows(batch)):
            try:
                line = _encode(row) + b","
            except UNENCODABLE:
                if self._close:
                    failing.append(index)
                else:
                    decode_errors += 1
            else:
                if len(line) > self._max_event_bytes:
                    unsendable.append(index)
                else:
                    buffer += line
            ends.append(len(buffer))
            prefix_counts.append(prefix_counts[-1] + (ends[-1] > (ends[-2] if index else 0)))
        return Encoded(
            bytes(buffer),
            ends,
            prefix_counts,
            unsendable=tuple(unsendable),
            decode_errors=decode_errors,
            failing=tuple(failing),
        )
