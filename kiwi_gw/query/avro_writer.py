"""One datum of an Avro schema, made of a JSON value: the way back of `avro`, with bytes as base64 text.

Theory of operation. A schema becomes functions, one for each of its types, which write a value or say what is
wrong with it. Which branch of a union a value belongs to is decided by what it is in JSON, and where that may
be several records by the branch's name, as in Avro's JSON encoding (`{"name": {...}}`); never by trying them,
which may take as long as two to the power of a value's depth.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from kiwi_gw.query.avro import parse

MOST_SCHEMA: Final = 32 * 1024
"""Characters of a schema's text: to read one of nothing but names takes 15 ms."""

MOST_FIELDS: Final = 250_000
"""Members that a datum is written of, those that have their defaults, too, and bytes of the JSON of these:
some 30 ms."""
MOST_DATUM: Final = 1 << 20
"""Bytes of a datum."""

Write = Callable[[Any, bytearray], None]
"""Writes a value behind what is there. ValueError: why it cannot be."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_TOO_DEEP: Final = "this is no Avro schema that can be used: it is nested too deeply"
_NUMBERS: Final = ("int", "long", "float", "double")


@lru_cache(maxsize=64)
def datum_writer(schema: str, references: tuple[str, ...] = ()) -> Callable[[Any], bytes]:
    """Return what writes one datum, without a head. references: as `RegisteredSchema` has them. Raises
    ValueError, in words: the schema cannot be used; ModuleNotFoundError: no package for Avro."""
    if len(schema) + sum(map(len, references)) > MOST_SCHEMA:
        raise ValueError(f"an Avro schema has {MOST_SCHEMA:,} characters at most")
    try:
        parsed, named = parse(schema, references)
        writers = _Writers(named)
        write_datum = writers.of(parsed)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None

    def write(value: Any) -> bytes:
        out = bytearray()
        writers.fields_left = MOST_FIELDS
        try:
            write_datum(value, out)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return bytes(out)

    return write


class _Writers:
    """Makes the functions of one schema. named: its named types, by their full names. fields_left: of the
    datum that is written: defaults that have members with defaults may be any number of them."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.fields_left = 0
        self._named = named
        self._made: dict[str, Write] = {}

    def of(self, schema: Any) -> Write:
        match schema:
            case str() if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            case str():
                return self._of_name(schema)
            case list():
                return self._union(schema)
            case {"type": "record" | "error", "name": name}:
                return self._of_name(name, schema)
            case {"type": "enum", "symbols": symbols}:
                return _enum(symbols)
            case {"type": "fixed", "size": size}:
                return _fixed(size)
            case {"type": "array", "items": items}:
                return _array(self.of(items))
            case {"type": "map", "values": values}:
                return _map(self.of(values))
            case {"type": inner}:
                return self.of(inner)
        raise ValueError(f"this is no Avro schema: {schema!r:.40}")

    def _of_name(self, name: str, schema: Any = None) -> Write:
        """Make that of a named type, which may name itself."""
        if name not in self._made:
            found = self._named[name] if schema is None else schema
            if found["type"] not in ("record", "error"):
                return self.of(found)

            def write_later(value: Any, out: bytearray) -> None:
                self._made[name](value, out)

            self._made[name] = write_later
            self._made[name] = self._record(found)
        return self._made[name]

    def _record(self, schema: Mapping[str, Any]) -> Write:
        fields = [(field["name"], self.of(field["type"])) for field in schema["fields"]]
        names = {name for name, _ in fields}
        defaults = {
            field["name"]: _default(field["type"], field["default"], self._named)
            for field in schema["fields"]
            if "default" in field
        }

        sizes = {name: len(msgspec.json.encode(default)) for name, default in defaults.items()}

        def write(value: Any, out: bytearray) -> None:
            if not isinstance(value, dict):
                raise ValueError("must be an object")  # noqa: TRY004
            self.fields_left -= 1 + len(fields)
            if self.fields_left < 0 or len(out) > MOST_DATUM:
                raise ValueError("becomes too large")
            if not names >= value.keys():
                raise ValueError(f"has no member {min(value.keys() - names)[:40]!r} in its schema")
            for name, write_field in fields:
                if name not in value and name not in defaults:
                    raise ValueError(f"lacks the member {name[:40]!r}")
                try:
                    if name in value:
                        write_field(value[name], out)
                    else:
                        self.fields_left -= sizes[name]
                        write_field(defaults[name], out)
                except ValueError as error:
                    raise ValueError(_within(name, error)) from None

        return write

    def _union(self, branches: Sequence[Any]) -> Write:
        kinds = [_kind(branch, self._named) for branch in branches]
        writers = [self.of(branch) for branch in branches]
        objects = [index for index, kind in enumerate(kinds) if kind in ("record", "map")]
        names = {_name(branch): index for index, branch in enumerate(branches)}
        places = {kind: index for index, kind in reversed(list(enumerate(kinds)))}  # the first of each

        def choose(value: Any) -> tuple[int, Any]:
            if isinstance(value, dict):
                if len(objects) == 1:
                    return objects[0], value
                if len(value) == 1 and (name := next(iter(value))) in names:
                    return names[name], value[name]
                raise ValueError(f"must say which of {', '.join(names)} it is: " + '{"name": ...}')
            for kind in _kinds_of(value):
                if kind in places:
                    return places[kind], value
            raise ValueError(f"must be one of {', '.join(names)}")

        def write(value: Any, out: bytearray) -> None:
            index, found = choose(value)
            _long(index, out)
            writers[index](found, out)

        return write


