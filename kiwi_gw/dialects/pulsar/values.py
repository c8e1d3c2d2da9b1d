"""What the values and keys of records are read as: the way back of `schemas`.

By what a client has said (`ReadAs`), else by the `pulsar.schema` of the source, where that says a type, else
by its `decode`. Without any (JSON is what `decode` then says) what is no JSON is read as text, as
`schema_type: none` has written it. What names a schema of a registry is read by that, whatever is said.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.pulsar.schemas import SchemaInfo
from kiwi_gw.dialects.pulsar.topics import declared_schema, uses_registry
from kiwi_gw.model import Decode, SourceInfo
from kiwi_gw.query.avro import datum_reader, schema_id
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


@dataclass(frozen=True, slots=True)
class PulsarType:
    """What values, or keys, are: their type as Pulsar has it, in capitals, and its definition, if it has
    one."""

    type: str
    definition: str = ""

    @classmethod
    def of(cls, info: SchemaInfo) -> Self:
        """Return that of a schema, which can be used."""
        defined = info.schema not in (None, "", {})
        return cls(info.type.upper(), schema_text(info.schema) if defined else "")


@dataclass(frozen=True, slots=True)
class ReadAs:
    """What clients have said that values and keys are. None: what the source says."""

    value: PulsarType | None = None
    key: PulsarType | None = None


AS_THE_SOURCE_SAYS: Final = ReadAs()


def schema_read(info: SourceInfo) -> PulsarType:
    """Return what the source's values are, with the definition if they have one for all of them."""
    said = PulsarType.of(declared_schema(info))
    if said.type == "NONE":
        kind = _TYPES[info.decode.value]
        return PulsarType(kind, info.decode.avro_schema if kind == "AVRO" else "")
    return PulsarType("AVRO") if said.type == "AVRO" and uses_registry(info, "value") else said


def values_reader(info: SourceInfo, asked: PulsarType | None = None) -> ReadValues:
    """Return what reads the values of a source. asked: what a client says that they are. Where its events
    have no `value`, that is all that they have."""
    said, named = asked or PulsarType.of(declared_schema(info)), uses_registry(info, "value")
    says_nothing = said.type == "NONE" and info.decode.value != "json"
    if asked is None and (says_nothing or (said.type == "AVRO" and named)):
        read = _decoded(info.decode, "value")
    else:
        read = _read_as(said, "value", info.decode if named else None, guarded=asked is not None)
    return lambda columns: read(columns) if "value" in columns else objects(list(columns), columns.values())


def keys_reader(info: SourceInfo, asked: PulsarType | None = None) -> ReadValues:
    """Return what reads the keys of a source: of events that have none, null."""
    if asked is None:
        read = _decoded(info.decode, "key")
    else:
        read = _read_as(asked, "key", info.decode if uses_registry(info, "key") else None, guarded=True)
    return lambda columns: read(columns) if "key" in columns else ()


def _decoded(decode: Decode, root: str) -> ReadValues:
    return lambda columns: decoded_column(decode, root, columns)


def _read_as(kind: PulsarType, root: str, decode: Decode | None, *, guarded: bool) -> ReadValues:
    """Return what reads a column as what it is said to be. decode: of what names schemas of a registry.
    guarded: a client says so."""
    read = _reader(kind, guarded=guarded)
    may_be_json = read in (_json, _json_or_text)

    def each(columns: Columns) -> Sequence[Any]:
        if may_be_json and (found := _all_json(columns[root])) is not None:
            return found
        return [read(value) if isinstance(value, bytes) else value for value in columns[root]]

    def each_without_schema(columns: Columns) -> Sequence[Any]:
        named = decoded_column(decode, root, columns) if decode is not None else ()
        pairs = zip(columns[root], named, strict=True)
        return [read(b) if isinstance(b, bytes) and schema_id(b) is None else found for b, found in pairs]

    return each if decode is None else each_without_schema


def _reader(kind: PulsarType, *, guarded: bool) -> Callable[[bytes], Any]:
    """Return what reads bytes of a type. Those of BYTES stay, for msgspec writes them as base64."""
    if kind.type in _FIXED:
        return _fixed(_FIXED[kind.type])
    if kind.type == "AVRO":
        return datum_reader(kind.definition, guarded=guarded)
    return {"JSON": _json, "STRING": _text, "BYTES": _itself}.get(kind.type, _json_or_text)


def _itself(value: bytes) -> bytes:
    return value


def _all_json(column: Sequence[Any]) -> Sequence[Raw] | None:
    """Return what `_json` makes of each value, sooner; None if any is none, or is not in one line."""
    try:
        together = b",".join(column)
        if b"\n" in together or b"\r" in together:
            return None
        if not together.isascii():
            str(together, "utf-8")
        return list(map(_check_json, column))
    except (TypeError, *_UNREADABLE):  # TypeError: some are null, or text already
        return None


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
