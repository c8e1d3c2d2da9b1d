"""What Spark gets of the events of a source: key, value, partition, offset and timestamp of each.

The value is the event's member `value`, as the bytes that it holds; of an event that has none, the JSON
object of its members, less those that are the same for all. The key likewise is its member `key`, or null.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat

import msgspec

from kiwi_gw.api import Batch, Encoded, Field, Kind, SourceInfo, WireFormat
from kiwi_spark.bridge_wire import MAX_EVENT, packed

_NO_MEMBERS = (Kind.SOURCE_ID, Kind.SOURCE_TYPE)
_BYTES = (Kind.TEXT, Kind.BASE64, Kind.JSON)
_UNENCODABLE = (struct.error, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_encode = msgspec.json.Encoder().encode

Cells = Callable[[Batch], Sequence[bytes | None]]
"""Makes one column of bytes of a batch."""


def spark_events(info: SourceInfo) -> WireFormat:
    """How the events of a source are written for Spark (`bridge_wire.events` reads them)."""
    fields = {field.name: field for field in info.shape.fields if field.kind not in _NO_MEMBERS}
    key, value = fields.get("key"), fields.get("value")
    keys: Cells = _nothing if key is None else _member(key)
    values: Cells = _object(list(fields.values())) if value is None else _member(value)

    def rows(batch: Batch) -> list[bytes]:
        stamps = batch.columns.get("timestamp")
        times = repeat(-1) if stamps is None else map(_stamp, stamps)
        return packed(keys(batch), values(batch), batch.partitions, batch.offsets, times)

    def encode(batch: Batch) -> Encoded:
        try:
            found = rows(batch)
        except _UNENCODABLE:
            found = [_alone(rows, batch, index) for index in range(len(batch))]
        given_up = tuple(index for index, row in enumerate(found) if not 0 < len(row) <= MAX_EVENT)
        if not given_up:
            return Encoded(b"".join(found), array("Q", accumulate(map(len, found))))
        for index in given_up:  # told as a loss: to leave it out in silence would be one
            found[index] = b""
        tally = accumulate((bool(row) for row in found), initial=0)
        return Encoded(
            b"".join(found),
            array("Q", accumulate(map(len, found))),
            array("Q", tally),
            unsendable=given_up,
        )

    return WireFormat("kiwi_spark.bridge", encode)


def _alone(rows: Callable[[Batch], list[bytes]], batch: Batch, index: int) -> bytes:
    """One event, b"" if it cannot be written."""
    one = slice(index, index + 1)
    columns = {name: column[one] for name, column in batch.columns.items()}
    try:
        return rows(Batch(batch.starts, batch.partitions[one], batch.offsets[one], columns, 0))[0]
    except _UNENCODABLE:
        return b""


def _stamp(value: object) -> int:
    return value if isinstance(value, int) else -1


def _nothing(batch: Batch) -> Sequence[bytes | None]:
    return [None] * len(batch)


def _member(field: Field) -> Cells:
    """The bytes of one member, null where it is null."""
    name = field.source_column
    if field.kind in _BYTES:
        return lambda batch: [_bytes(value) for value in batch.column(name)]
    return lambda batch: [_written(_json(field, value)) for value in batch.column(name)]


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"{type(value).__name__} where bytes belong")


def _written(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else _encode(value)


def _object(fields: Sequence[Field]) -> Cells:
    """The JSON objects of these members."""

    def members(*values: object) -> bytes:
        found: dict[str, object] = {}
        for field, value in zip(fields, values, strict=True):
            found[field.name] = written = _json(field, value)
            if field.kind is Kind.TEXT and field.twin and written is None and value is not None:
                found[f"{field.name}Base64"] = value
        return _encode(found)

    def cells(batch: Batch) -> Sequence[bytes | None]:
        if not fields:
            return [b"{}"] * len(batch)
        return list(map(members, *(batch.column(field.source_column) for field in fields)))

    return cells


def _json(field: Field, value: object) -> object:
    """A value as msgspec writes it (bytes as base64), for the kinds as clients see them."""
    if value is None or (field.kind is Kind.INT and value == field.none):
        return None
    if field.kind is Kind.TEXT and isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if field.kind is Kind.JSON and isinstance(value, bytes):
        return msgspec.Raw(value)
    if field.kind is Kind.HEADERS and isinstance(value, Iterable):
        return [{"key": name, "value": content} for name, content in value]
    return value