def _default(schema: Any, default: Any, named: Mapping[str, Any]) -> Any:
    """Return the JSON value that stands for a field's default: bytes are text of ISO 8859-1 there."""
    kind = _kind(schema[0] if isinstance(schema, list) else schema, named)
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return base64.b64encode(default.encode("latin-1", "replace")).decode()
    return default


def _kind(schema: Any, named: Mapping[str, Any]) -> str:
    match schema:
        case str() if schema in named:
            return _kind(named[schema], named)
        case {"type": dict() as inner}:
            return _kind(inner, named)
        case {"type": "error"}:
            return "record"
        case {"type": str() as kind}:
            return kind
    return str(schema)


def _name(schema: Any) -> str:
    match schema:
        case {"name": str() as name}:
            return name
        case {"type": str() as kind}:
            return kind
    return str(schema)


def _kinds_of(value: Any) -> Sequence[str]:
    """Return the types that a JSON value may be of, the best first."""
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case int():
            return _NUMBERS if -(2**31) <= value < 2**31 else _NUMBERS[1:]
        case float():
            return ("double", "float")
        case str():
            return ("string", "enum", "bytes", "fixed")
    return ("array",)


def _within(name: str, error: ValueError) -> str:
    """Say where it is that something is wrong, as far as that is short."""
    where, colon, words = str(error).rpartition(": ")
    path = f"{name[:40]}.{where}" if colon else name[:40]
    return f"{path[:200]}: {words}"


def _long(value: int, out: bytearray) -> None:
    """Write a number as Avro does: zigzag, and seven bits of each byte."""
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _null(value: Any, out: bytearray) -> None:
    if value is not None:
        raise ValueError("must be null")


def _boolean(value: Any, out: bytearray) -> None:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004
    out.append(value)


def _integer(bits: int) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"must be an integer of {bits} bits")
        _long(value, out)

    return write


def _number(packed: struct.Struct) -> Write:
    def write(value: Any, out: bytearray) -> None:
        try:
            out += packed.pack(value if isinstance(value, int | float) and value is not True else None)
        except (struct.error, OverflowError):
            raise ValueError("must be a number that fits") from None

    return write


def _data(value: bytes, out: bytearray) -> None:
    _long(len(value), out)
    out += value


def _string(value: Any, out: bytearray) -> None:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004
    try:
        _data(value.encode(), out)
    except UnicodeEncodeError:
        raise ValueError("must be text: a surrogate stands alone in it") from None


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("must be a string of base64") from None


def _bytes(value: Any, out: bytearray) -> None:
    _data(_decoded(value), out)


def _fixed(size: int) -> Write:
    def write(value: Any, out: bytearray) -> None:
        data = _decoded(value)
        if len(data) != size:
            raise ValueError(f"must be {size} bytes in base64")
        out += data

    return write


def _enum(symbols: Sequence[str]) -> Write:
    places = {symbol: index for index, symbol in enumerate(symbols)}

    def write(value: Any, out: bytearray) -> None:
        index = places.get(value) if isinstance(value, str) else None
        if index is None:
            raise ValueError("must be one of the symbols of its enum")
        _long(index, out)

    return write


def _array(write_item: Write) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, list):
            raise ValueError("must be an array")  # noqa: TRY004
        if value:
            _long(len(value), out)
            for item in value:
                write_item(item, out)
        out.append(0)

    return write


def _map(write_value: Write) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise ValueError("must be an object")  # noqa: TRY004
        if value:
            _long(len(value), out)
            for key, item in value.items():
                _string(key, out)
                write_value(item, out)
        out.append(0)

    return write


_PRIMITIVE: Final[Mapping[str, Write]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer(32),
    "long": _integer(64),
    "float": _number(_FLOAT),
    "double": _number(_DOUBLE),
    "string": _string,
    "bytes": _bytes,
}


def schema_text(schema: object) -> str:
    """Return the text of a schema that is given as an object, as text or in base64. ValueError: it is
    none of these."""
    if not isinstance(schema, str):
        return msgspec.json.encode(schema).decode()
    text = schema.strip()
    if text[:1] in ("{", "[", '"'):
        return text
    if text in _PRIMITIVE:
        return f'"{text}"'
    try:
        return base64.b64decode(text, validate=True).decode()
    except (ValueError, binascii.Error):
        raise ValueError("the definition must be an object, its text, or that in base64") from None
