"""Values in Avro: one datum of a schema, which the configuration names or a registry has under an id."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from kiwi_gw.query.avro_bounds import check_bounds
from kiwi_gw.query.values import UNDECODABLE, Value

HEAD_BYTES: Final = 5
"""What stands before a datum of a registry's schema: a zero, and the id in 4 bytes, big-endian."""

_DEEPEST: Final = 100
"""Levels that the compiled reader is trusted with. It takes about 1.8 kB of the stack for each."""

MOST_PARTS: Final = 100_000
MOST_READS: Final = 3 * MOST_PARTS
"""Numbers, lengths and texts that a datum may have, and the same with all bytes of numbers: it is read in one
go. What is sent of so many is about a megabyte of JSON."""

_NUMBER_BYTES: Final = 10
"""Of the longest number."""

_WRAPPER: Final = "kiwi_gw_datum"
"""The name of the record around a schema. It has no namespace, and gives none to what is in it."""

_DAMAGED: Final = (
    ValueError,  # and text that is no UTF-8
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    ArithmeticError,
    RecursionError,
)


def schema_id(value: bytes) -> int | None:
    """Return the id of the schema that a value of a registry's topic names; None if it names none. Whether
    the registry knows it is another question."""
    if len(value) < HEAD_BYTES or value[0]:
        return None
    return int.from_bytes(value[1:HEAD_BYTES], "big")


def schema_head(schema_id: int) -> bytes:
    """Return what stands before a datum of the schema with this id."""
    return b"\0" + schema_id.to_bytes(HEAD_BYTES - 1, "big")


class RegisteredSchema:
    """A schema as a registry has it under an id. What has an id never changes: so the same bytes are read as
    the same value, whenever and for whomever they are. text: its own. size: characters of that, and of those
    of its references."""

    __slots__ = ("__weakref__", "_head", "_read", "id", "size", "text")

    def __init__(self, schema_id: int, text: str, references: Sequence[str] = ()) -> None:
        """Make it of JSON text. references: the schemas with the types that it names, each behind those that
        it names itself. Raises ValueError, in words: it cannot be used; ModuleNotFoundError: no package for
        Avro."""
        self.id, self.text = schema_id, text
        self.size = len(text) + sum(map(len, references))
        self._head = schema_head(schema_id)
        self._read = _reader(text, references, guarded=True)

    def __repr__(self) -> str:
        return f"RegisteredSchema({self.id})"

    def read(self, value: bytes) -> Value:
        """Read a value with its head; UNDECODABLE if it names another schema, or is damaged."""
        return self._read(value[HEAD_BYTES:]) if value.startswith(self._head) else UNDECODABLE


@lru_cache(maxsize=64)
def datum_reader(schema: str, *, guarded: bool = False) -> Callable[[bytes], Value]:
    """Return what reads one datum, without a head. guarded: the schema is not the operator's own. Raises as
    `RegisteredSchema`."""
    return _reader(schema, guarded=guarded)


def _reader(
    schema: str, references: Sequence[str] = (), *, guarded: bool = False
) -> Callable[[bytes], Value]:
    import fastavro

    parsed, named = parse(schema, references, in_record=True)
    try:
        if guarded:
            check_bounds(parsed["fields"][0]["type"], named)
        deep = _depth(parsed, named, {}) > _DEEPEST
    except RecursionError:
        raise ValueError("this is no Avro schema that can be used: it is nested too deeply") from None
    read_datum = _reader_in_python() if deep else fastavro.schemaless_reader
    has_bytes = any(map(_names_bytes, (schema, *references)))

    def read(value: bytes) -> Value:
        source = io.BytesIO(value) if len(value) <= MOST_PARTS else _CountingBytes(value)
        try:
            record: Any = read_datum(source, parsed, None)
            found = record["value"]
            if has_bytes:
                found = _text(found)
        except _DAMAGED:
            return UNDECODABLE
        return found if source.tell() == len(value) else UNDECODABLE

    return read


def _names_bytes(schema: str) -> bool:
    """Return whether values of a schema may hold bytes, which JSON has not. (Or a field is called so.)"""
    as_usual = msgspec.json.encode(msgspec.json.decode(schema))  # without escapes
    return b'"bytes"' in as_usual or b'"fixed"' in as_usual


class _CountingBytes(io.BytesIO):
    """Count what is read of a large datum. Raises ValueError where it is too much. The bytes of a number are
    read one by one, and all but the last have the highest bit. (A flag that has it counts as one of them.)"""

    _parts, _reads, _begun = MOST_PARTS, MOST_READS, 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self._reads -= 1
        if size == 1 and found >= b"\x80":
            self._begun += 1
        else:
            self._begun = 0
            self._parts -= 1
        if self._parts < 0 or self._reads < 0 or self._begun >= _NUMBER_BYTES:
            raise ValueError("the datum has too many parts")
        return found


def parse(
    schema: str, references: Sequence[str] = (), *, in_record: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Read the JSON text of a schema, without logical types. Returns it, and all named types by their full
    names. in_record: as the field `value` of a record, which has the same bytes: only with a record fastavro
    keeps the types of other schemas. Raises as `RegisteredSchema`."""
    import fastavro

    named: dict[str, Any] = {}
    try:
        for text in references:
            fastavro.parse_schema(_plain(msgspec.json.decode(text)), named)
        plain = _plain(msgspec.json.decode(schema))
        if in_record:
            plain = _wrapped(plain, named)
        return fastavro.parse_schema(plain, named), named
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"this is no Avro schema: {error}") from error


def _wrapped(schema: Any, named: Mapping[str, Any]) -> Any:
    if _WRAPPER.encode() in msgspec.json.encode([schema, *named]):
        raise ValueError(f"the name {_WRAPPER} is taken")
    return {"type": "record", "name": _WRAPPER, "fields": [{"name": "value", "type": schema}]}


def _plain(schema: Any) -> Any:
    """Leave out logical types: a timestamp is a number of milliseconds (or what it says), as in JSON."""
    if isinstance(schema, dict):
        return {name: _plain(part) for name, part in schema.items() if name != "logicalType"}
    return [_plain(part) for part in schema] if isinstance(schema, list) else schema


def _reader_in_python() -> Callable[..., Any]:
    """Return the slower reader of fastavro, which ends by RecursionError where the other one, which is
    compiled, runs out of the stack and takes the process with it."""
    from fastavro._read_py import schemaless_reader

    return schemaless_reader


def _depth(schema: Any, named: Mapping[str, Any], known: dict[str, float]) -> float:
    """Return how deep a value may be nested: infinitely, if a record may hold itself. known: of named types;
    infinite while they are looked at."""
    match schema:
        case list() if schema:
            return 1 + max(_depth(part, named, known) for part in schema)
        case str() if schema in known:
            return known[schema]
        case str() if schema in named:
            return _depth(named[schema], named, known)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            return 1 + _depth(inner, named, known)
        case {"type": "record" | "error", "name": name, "fields": fields}:
            known[name] = math.inf
            inner_depths = [_depth(field["type"], named, known) for field in fields]
            known[name] = 1 + max(inner_depths, default=0)
            return known[name]
        case {"type": dict() | list() as inner}:
            return _depth(inner, named, known)
    return 1


def _text(value: Any) -> Value:
    """Write bytes as base64 text."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(name): _text(part) for name, part in value.items()}
        case list():
            return [_text(part) for part in value]
    return value
