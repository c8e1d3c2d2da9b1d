"""The flights: every column as it is in the file, in order, with a departure that means a moment."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kiwi_demo import flights
from kiwi_demo.flights import FlightsNotFound, made_up_flights, read_flights, scheduled_departure

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,"
    "tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
LATER = "2013,10,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-10-01T09:00:00Z"
CANCELLED = "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,NA,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z"
EARLY = "2013,1,1,533,529,-4,850,830,20,AA,1714,N24211,LGA,MIA,227,1416,5,29,2013-01-01T10:00:00Z"
UNSCHEDULED = "2013,1,1,533,NA,4,850,830,20,ZZ,1,N1,LGA,IAH,227,1416,NA,NA,2013-01-01T10:00:00Z"


def archive(folder: Path, *lines: str) -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("flights.csv", "\n".join(lines) + "\n")
    return path


def test_columns_have_their_own_types_and_missing_is_null(tmp_path: Path) -> None:
    (flight,) = read_flights(archive(tmp_path, HEADER, CANCELLED))
    assert json.loads(flight.value) == {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": None,
        "sched_dep_time": 1630,
        "dep_delay": None,
        "arr_time": None,
        "sched_arr_time": 1815,
        "arr_delay": None,
        "carrier": "EV",
        "flight": 4308,
        "tailnum": None,
        "origin": "EWR",
        "dest": "RDU",
        "air_time": None,
        "distance": 416,
        "hour": 16,
        "minute": 30,
        "time_hour": "2013-01-01T21:00:00Z",
        "sched_dep": "2013-01-01T21:30:00Z",
    }
    assert flight.carrier == "EV"


def test_they_come_in_order_of_scheduled_departure(tmp_path: Path) -> None:
    found = list(read_flights(archive(tmp_path, HEADER, UNSCHEDULED, LATER, CANCELLED, EARLY)))
    assert [one.carrier for one in found] == ["AA", "EV", "UA", "ZZ"]
    assert found[0].departure == datetime(2013, 1, 1, 10, 29, tzinfo=UTC).timestamp()
    assert found[3].departure is None
    assert found[3].columns["sched_dep"] is None


def test_flights_of_one_minute_keep_the_order_of_the_file(tmp_path: Path) -> None:
    lines = [EARLY.replace("1714", str(number)) for number in (7, 3, 5)]
    assert [one.columns["flight"] for one in read_flights(archive(tmp_path, HEADER, *lines))] == [7, 3, 5]


@pytest.mark.parametrize(
    ("date", "hhmm", "utc"),
    [
        ((2013, 1, 1), 515, "2013-01-01T10:15"),
        ((2013, 7, 1), 515, "2013-07-01T09:15"),
        ((2013, 1, 1), 0, "2013-01-01T05:00"),
        ((2013, 12, 31), 2359, "2014-01-01T04:59"),
        ((2013, 12, 31), 2400, "2014-01-01T05:00"),
        ((2013, 3, 10), 159, "2013-03-10T06:59"),
        ((2013, 3, 10), 230, "2013-03-10T07:30"),  # does not exist: skipped by summer time
        ((2013, 3, 10), 300, "2013-03-10T07:00"),
        ((2013, 3, 9), 2400, "2013-03-10T05:00"),
        ((2013, 11, 3), 130, "2013-11-03T05:30"),  # comes twice: the first
        ((2013, 11, 3), 200, "2013-11-03T07:00"),
    ],
)
def test_local_time_of_new_york(date: tuple[int, int, int], hhmm: int, utc: str) -> None:
    found = scheduled_departure(*date, hhmm)
    assert found is not None
    assert found.utcoffset() == UTC.utcoffset(None)
    assert found.strftime("%Y-%m-%dT%H:%M") == utc


def test_no_time_gives_no_departure() -> None:
    assert scheduled_departure(2013, 1, 1, None) is None


@pytest.mark.parametrize("hhmm", [2401, 1260, -1, 2500])
def test_what_is_no_time_is_refused(hhmm: int) -> None:
    with pytest.raises(ValueError, match="is not a time of day"):
        scheduled_departure(2013, 1, 1, hhmm)


def test_another_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FlightsNotFound, match="cannot be read"):
        next(read_flights(tmp_path / "flights.csv.zip"))
    with pytest.raises(FlightsNotFound, match="other columns"):
        next(read_flights(archive(tmp_path, "a,b,c", "1,2,3")))


def test_a_missing_package_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(FlightsNotFound, match=r"pip install 'kiwi-gw\[demo\]'"):
        next(read_flights())


@pytest.mark.integration
def test_all_of_them() -> None:
    """The file's own `time_hour`, the scheduled hour in UTC, is what our `sched_dep` is checked against."""
    months: Counter[object] = Counter()
    before = 0.0
    for flight in read_flights():
        months[flight.columns["month"]] += 1
        assert flight.departure is not None
        assert flight.departure >= before
        before = flight.departure
        assert str(flight.columns["sched_dep"])[:13] == str(flight.columns["time_hour"])[:13]
    assert months.total() == 336_776
    assert (months[1], months[12]) == (27_004, 28_135)


def test_made_up_ones_are_the_same_every_time_and_in_order() -> None:
    first, again = (list(itertools.islice(made_up_flights(), 1_000)) for _ in range(2))
    assert first == again
    departures = [flight.departure or 0.0 for flight in first]
    assert departures == sorted(departures)
    assert len({flight.carrier for flight in first}) > 5
    wanted = {"carrier", "flight", "origin", "dest", "dep_delay", "sched_dep"}  # what is shown of a flight
    assert all(set(json.loads(flight.value)) == wanted for flight in first)
