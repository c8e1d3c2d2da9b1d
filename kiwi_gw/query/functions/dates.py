"""Functions on dates and timestamps. The time zone is UTC."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.functions.cost import LOOKS, MATCHES, Cost, Makes
from kiwi_gw.query.functions.patterned import of_records, patterned, try_constant
from kiwi_gw.query.values import Value, arithmetic, convert, formats, moments
from kiwi_gw.query.values.types import ANY, BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, STRING, TIMESTAMP, Type

_PARTS: Final = (
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
)
_OTHER_NAMES: Final = {"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "MON": "MONTH", "DD": "DAY"}


def _of_date(usage: str, call: Callable[[date], int], summary: str) -> Function:
    return plain(usage, (DATE,), INT, call, summary)


def _of_time(usage: str, call: Callable[[datetime], int], summary: str) -> Function:
    return plain(usage, (TIMESTAMP,), INT, call, summary)


def _patterned(
    usage: str,
    wants: tuple[Type, ...],
    result: Type,
    call: Callable[..., Value],
    summary: str,
    cost: Cost,
    trial: Callable[[str], object],
    *,
    optional: int = 0,
) -> Function:
    """Its last argument is a pattern of dates."""
    last = len(wants) - 1
    return patterned(
        usage, wants, result, call, summary, pattern=last, trial=trial, optional=optional, cost=cost
    )


def _reading(usage: str, result: Type, summary: str) -> Function:
    """to_date and to_timestamp: a CAST without a pattern."""
    cast = convert.CONVERSIONS[result.kind]
    read = of_records(formats.read)

    def call(value: Value, pattern: str | None = None) -> Value:
        if pattern is None or isinstance(value, date):
            return cast(value)
        if not isinstance(value, str):
            return None
        found = read(value, pattern)
        return None if found is None else cast(found)

    def bind(arguments: Arguments) -> Binding:
        first = arguments[0].type
        numbers = result == TIMESTAMP and first.numeric
        if not (first in (STRING, DATE, TIMESTAMP, ANY, NULL) or numbers):
            raise QueryError(f"{usage.partition('(')[0]} of {first} is not possible", arguments[0].position)
        try_constant(arguments, 1, formats.reader)
        texts = (None if each.type == STRING else STRING for each in arguments[1:])
        return Binding(result, call, (None, *texts))

    return Function(usage.partition("(")[0], (1, 2), usage, summary, bind, cost=MATCHES)


def _add_days(day: date, count: int) -> date | None:
    return moments.from_days(moments.days(day) + count)


def _sub_days(day: date, count: int) -> date | None:
    return moments.from_days(moments.days(day) - count)


def _add_months(day: date, count: int) -> date | None:
    month = day.year * 12 + day.month - 1 + count
    year, month = month // 12, month % 12 + 1
    if not 1 <= year <= 9999:
        return None
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def _last_day(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _months_between(one: datetime, other: datetime, rounded: bool = True) -> float:
    months = (one.year - other.year) * 12 + one.month - other.month
    ends = one.day == _last_day(one.date()).day and other.day == _last_day(other.date()).day
    if one.day == other.day or ends:
        return float(months)
    seconds = (one.day - other.day) * 86400 + _second(one) - _second(other)
    found = months + seconds / (31 * 86400)
    return round(found, 8) if rounded else found


def _second(moment: datetime) -> int:
    return moment.hour * 3600 + moment.minute * 60 + moment.second


def _date_format(moment: datetime, pattern: str) -> str:
    return formats.write(moment, pattern)


def _unix(moment: datetime) -> int:
    return moments.microseconds(moment) // 1_000_000


def _unix_timestamp(value: Value, pattern: str = "yyyy-MM-dd HH:mm:ss") -> int | None:
    if isinstance(value, str):
        found = formats.read(value, pattern)
        return None if found is None else _unix(found)
    moment = convert.to_timestamp(value) if isinstance(value, date) else None
    if moment is None:
        return None
    # Towards zero, where unix_seconds goes down.
    return arithmetic.quotient(moments.microseconds(moment), 1_000_000)


def _from_unixtime(seconds: int, pattern: str = "yyyy-MM-dd HH:mm:ss") -> str | None:
    moment = moments.from_microseconds(seconds * 1_000_000)
    return None if moment is None else _date_format(moment, pattern)


def _from(factor: int) -> Callable[[int], datetime | None]:
    return lambda count: moments.from_microseconds(count * factor)


def _from_seconds(seconds: float) -> datetime | None:
    return convert.to_timestamp(seconds)


def _to(divisor: int) -> Callable[[datetime], int]:
    return lambda moment: moments.microseconds(moment) // divisor


def _truncated(moment: datetime, part: str) -> datetime | None:
    part = _OTHER_NAMES.get(part.upper(), part.upper())
    if part not in _PARTS:
        return None
    day = moments.midnight(moment.date())
    match part:
        case "YEAR":
            return day.replace(month=1, day=1)
        case "QUARTER":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "MONTH":
            return day.replace(day=1)
        case "WEEK":
            first = moments.from_days(moments.days(day.date()) - day.weekday())
            return None if first is None else moments.midnight(first)
        case "DAY":
            return day
        case "MICROSECOND":
            return moment
    unit = {"HOUR": 3600, "MINUTE": 60, "SECOND": 1}.get(part)
    if unit is None:
        return moment - timedelta(microseconds=moment.microsecond % 1000)
    return moment - timedelta(seconds=_second(moment) % unit, microseconds=moment.microsecond)


def _trunc(day: date, part: str) -> date | None:
    if _OTHER_NAMES.get(part.upper(), part.upper()) not in _PARTS[:4]:
        return None
    found = _truncated(datetime(day.year, day.month, day.day, tzinfo=UTC), part)
    return None if found is None else found.date()


_ADD: Final = plain("date_add(day, count)", (DATE, INT), DATE, _add_days, "so many days later")
_DIFFERENCE: Final = (DATE, DATE)
# A weekday of three letters is nine characters, a quarter of one letter is one.
_WRITTEN: Final = Cost(Makes.TEXT, factor=6, plus=19)


def _days_between(one: date, other: date) -> int:
    return moments.days(one) - moments.days(other)


FUNCTIONS: Final = (
    _reading("to_date(x[, pattern])", DATE, "a date of a text, by CAST or a pattern"),
    _reading("to_timestamp(x[, pattern])", TIMESTAMP, "a timestamp of a text, by CAST or a pattern"),
    _of_date("year(day)", lambda day: day.year, "the year"),
    _of_date("quarter(day)", lambda day: (day.month + 2) // 3, "the quarter, 1 to 4"),
    _of_date("month(day)", lambda day: day.month, "the month"),
    _of_date("day(day)", lambda day: day.day, "the day of the month"),
    _of_date("dayofmonth(day)", lambda day: day.day, "the day of the month"),
    _of_date("dayofweek(day)", lambda day: day.isoweekday() % 7 + 1, "the weekday, Sunday is 1"),
    _of_date("weekday(day)", lambda day: day.weekday(), "the weekday, Monday is 0"),
    _of_date("dayofyear(day)", lambda day: day.timetuple().tm_yday, "the day of the year"),
    _of_date("weekofyear(day)", lambda day: day.isocalendar().week, "the week of ISO 8601"),
    _of_time("hour(moment)", lambda moment: moment.hour, "the hour"),
    _of_time("minute(moment)", lambda moment: moment.minute, "the minute"),
    _of_time("second(moment)", lambda moment: moment.second, "the second, whole"),
    _ADD,
    plain("dateadd(day, count)", (DATE, INT), DATE, _add_days, "the same as date_add"),
    plain("date_sub(day, count)", (DATE, INT), DATE, _sub_days, "so many days earlier"),
    plain("datediff(end, start)", _DIFFERENCE, INT, _days_between, "the days from start to end"),
    plain("date_diff(end, start)", _DIFFERENCE, INT, _days_between, "the same as datediff"),
    plain("add_months(day, count)", (DATE, INT), DATE, _add_months, "so many months later"),
    plain("last_day(day)", (DATE,), DATE, _last_day, "the last day of its month"),
    plain("make_date(year, month, day)", (INT, INT, INT), DATE, _make_date, "a date of its parts"),
    plain(
        "months_between(end, start[, rounded])",
        (TIMESTAMP, TIMESTAMP, BOOLEAN),
        DOUBLE,
        _months_between,
        "the months from start to end",
        optional=1,
    ),
    _patterned(
        "date_format(moment, pattern)",
        (TIMESTAMP, STRING),
        STRING,
        _date_format,
        "as the pattern says",
        _WRITTEN,
        formats.pieces,
    ),
    _patterned(
        "unix_timestamp(x[, pattern])",
        (ANY, STRING),
        BIGINT,
        _unix_timestamp,
        "seconds since 1970 of a date, a timestamp or a text in the pattern",
        MATCHES,
        formats.reader,
        optional=1,
    ),
    _patterned(
        "to_unix_timestamp(x[, pattern])",
        (ANY, STRING),
        BIGINT,
        _unix_timestamp,
        "the same as unix_timestamp",
        MATCHES,
        formats.reader,
        optional=1,
    ),
    _patterned(
        "from_unixtime(seconds[, pattern])",
        (BIGINT, STRING),
        STRING,
        _from_unixtime,
        "seconds since 1970 as the pattern says",
        _WRITTEN,
        formats.pieces,
        optional=1,
    ),
    plain("timestamp_seconds(x)", (DOUBLE,), TIMESTAMP, _from_seconds, "a timestamp of seconds since 1970"),
    plain("timestamp_millis(n)", (BIGINT,), TIMESTAMP, _from(1000), "a timestamp of milliseconds since 1970"),
    plain("timestamp_micros(n)", (BIGINT,), TIMESTAMP, _from(1), "a timestamp of microseconds since 1970"),
    plain("unix_seconds(moment)", (TIMESTAMP,), BIGINT, _to(1_000_000), "whole seconds since 1970"),
    plain("unix_millis(moment)", (TIMESTAMP,), BIGINT, _to(1000), "whole milliseconds since 1970"),
    plain("unix_micros(moment)", (TIMESTAMP,), BIGINT, _to(1), "microseconds since 1970"),
    plain("unix_date(day)", (DATE,), INT, moments.days, "days since 1970"),
    plain("date_from_unix_date(n)", (INT,), DATE, moments.from_days, "a date of days since 1970"),
    plain(
        "date_trunc(part, moment)",
        (STRING, TIMESTAMP),
        TIMESTAMP,
        lambda part, moment: _truncated(moment, part),
        "the beginning of its year, quarter, month, week, day, hour, minute, second or millisecond",
        cost=LOOKS,
    ),
    plain(
        "trunc(day, part)",
        (DATE, STRING),
        DATE,
        _trunc,
        "the beginning of its year, quarter, month or week",
        cost=LOOKS,
    ),
)
