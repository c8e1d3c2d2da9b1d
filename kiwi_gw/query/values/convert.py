"""CAST as Spark does it with `ansi.enabled=false`: what cannot be is NULL, integers wrap.

Each function takes a value of any type that is not None, and gives one of its own type, or None.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime
from typing import Final

import msgspec

from kiwi_gw.query.values import Value, bounded, moments

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
    """As machine integers do."""
    half = 1 << (bits - 1)
    return number if -half <= number < half else (number + half) % (half + half) - half


def to_bigint(value: Value) -> int | None:
    return _integer(value, 64)


def to_int(value: Value) -> int | None:
    return _integer(value, 32)


def to_smallint(value: Value) -> int | None:
    return _integer(value, 16)


def to_tinyint(value: Value) -> int | None:
    return _integer(value, 8)


def _integer(value: Value, bits: int) -> int | None:
    if type(value) is int:
        return wrap(value, bits) if LONG_MIN <= value <= LONG_MAX else None
    if type(value) is str:
        return whole(value, bits)
    if type(value) is float:
        # As on the JVM: to 32 or 64 bits it stops at the ends, to fewer it wraps from there.
        if value != value:
            return 0
        most = (1 << (63 if bits == 64 else 31)) - 1
        number = most if value >= most else -most - 1 if value <= -most - 1 else int(value)
        return wrap(number, bits)
    if type(value) is bool:
        return 1 if value else 0
    if isinstance(value, datetime):
        seconds = moments.microseconds(value) // 1_000_000
        return seconds if wrap(seconds, bits) == seconds else None
    return None


def whole(text: str, bits: int) -> int | None:
    """A text as a whole number: digits after a point do not count, exponents are none."""
    found = _WHOLE.fullmatch(moments.trimmed(text))
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
        return moments.microseconds(value) / 1_000_000
    return None


def decimal(text: str) -> float | None:
    """A text as a number with a fraction."""
    text = moments.trimmed(text)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("dDfF"))
    return _SPECIAL.get(text.lower()) if len(text) < 10 else None


def to_float(value: Value) -> float | None:
    number = to_double(value)
    return None if number is None else single(number)


def single(number: float) -> float:
    """The nearest number of 32 bits."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def to_boolean(value: Value) -> bool | None:
    if type(value) is bool:
        return value
    if type(value) is str:
        word = moments.trimmed(value).lower() if len(value) < 100 else moments.trimmed(value)
        return True if word in _TRUE else False if word in _FALSE else None
    if type(value) is int or type(value) is float:
        return value != 0
    if isinstance(value, datetime):
        return moments.microseconds(value) != 0
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
        return moments.write_timestamp(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | dict):
        return bounded(msgspec.json.encode(value).decode())
    return None


def double_text(number: float) -> str:
    """As Java writes it: `1.0`, `1.0E10`, `1.2E-5`."""
    if number != number:
        return "NaN"
    if number in (math.inf, -math.inf):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number) if "e" not in repr(number) else f"{number:f}"
    return _scientific(repr(number))


def float_text(value: Value) -> str | None:
    """The same for a FLOAT: only as many digits as tell it from its neighbours of 32 bits."""
    if type(value) is not float or value != value or math.isinf(value) or value == 0:
        return to_string(value)
    shortest = next(text for digits in range(1, 18) if single(float(text := f"{value:.{digits}g}")) == value)
    if 1e-3 <= abs(value) < 1e7:
        return double_text(float(shortest))
    return _scientific(repr(float(shortest)))


def own_digits(value: Value) -> Value:
    """A FLOAT as the DOUBLE of its digits: 3.3, and not 3.299999952316284."""
    return float(float_text(value) or "nan") if type(value) is float else value


def _scientific(text: str) -> str:
    """Java's form of a number that Python writes in either of its own."""
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
    return moments.read_date(value) if type(value) is str else None


def to_timestamp(value: Value) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return moments.midnight(value)
    if type(value) is str:
        return moments.read_timestamp(value)
    if type(value) is int:
        return moments.from_microseconds(value * 1_000_000)
    if type(value) is float:
        # Far outside of the years that there are, and before anything overflows.
        return moments.from_microseconds(int(value * 1_000_000)) if abs(value) < 1e15 else None
    if type(value) is bool:
        return moments.from_microseconds(1 if value else 0)
    return None


def to_binary(value: Value) -> bytes | None:
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "replace") if type(value) is str else None


def to_array(value: Value) -> list[Value] | None:
    return value if isinstance(value, list) else None


def to_object(value: Value) -> dict[str, Value] | None:
    return value if isinstance(value, dict) else None


# By the name of the type. FLOAT in a STRING is another matter: see `float_text`.
CONVERSIONS: Final[dict[str, Callable[[Value], Value]]] = {
    "TINYINT": to_tinyint,
    "SMALLINT": to_smallint,
    "INT": to_int,
    "BIGINT": to_bigint,
    "FLOAT": to_float,
    "DOUBLE": to_double,
    "BOOLEAN": to_boolean,
    "STRING": to_string,
    "BINARY": to_binary,
    "DATE": to_date,
    "TIMESTAMP": to_timestamp,
    "ARRAY": to_array,
    "OBJECT": to_object,
    "MAP": to_object,
}
