"""Makes decoded values those of a schema, as `from_json` in the mode PERMISSIVE.

A member of another type than declared is NULL, and the rest stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from kiwi_gw.query.values import Value, convert
from kiwi_gw.query.values.types import ANY, Type

_SPECIAL: Final = {
    "NaN": math.nan, "+INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf, "INF": math.inf,
    "-INF": -math.inf, "-Infinity": -math.inf,
}  # fmt: skip


class _WrongError(Exception):
    """Report a value that is not of the type that its place in the schema has."""


Coercion = Callable[[Value], Value]


@lru_cache(maxsize=1024)
def coercion(type_: Type) -> Coercion:
    """Make a function that turns a decoded value into one of the type; None for a value of another."""
    strictly = _strictly(type_)

    def coerce(value: Value) -> Value:
        if value is None:
            return None
        try:
            return strictly(value)
        except _WrongError:
            return None

    return coerce


def _strictly(type_: Type) -> Coercion:
    """Make the same for values that are not None; it raises _WrongError for a value of another type."""
    if type_.kind == "ARRAY":
        item = _nullable(type_.item or ANY)

        def array(value: Value) -> Value:
            if not isinstance(value, list):
                raise _WrongError
            return [item(each) for each in value]

        return array
    if type_.kind == "MAP":
        each_value = _nullable(type_.item or ANY)

        def mapping(value: Value) -> Value:
            if not isinstance(value, dict):
                raise _WrongError
            return {name: each_value(each) for name, each in value.items()}

        return mapping
    if type_.kind == "OBJECT":
        members = tuple((name, coercion(each)) for name, each in type_.fields)

        def structure(value: Value) -> Value:
            if not isinstance(value, dict):
                raise _WrongError
            return {name: convert_one(value.get(name)) for name, convert_one in members}

        return structure
    return _ATOMS.get(type_.kind, lambda value: value)


def _nullable(type_: Type) -> Coercion:
    strictly = _strictly(type_)
    return lambda value: None if value is None else strictly(value)


def _integer(bits: int) -> Coercion:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def integer(value: Value) -> Value:
        if type(value) is int and low <= value <= high:
            return value
        raise _WrongError

    return integer


def _double(value: Value) -> Value:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str and value in _SPECIAL:
        return _SPECIAL[value]
    raise _WrongError


def _string(value: Value) -> Value:
    if type(value) is str:
        return value
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return convert.to_string(value)


def _boolean(value: Value) -> Value:
    if type(value) is bool:
        return value
    raise _WrongError


def _read(conversion: Coercion, *kinds: type) -> Coercion:
    def read(value: Value) -> Value:
        found = conversion(value) if type(value) in kinds else None
        if found is None:
            raise _WrongError
        return found

    return read


_ATOMS: Final[dict[str, Coercion]] = {
    "INT": _integer(32),
    "BIGINT": _integer(64),
    "DOUBLE": _double,
    "STRING": _string,
    "BOOLEAN": _boolean,
    "DATE": _read(convert.to_date, str),
    "TIMESTAMP": _read(convert.to_timestamp, str, int),
}
