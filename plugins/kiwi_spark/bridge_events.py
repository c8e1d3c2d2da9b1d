"""What Spark gets of the events of a source: key, value, partition, offset and timestamp of each.

The value is the event's member `value`, as the bytes that it holds; of an event that has none, the JSON
object of its members, less those that are the same for all. The key likewise is its member `key`, or null.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kiwi_gw.api import Batch, Encoded, Field, Kind, SourceInfo, WireFormat
from kiwi_spark.bridge_wire import MAX_EVENT, event

_NO_MEMBERS = (Kind.SOURCE_ID, Kind.SOURCE_TYPE)
_BYTES = (Kind.TEXT, Kind.BASE64, Kind.JSON)
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_encode = msgspec.json.Encoder().encode

Cell = Callable[[Batch, int], bytes | None]


def spark_events(info: SourceInfo) -> WireFormat:
    """How the events of a source are written for Spark (`bridge_wire.events` reads them)."""
    fields = {field.name: field for field in info.shape.fields if field.kind not in _NO_MEMBERS}
    key, value = fields.get("key"), fields.get("value")
    read_key: Cell = _nothing if key is None else _member(key)
    read_value: Cell = _object(list(fields.values())) if value is None else _member(value)

    def encode(batch: Batch) -> Encoded:
        buffer = bytearray()
        ends, tally, given_up = array("Q"), array("Q", (0,)), []
        stamps: Sequence[object] = batch.columns.get("timestamp", ())
        rows = zip(batch.partitions, batch.offsets, strict=True)
        for index, (partition, offset) in enumerate(rows):
            stamp = stamps[index] if stamps else -1
            try:
                row = event(
                    read_key(batch, index),
                    read_value(batch, index),
                    partition,
                    offset,
                    stamp if isinstance(stamp, int) else -1,
                )
            except _UNENCODABLE:
                row = b""
            if row and len(row) <= MAX_EVENT:
                buffer += row
            else:
                given_up.append(index)  # told as a loss: to leave it out in silence would be one
            ends.append(len(buffer))
            tally.append(index + 1 - len(given_up))
        return Encoded(bytes(buffer), ends, tally if given_up else None, unsendable=tuple(given_up))

    return WireFormat("kiwi_spark.bridge", encode)


def _nothing(batch: Batch, index: int) -> bytes | None:
    return None


def _member(field: Field) -> Cell:
    """The bytes of one member, null if it is null."""
    name = field.source_column
    if field.kind in _BYTES:

        def as_it_is(batch: Batch, index: int) -> bytes | None:
            value = batch.column(name)[index]
            if value is not None and not isinstance(value, bytes):
                raise TypeError(f"{name!r} holds {type(value).__name__} where bytes belong")
            return value

        return as_it_is

    def written(batch: Batch, index: int) -> bytes | None:
        value = _json(field, batch.column(name)[index])
        if value is None or isinstance(value, str):
            return None if value is None else value.encode()
        return _encode(value)

    return written


def _object(fields: Iterable[Field]) -> Cell:
    """The JSON object of these members."""
    listed = list(fields)

    def written(batch: Batch, index: int) -> bytes | None:
        members: dict[str, object] = {}
        for field in listed:
            value = batch.column(field.source_column)[index]
            members[field.name] = _json(field, value)
            if field.kind is Kind.TEXT and field.twin and members[field.name] is None and value is not None:
                members[f"{field.name}Base64"] = value
        return _encode(members)

    return written


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
