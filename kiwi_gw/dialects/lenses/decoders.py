"""How the bytes of a source's keys and values are read for one statement, and written as strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from kiwi_gw.model import Decode, Form
from kiwi_gw.query.decode import decoded_column, decoder
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.values import UNDECODABLE

if TYPE_CHECKING:  # with the parser, which is not loaded when a gateway starts
    from kiwi_gw.dialects.lenses.sql import Statement, Table

BAD: Final = object()
"""Stands for what cannot be decoded. It has no JSON: encoding it raises TypeError."""

WriteColumn = Callable[[Mapping[str, Sequence[object]]], Iterable[object]]
"""Does what `Write` does with one of a batch's columns."""

Write = Callable[[Sequence[object]], Iterable[object]]
"""Makes of a column what msgspec writes as strings: UNSET for null, `BAD` for what cannot be decoded."""

_encode = msgspec.json.Encoder().encode
_AVRO: Final = "this source does not declare it as AVRO (decode)"


def decode_of(statement: Statement | Table, decode: Decode) -> Decode:
    """Say how a source is read for a statement, or for one of its tables. decode: what the source declares.

    Raises:
        QueryError: the statement says AVRO of what the source does not.
    """
    key, value = statement.key_decoder or decode.key, statement.value_decoder or decode.value
    if (key, value) == (decode.key, decode.value):
        return decode
    # The one schema of a source is that of the part which it declares as AVRO.
    if key == "avro" != decode.key:
        raise QueryError(_AVRO, statement.key_decoder_position)
    if value == "avro" != decode.value:
        raise QueryError(_AVRO, statement.value_decoder_position)
    fields = decode.fields if value == decode.value else ""
    return replace(decode, key=key, value=value, fields=fields)


def column_writer(decode: Decode, root: str) -> WriteColumn:
    """Return what makes strings of the column `key` or `value` of a batch, as `decode` says."""
    form = decode.value if root == "value" else decode.key
    if form == "avro" and decode.registry:
        return lambda columns: [_text(value) for value in decoded_column(decode, root, columns)]
    write = writer(form, decode.avro_schema)
    return lambda columns: write(columns[root])


def writer(form: Form, avro_schema: str) -> Write:
    """Return what makes strings of a column of bytes: STRING and JSON as they are, numbers in decimal, base64
    of BINARY, the JSON text of AVRO. What is text already stays, other values become JSON text."""
    if form in ("string", "json"):
        return _as_text
    if form == "binary":
        return _as_bytes
    decode = decoder(form, avro_schema)

    def write(column: Sequence[object]) -> Iterable[object]:
        return [_text(value) for value in decode(column)]

    return write


def _as_text(column: Sequence[object]) -> Iterable[object]:
    try:
        return list(map(bytes.decode, column))  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):  # null, or something odd: look closer
        return [_text(value) for value in column]


def _as_bytes(column: Sequence[object]) -> Iterable[object]:
    """Leave bytes as they are: msgspec writes them as base64."""
    if set(map(type, column)) == {bytes}:
        return column
    return [value if isinstance(value, bytes) else _text(value) for value in column]


def _text(value: object) -> object:
    match value:
        case None:
            return UNSET
        case str():
            return value
        case bytes():
            try:
                return str(value, "utf-8")
            except UnicodeDecodeError:
                return BAD
    return BAD if value is UNDECODABLE else json_text(value)


def json_text(value: object) -> object:
    """Write a value as JSON text; BAD where it has none."""
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return BAD
