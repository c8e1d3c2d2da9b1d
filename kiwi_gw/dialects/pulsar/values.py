"""What the values and keys of records are read as: the way back of `schemas`.

By the `pulsar.schema` of the source, where that says a type, else by its `decode`. Without either (JSON is
what `decode` then says) what is no JSON is read as text, as `schema_type: none` has written it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.pulsar.settings import PulsarSchema, PulsarSource
from kiwi_gw.model import Decode, SourceInfo
from kiwi_gw.query.avro import datum_reader
from kiwi_gw.query.avro_writer import schema_text
from kiwi_gw.query.decode import decoded_column, objects
from kiwi_gw.query.values import UNDECODABLE

Columns = Mapping[str, Sequence[Any]]

ReadValues = Callable[[Columns], Sequence[Any]]
"""Makes of a batch's columns what msgspec writes as JSON; `UNDECODABLE` for what cannot be read."""

_check_json = msgspec.json.Decoder(Raw).decode
_UNREADABLE: Final = (ValueError, RecursionError)  # msgspec's errors are ValueErrors
_FIXED: Final[Mapping[str, str]] = {
    "BOOLEAN": ">?",
    "INT8": ">b",
    "INT16": ">h",
    "INT32": ">i",
    "INT64": ">q",
    "FLOAT": ">f",
    "DOUBLE": ">d",
}
_TYPES: Final[Mapping[str, str]] = {
    "json": "JSON",
    "string": "STRING",
    "int": "INT32",
    "long": "INT64",
    "binary": "BYTES",
    "avro": "AVRO",
}
"""What Pulsar calls what `Decode` has."""


def schema_read(info: SourceInfo) -> tuple[str, str]:
    """Return the type of the source's values, in Pulsar's words, and their definition, if they have one for
    all of them."""
    said = _said(info)
    if said.type == "NONE":
        kind = _TYPES[info.decode.value]
        return kind, info.decode.avro_schema if kind == "AVRO" else ""
    if said.definition is None or (said.type == "AVRO" and _by_registry(info.decode)):
        return said.type, ""
    return said.type, schema_text(said.definition)


def values_reader(info: SourceInfo) -> ReadValues:
    """Return what reads the values of a source. Where its events have no `value`, that is all that they
    have."""
    defined, decode = _said(info), info.decode
    said = defined.type
    if said == "JSON" or (said == "NONE" and decode.value == "json"):
        read: ReadValues = _each(_json if said == "JSON" else _json_or_text)
    elif said in _FIXED:
        read = _each(_fixed(_FIXED[said]))
    elif said == "STRING":
        read = _each(_text)
    elif said == "BYTES":
        read = _as_they_are
    elif said == "AVRO" and not _by_registry(decode):
        read = _each(datum_reader(schema_text(defined.definition)))
    else:
        read = _decoded(decode, "value")
    return lambda columns: read(columns) if "value" in columns else objects(list(columns), columns.values())


def keys_reader(decode: Decode) -> ReadValues:
    """Return what reads the keys of a source: of events that have none, null."""
    read = _decoded(decode, "key")
    return lambda columns: read(columns) if "key" in columns else ()


def _by_registry(decode: Decode) -> bool:
    return decode.registry and decode.value == "avro"


def _said(info: SourceInfo) -> PulsarSchema:
    block = info.blocks.get("pulsar")
    return block.values if isinstance(block, PulsarSource) else PulsarSchema()


def _decoded(decode: Decode, root: str) -> ReadValues:
    return lambda columns: decoded_column(decode, root, columns)


def _as_they_are(columns: Columns) -> Sequence[Any]:
    """Leave bytes as they are: msgspec writes them as base64."""
    return columns["value"]


def _each(read: Callable[[bytes], Any]) -> ReadValues:
    def values(columns: Columns) -> Sequence[Any]:
        return [read(value) if isinstance(value, bytes) else value for value in columns["value"]]

    return values


def _json(value: bytes) -> Any:
    """Return it as it is: numbers keep their digits. In one line, as it may have to fit into one."""
    try:
        checked = _check_json(value)
        if not value.isascii():
            str(value, "utf-8")
        return Raw(msgspec.json.format(value, indent=-1)) if b"\n" in value or b"\r" in value else checked
    except _UNREADABLE:
        return UNDECODABLE


def _json_or_text(value: bytes) -> Any:
    found = _json(value)
    return _text(value) if found is UNDECODABLE else found


def _text(value: bytes) -> Any:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        return UNDECODABLE


def _fixed(form: str) -> Callable[[bytes], Any]:
    packed = struct.Struct(form)

    def read(value: bytes) -> Any:
        return packed.unpack(value)[0] if len(value) == packed.size else UNDECODABLE

    return read
