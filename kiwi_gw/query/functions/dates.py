"""Functions on dates and timestamps. The time zone is UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, typed
from kiwi_gw.query.functions.cost import LOOKS
from kiwi_gw.query.values import convert, datetimes
from kiwi_gw.query.values.types import ANY, BIGINT, DATE, DOUBLE, INT, NULL, STRING, TIMESTAMP, Type


def _of_date(usage: str, call: Callable[[date], int], summary: str) -> Function:
    return typed(usage, (DATE,), INT, call, summary)


def _of_time(usage: str, call: Callable[[datetime], int], summary: str) -> Function:
    return typed(usage, (TIMESTAMP,), INT, call, summary)


def _cast(usage: str, result: Type, summary: str) -> Function:
    """Make to_date or to_timestamp: without a pattern, a CAST."""
    name = usage.partition("(")[0]

    def bind(arguments: Arguments) -> Binding:
        if len(arguments) > 1:
            message = f"{name} with a pattern is not here; that belongs to a Spark source"
            raise QueryError(message, arguments[1].position)
        first = arguments[0].type
        numbers = result == TIMESTAMP and first.numeric
        if not (first in (STRING, DATE, TIMESTAMP, ANY, NULL) or numbers):
            raise QueryError(f"{name} of {first} is not possible", arguments[0].position)
        return Binding(result, convert.CONVERSIONS[result.kind], (None,))

    return Function(name, (1, 2), usage, summary, bind, cost=LOOKS)


def _add_days(day: date, count: int) -> date | None:
    return datetimes.from_days(datetimes.days(day) + count)


def _sub_days(day: date, count: int) -> date | None:
    return datetimes.from_days(datetimes.days(day) - count)


def _days_between(one: date, other: date) -> int:
    return datetimes.days(one) - datetimes.days(other)


def _from(factor: int) -> Callable[[int], datetime | None]:
    return lambda count: datetimes.from_microseconds(count * factor)


def _to(divisor: int) -> Callable[[datetime], int]:
    return lambda moment: datetimes.microseconds(moment) // divisor


FUNCTIONS: Final = (
    _cast("to_date(x)", DATE, "a date of a text or a timestamp, as CAST"),
    _cast("to_timestamp(x)", TIMESTAMP, "a timestamp of a text or a date, as CAST"),
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
    typed("date_add(day, count)", (DATE, INT), DATE, _add_days, "so many days later"),
    typed("dateadd(day, count)", (DATE, INT), DATE, _add_days, "the same as date_add"),
    typed("date_sub(day, count)", (DATE, INT), DATE, _sub_days, "so many days earlier"),
    typed("datediff(end, start)", (DATE, DATE), INT, _days_between, "the days from start to end"),
    typed("date_diff(end, start)", (DATE, DATE), INT, _days_between, "the same as datediff"),
    typed(
        "timestamp_seconds(x)",
        (DOUBLE,),
        TIMESTAMP,
        convert.to_timestamp,
        "a timestamp of seconds since 1970",
    ),
    typed("timestamp_millis(n)", (BIGINT,), TIMESTAMP, _from(1000), "a timestamp of milliseconds since 1970"),
    typed("timestamp_micros(n)", (BIGINT,), TIMESTAMP, _from(1), "a timestamp of microseconds since 1970"),
    typed("unix_seconds(moment)", (TIMESTAMP,), BIGINT, _to(1_000_000), "whole seconds since 1970"),
    typed("unix_millis(moment)", (TIMESTAMP,), BIGINT, _to(1000), "whole milliseconds since 1970"),
    typed("unix_micros(moment)", (TIMESTAMP,), BIGINT, _to(1), "microseconds since 1970"),
)
