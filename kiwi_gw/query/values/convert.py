"""CAST as Spark does it with `ansi.enabled=false`: what cannot be is NULL, integers wrap.

Each function takes a value of any type that is not None, and gives one of its own type, or None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Final

import msgspec

from kiwi_gw.query.values import Value, check_text, datetimes

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
# Possessive: a text of very many digits is read once.
_WHOLE: Final = re.compile(r"([+-]?)(?=[\d.])(\d*+)(?:\.\d*+)?", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?[dDfF]?", re.ASCII)
_SPECIAL: Final = {
    "inf": math.inf, "+inf": math.inf, "infinity": math.inf, "+infinity": math.inf,
    "-inf": -math.inf, "-infinity": -math.inf, "nan": math.nan,
}  # fmt: skip
_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})


def wrap(number: int, bits: int = 64) -> int:
    """Wrap as machine integers do."""
    half = 1 << (bits - 1)
    return number if -half <= number < half else (number + half) % (half + half) - half


def to_bigint(value: Value) -> int | None:
    return _integer(value, 64)


def to_int(value: Value) -> int | None:
    return _integer(value, 32)


def _integer(value: Value, bits: int) -> int | None:
    if type(value) is int:
        return wrap(value, bits) if LONG_MIN <= value <= LONG_MAX else None
    if type(value) is str:
        return whole(value, bits)
    if type(value) is float:
        if value != value:
            return 0
        most = (1 << (bits - 1)) - 1  # as on the JVM it stops at the ends
        return most if value >= most else -most - 1 if value <= -most - 1 else int(value)
    if type(value) is bool:
        return 1 if value else 0
    if isinstance(value, datetime):
        seconds = datetimes.microseconds(value) // 1_000_000
        return seconds if wrap(seconds, bits) == seconds else None
    return None


def whole(text: str, bits: int) -> int | None:
    """Read a text as a whole number: digits after a point do not count, exponents are not allowed."""
    found = _WHOLE.fullmatch(datetimes.trimmed(text))
    if found is None:
        return None
    # More digits than any number of 64 bits has: int() of very many is slow, and refused by Python.
    digits = found[2].lstrip("0")
    if len(digits) > 19:
        return None
    number = int(found[1] + (digits or "0"))
    return number if wrap(number, bits) == number else None


def to_double(value: Value) -> float | None:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str:
        return decimal(value)
    if type(value) is bool:
        return 1.0 if value else 0.0
    if isinstance(value, datetime):
        return datetimes.microseconds(value) / 1_000_000
    return None


def decimal(text: str) -> float | None:
    """Read a text as a number with a fraction."""
    text = datetimes.trimmed(text)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("dDfF"))
    return _SPECIAL.get(text.lower()) if len(text) < 10 else None


def to_boolean(value: Value) -> bool | None:
    if type(value) is bool:
        return value
    if type(value) is str:
        word = datetimes.trimmed(value).lower() if len(value) < 100 else datetimes.trimmed(value)
        return True if word in _TRUE else False if word in _FALSE else None
    if type(value) is int or type(value) is float:
        return value != 0
    if isinstance(value, datetime):
        return datetimes.microseconds(value) != 0
    return None


def to_string(value: Value) -> str | None:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return double_text(value)
    if isinstance(value, datetime):
        return datetimes.write_timestamp(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | dict):
        return check_text(msgspec.json.encode(value).decode())
    return None


def double_text(number: float) -> str:
    """Write a number as Java does: `1.0`, `1.0E10`, `1.2E-5`."""
    if number != number:
        return "NaN"
    if number in (math.inf, -math.inf):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number) if "e" not in repr(number) else f"{number:f}"
    return _scientific(repr(number))


def _scientific(text: str) -> str:
    """Write in Java's form a number that Python writes in either of its own."""
    sign = "-" if text[0] == "-" else ""
    digits, _, exponent = text.lstrip("-").partition("e")
    before, _, after = digits.partition(".")
    power = int(exponent or 0) + len(before) - 1
    figures = before + ("" if after == "0" else after)
    stripped = figures.lstrip("0")
    power -= len(figures) - len(stripped)
    stripped = stripped.rstrip("0")
    return f"{sign}{stripped[0]}.{stripped[1:] or '0'}E{power}"


def to_date(value: Value) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    return datetimes.read_date(value) if type(value) is str else None


def to_timestamp(value: Value) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetimes.midnight(value)
    if type(value) is str:
        return datetimes.read_timestamp(value)
    if type(value) is int:
        return datetimes.from_microseconds(value * 1_000_000)
    if type(value) is float:
        # Far outside of the years that there are, and before anything overflows.
        return datetimes.from_microseconds(int(value * 1_000_000)) if abs(value) < 1e15 else None
    if type(value) is bool:
        return datetimes.from_microseconds(1 if value else 0)
    return None


def to_array(value: Value) -> list[Value] | None:
    return value if isinstance(value, list) else None


def to_object(value: Value) -> dict[str, Value] | None:
    return value if isinstance(value, dict) else None


# By the name of the type.
CONVERSIONS: Final[dict[str, Callable[[Value], Value]]] = {
    "INT": to_int,
    "BIGINT": to_bigint,
    "DOUBLE": to_double,
    "BOOLEAN": to_boolean,
    "STRING": to_string,
    "DATE": to_date,
    "TIMESTAMP": to_timestamp,
    "ARRAY": to_array,
    "OBJECT": to_object,
    "MAP": to_object,
}
