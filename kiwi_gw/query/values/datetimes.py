"""Dates and timestamps as Spark reads and writes them; the time zone of queries is UTC.

Years are those of Python's dates, 1 to 9999; what lies outside is NULL. Names of regions as time zones are
not known here: a text with one is NULL.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_ONE: Final = date(1970, 1, 1).toordinal()

# Patterns of ours over bounded pieces; no part of them can repeat over what another takes.
_DATE: Final = re.compile(r"\+?(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_MOMENT: Final = re.compile(
    r"\+?(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(?: ?([^\d\s.:].{0,20}))?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?|:(\d))?", re.ASCII)
_ENDS: Final = "".join(chr(code) for code in range(33)) + "\x7f"


def trimmed(text: str) -> str:
    """Strip white space and control characters from both ends, as casts of Spark read a text."""
    return text.strip(_ENDS)


def read_date(text: str) -> date | None:
    """Read `2013`, `2013-1` or `2013-01-05`, with anything after a blank or `T`."""
    found = _DATE.fullmatch(trimmed(text))
    if found is None:
        return None
    year, month, day = found.groups()
    return _date(int(year), int(month or 1), int(day or 1))


def read_timestamp(text: str) -> datetime | None:
    """Read `2013-01-05T06:07:08.123+01:00` and its beginnings, from the year on; UTC without an offset."""
    found = _MOMENT.fullmatch(trimmed(text))
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    seconds = 0
    if zone is not None:
        offset = _seconds(zone)
        if offset is None:
            return None
        seconds = offset
    try:
        micro = int((fraction or "0").ljust(6, "0")[:6])
        moment = datetime(
            int(year), int(month or 1), int(day or 1),
            int(hour or 0), int(minute or 0), int(second or 0), micro, UTC,
        )  # fmt: skip
        return moment - timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        return None


def _seconds(zone: str) -> int | None:
    """Read an offset as seconds east of Greenwich."""
    if zone in {"Z", "UTC", "GMT", "UT"}:
        return 0
    found = _OFFSET.fullmatch(zone)
    if found is None:
        return None
    sign, hours, minutes, seconds, minute = found.groups()
    if int(hours) > 18 or int(minutes or minute or 0) > 59 or int(seconds or 0) > 59:
        return None
    total = int(hours) * 3600 + int(minutes or minute or 0) * 60 + int(seconds or 0)
    return None if total > 18 * 3600 else -total if sign == "-" else total


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def microseconds(moment: datetime) -> int:
    """Count microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime | None:
    try:
        return EPOCH + timedelta(microseconds=count)
    except OverflowError:
        return None


def days(day: date) -> int:
    """Count days since 1970."""
    return day.toordinal() - _DAY_ONE


def from_days(count: int) -> date | None:
    ordinal = count + _DAY_ONE
    return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else None


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def write_timestamp(moment: datetime) -> str:
    """Write as CAST to STRING does: `2013-01-05 06:07:08.12`."""
    text = f"{moment.year:04}-{moment.month:02}-{moment.day:02} {moment:%H:%M:%S}"
    return f"{text}.{moment.microsecond:06}".rstrip("0") if moment.microsecond else text
