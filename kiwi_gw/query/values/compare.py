"""Comparisons of values whose types are only known now. NULL for what cannot be compared.

Numbers compare with numbers (NaN equals itself and is above everything), texts by their characters. A text is
cast to the type of what it is compared with. A boolean equals 1 or 0; arrays and objects compare NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Final

from kiwi_gw.query.values import Value, convert

# -1, 0 or 1: the first is below, equal to or above the other.
Order = int | None


def order(one: Value, other: Value, *, equality: bool = False) -> Order:
    """Order two values. equality: by `=` alone, in which booleans meet numbers."""
    kind, against = type(one), type(other)
    if kind is against and (kind is int or kind is str or kind is bool or kind is date):
        return (one > other) - (one < other)  # type: ignore[operator, no-any-return]
    if kind is datetime and against is datetime:
        return (one > other) - (one < other)  # type: ignore[operator, no-any-return]
    if (kind is float or kind is int) and (against is float or against is int):
        return _numbers(float(one), float(other))  # type: ignore[arg-type]
    if kind is str or against is str:
        return _text(one, other, equality)
    if kind is datetime and against is date:
        return order(one, convert.to_timestamp(other))
    if kind is date and against is datetime:
        return order(convert.to_timestamp(one), other)
    if equality and kind is bool and (against is int or against is float):
        return order(int(bool(one)), other)
    if equality and against is bool and (kind is int or kind is float):
        return order(one, int(bool(other)))
    return None


def _numbers(one: float, other: float) -> int:
    if one == other or (one != one and other != other):
        return 0
    return 1 if one != one or one > other else -1


def _text(one: Value, other: Value, equality: bool) -> Order:
    """Order a text and another value: the text becomes what the other is."""
    plain = other if type(one) is str else one
    conversion = _AS.get(type(plain))
    if conversion is None:
        return None
    one, other = (conversion(one), other) if type(one) is str else (one, conversion(other))
    return None if one is None or other is None else order(one, other, equality=equality)


_AS: Final[dict[type, Callable[[Value], Value]]] = {
    int: convert.to_bigint,
    float: convert.to_double,
    bool: convert.to_boolean,
    date: convert.to_date,
    datetime: convert.to_timestamp,
}


def eq(one: Value, other: Value) -> bool | None:
    found = order(one, other, equality=True)
    return None if found is None else found == 0


def ne(one: Value, other: Value) -> bool | None:
    found = order(one, other, equality=True)
    return None if found is None else found != 0


def lt(one: Value, other: Value) -> bool | None:
    found = order(one, other)
    return None if found is None else found < 0


def le(one: Value, other: Value) -> bool | None:
    found = order(one, other)
    return None if found is None else found <= 0


def gt(one: Value, other: Value) -> bool | None:
    found = order(one, other)
    return None if found is None else found > 0


def ge(one: Value, other: Value) -> bool | None:
    found = order(one, other)
    return None if found is None else found >= 0


def same(one: Value, other: Value) -> bool | None:
    """Compare by `<=>`: NULL is NULL; for anything else `=`. A text that cannot be cast to what it is
    compared with is NULL then, and so not the same."""
    if one is None or other is None:
        return one is other
    found = eq(one, other)
    if found is None and (type(one) is str) is not (type(other) is str):
        return False if type(other if type(one) is str else one) in _AS else None
    return found


def among(value: Value, items: tuple[Value, ...]) -> bool | None:
    """Look for a value by IN: all are compared in one type. That is a text if one of them is, a DOUBLE if one
    of the numbers is; NULL if there is no such type."""
    if value is None:
        return None
    types = {type(each) for each in (value, *items) if each is not None}
    kinds = {_KINDS.get(each, "") for each in types}
    texts = "text" in kinds and len(kinds) > 1
    if (
        "" in kinds
        or (len(kinds) > 1 and "alone" in kinds)
        or (len(kinds) > 1 and not texts and "number" in kinds)
    ):
        return None
    if type(value) is int and float in types and not texts:
        value = float(value)  # above 53 bits it may be equal to more whole numbers then
    unknown = False
    for item in items:
        if item is None:
            unknown = True
        elif convert.to_string(value) == convert.to_string(item) if texts else eq(value, item):
            return True
    return None if unknown else False


_KINDS: Final[dict[type, str]] = {
    int: "number", float: "number", str: "text", date: "day", datetime: "moment", bool: "alone",
}  # fmt: skip
