"""Arithmetic on values whose types are only known now: texts count as DOUBLE, whole numbers are BIGINT.

NULL for anything else, and for what is divided by zero; BIGINT wraps at 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date

from kiwi_gw.query.values import Value, convert, datetimes
from kiwi_gw.query.values.convert import LONG_MAX, LONG_MIN, wrap

Number = int | float


def number(value: Value) -> Number | None:
    """Return what a value is worth in arithmetic. JSON has whole numbers of more than 64 bits: as DOUBLE."""
    if type(value) is int:
        return value if LONG_MIN <= value <= LONG_MAX else float(value)
    if type(value) is float:
        return value
    return convert.decimal(value) if type(value) is str else None


def _numbers(whole: Callable[[int, int], int | None], real: Callable[[float, float], float | None]) -> (
    Callable[[Value, Value], Value]
):  # fmt: skip
    """Make an operator on two values out of one on BIGINT and one on DOUBLE."""

    def call(one: Value, other: Value) -> Value:
        left, right = number(one), number(other)
        if type(left) is int and type(right) is int:
            found = whole(left, right)
            return None if found is None else wrap(found)
        return None if left is None or right is None else real(float(left), float(right))

    return call


def remainder(one: int, other: int) -> int | None:
    """Return the rest, with the sign of the first."""
    if other == 0:
        return None
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def float_remainder(one: float, other: float) -> float | None:
    if other == 0:
        return None
    return math.nan if math.isinf(one) else math.fmod(one, other)


def quotient(one: int, other: int) -> int | None:
    """Divide, towards zero."""
    if other == 0:
        return None
    found = abs(one) // abs(other)
    return found if (one < 0) == (other < 0) else -found


def positive_remainder(one: int, other: int) -> int | None:
    rest = remainder(one, other)
    return remainder(rest + other, other) if rest is not None and rest < 0 else rest


def float_positive_remainder(one: float, other: float) -> float | None:
    rest = float_remainder(one, other)
    return float_remainder(rest + other, other) if rest is not None and rest < 0 else rest


_add = _numbers(int.__add__, float.__add__)
_subtract = _numbers(int.__sub__, float.__sub__)
multiply = _numbers(int.__mul__, float.__mul__)
modulo = _numbers(remainder, float_remainder)
positive_modulo = _numbers(positive_remainder, float_positive_remainder)


def add(one: Value, other: Value) -> Value:
    if type(one) is date and type(other) is int:
        return datetimes.from_days(datetimes.days(one) + wrap(other, 32))
    if type(other) is date and type(one) is int:
        return datetimes.from_days(datetimes.days(other) + wrap(one, 32))
    return _add(one, other)


def subtract(one: Value, other: Value) -> Value:
    if type(one) is date and type(other) is int:
        return datetimes.from_days(datetimes.days(one) - wrap(other, 32))
    return _subtract(one, other)


def divide(one: Value, other: Value) -> float | None:
    """Divide; always DOUBLE."""
    left, right = number(one), number(other)
    return None if left is None or right is None or right == 0 else float(left) / float(right)


def divide_whole(one: Value, other: Value) -> int | None:
    """Divide whole numbers, and nothing else; always BIGINT."""
    left, right = number(one), number(other)
    if type(left) is not int or type(right) is not int or isinstance(one, str) or isinstance(other, str):
        return None
    found = quotient(left, right)
    return None if found is None else wrap(found)


def negate(value: Value) -> Value:
    worth = number(value)
    return None if worth is None else wrap(-worth) if type(worth) is int else -worth


def absolute(value: Value) -> Value:
    worth = number(value)
    return None if worth is None else wrap(abs(worth)) if type(worth) is int else abs(worth)
