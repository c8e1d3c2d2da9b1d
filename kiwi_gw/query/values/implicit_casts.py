"""The casts that Spark makes by itself, for arguments and operands of other types than a function takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache
from typing import Final

from kiwi_gw.query.values import Value, convert
from kiwi_gw.query.values.types import (
    ARRAY,
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    NULL,
    OBJECT,
    STRING,
    TIMESTAMP,
    Type,
    common,
)  # fmt: skip

Conversion = Callable[[Value], Value]


def _text(value: Value) -> str | None:
    return None if isinstance(value, list | dict) else convert.to_string(value)


def _only(conversion: Conversion, *kinds: type) -> Conversion:
    """Restrict the conversion to values of these types; NULL for all others."""

    def convert_some(value: Value) -> Value:
        return conversion(value) if type(value) in kinds else None

    return convert_some


_DYNAMIC: Final[dict[str, Conversion]] = {
    **{kind: _only(convert.CONVERSIONS[kind], int, float, str) for kind in ("INT", "BIGINT", "DOUBLE")},
    "STRING": _text,
    "BOOLEAN": _only(convert.to_boolean, bool),
    "DATE": _only(convert.to_date, str, date, datetime),
    "TIMESTAMP": _only(convert.to_timestamp, str, date, datetime),
}


def conversion(given: Type, wanted: Type) -> Conversion:
    """Return the cast from a type to one that it is accepted for. From ANY, it gives NULL for values that
    would not be accepted.

    The cast of None is None.
    """
    if given.dynamic:
        return _DYNAMIC.get(wanted.kind) or convert.CONVERSIONS[wanted.kind]
    return convert.CONVERSIONS[wanted.kind]


_TYPES: Final[dict[type, Type]] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    list: ARRAY,
    dict: OBJECT,
    date: DATE,
    datetime: TIMESTAMP,
    type(None): NULL,
}


@lru_cache(maxsize=64)
def settler(static: Type) -> Callable[..., Value]:
    """Make the cast of a choice between values, some of which have the types of their records.

    static: the type of the others. The cast takes the chosen value and those of the record, and casts the
    first to the type of all of them; NULL if there is none.
    """

    def settle(chosen: Value, *values: Value) -> Value:
        if chosen is None:
            return None
        met = common((static, *[_TYPES[type(value)] for value in values]))
        if met is None:
            # Arrays of a type and those of a record, whose items say themselves what they are.
            lists = static.kind in {"ARRAY", "NULL"} and all(
                type(value) in {list, type(None)} for value in values
            )
            return chosen if lists else None
        given = _TYPES[type(chosen)]
        return chosen if given == met else conversion(given, met)(chosen)

    return settle
