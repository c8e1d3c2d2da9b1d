"""What queries see of the bytes in a column: each as a value, or `UNDECODABLE`.

Whole columns at a time: half of what JSON costs is the way to the decoder and back.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec

from kiwi_gw.model import SCHEMA_COLUMNS, Decode, Form
from kiwi_gw.query.avro import RegisteredSchema, datum_reader
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.values import UNDECODABLE, Value

Column = Sequence[Value]
Decoder = Callable[[Column], Column]

_decoder: Final = msgspec.json.Decoder()
_UNREADABLE: Final = (ValueError, RecursionError)  # msgspec's errors are ValueErrors


def decoder(form: Form, avro_schema: str = "") -> Decoder:
    """Return a function that makes values of a column. Only bytes are decoded: None and all else stays as it
    is.

    avro_schema: for `avro`; a ValueError if it is not a schema. ModuleNotFoundError: no package for Avro.
    """
    if form == "json":
        return _json
    return _each(datum_reader(avro_schema) if form == "avro" else _ONE[form])


def decoded_column(
    decode: Decode, root: str, columns: Mapping[str, Column], part: slice = slice(None)
) -> Column:
    """Return the values of a part of the column `key` or `value`, as `decode` says that its bytes are read.

    Values of a registry's schemas are read by the schemas that stand beside them (`SCHEMA_COLUMNS`): none
    beside them, and they cannot be decoded.
    """
    form, column = decode.value if root == "value" else decode.key, columns[root][part]
    if form != "avro" or not decode.registry:
        return decoder(form, decode.avro_schema)(column)
    if SCHEMA_COLUMNS[root] not in columns:
        return _each(lambda _: UNDECODABLE)(column)
    schemas = cast("Sequence[RegisteredSchema | None]", columns[SCHEMA_COLUMNS[root]][part])
    return [
        value if not isinstance(value, bytes) else UNDECODABLE if schema is None else schema.read(value)
        for value, schema in zip(column, schemas, strict=True)
    ]


def decode_mistake(decode: Decode) -> str | None:
    """Say what is wrong with it, for the author of the configuration; None if it is right."""
    try:
        if "avro" in (decode.value, decode.key):
            if decode.registry:
                RegisteredSchema(0, '"null"')  # whether the package is there
            else:
                decoder("avro", decode.avro_schema)
        if decode.fields:
            from kiwi_gw.query.schema import Schema

            Schema.known(decode.fields)
    except ModuleNotFoundError:
        return "Avro needs the package fastavro: pip install 'kiwi-gw[avro]'"
    except QueryError as error:
        return f"schema: {error}"
    except ValueError as error:
        return str(error)
    return None


def _json(column: Column) -> Column:
    if set(map(type, column)) == {bytes}:
        try:
            return list(map(_decoder.decode, column))  # type: ignore[arg-type]
        except _UNREADABLE:
            pass  # look at each
    return _each(_decoder.decode)(column)


def _each(read: Callable[[bytes], Value]) -> Decoder:
    def column(values: Column) -> Column:
        return [_read(read, value) if isinstance(value, bytes) else value for value in values]

    return column


def _read(read: Callable[[bytes], Value], value: bytes) -> Value:
    try:
        return read(value)
    except _UNREADABLE:
        return UNDECODABLE


def _integer(size: int) -> Callable[[bytes], Value]:
    def read(value: bytes) -> Value:
        return int.from_bytes(value, "big", signed=True) if len(value) == size else UNDECODABLE

    return read


_ONE: Final[dict[str, Callable[[bytes], Value]]] = {
    "string": lambda value: str(value, "utf-8"),
    "int": _integer(4),
    "long": _integer(8),
    "binary": lambda value: b64encode(value).decode(),
}


def objects(names: Sequence[str], columns: Iterable[Column]) -> Column:
    """Make rows of columns."""
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def headers(column: Column) -> Column:
    """Make one object of pairs of names and bytes. Of equal names the last counts; null if not text."""
    return [{name: header_text(value) for name, value in row} for row in column]  # type: ignore[attr-defined]


def header_text(value: bytes | None) -> str | None:
    """Return the value of a header as text; null where it is none."""
    try:
        return None if value is None else str(value, "utf-8")
    except UnicodeDecodeError:
        return None
