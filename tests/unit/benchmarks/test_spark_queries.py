"""What the results of the measured queries must be, and that anything else is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from benchmarks.spark_queries import (
    ALL,
    AT_ONCE,
    FILTER,
    WINDOW,
    Row,
    SparkQuery,
    Value,
    faults_of_places,
    source,
)
from benchmarks.workers.spark_reader import Counted, Grouped


def value(n: int) -> Value:
    return Value(n=n, delay=n % 61 - 10, carrier="UA")


def groups(first: int, stop: int) -> Iterator[Value]:
    """The rows of a batch that ends with record `stop` - 1, if it began with `first`."""
    for hour, delay in sorted({(n // 3600, n % 61 - 10) for n in range(first, stop)}):
        have = [n for n in range(stop) if n // 3600 == hour and n % 61 - 10 == delay]
        yield Value(hour=hour, delay=delay, flights=len(have), last=have[-1])


@pytest.mark.parametrize(("query", "numbers"), [(ALL, range(100)), (FILTER, range(3, 100, 10))])
def test_rows_in_any_order_are_right_and_all_else_is_not(query: SparkQuery, numbers: range) -> None:
    right = [value(n) for n in reversed(numbers)]
    assert query.rows is not None
    assert query.rows(100) == len(numbers)
    assert query.check(right, 100) == []
    assert query.check(right[1:], 100)
    assert query.check([*right, right[0]], 100)
    assert query.check([*right[1:], Value(n=right[0].n, delay=99, carrier="UA")], 100)


@pytest.mark.parametrize("records", range(8, 35))
def test_a_filter_has_so_many_rows_of_any_number_of_records(records: int) -> None:
    assert FILTER.rows is not None
    assert FILTER.rows(records) - FILTER.rows(7) == len(range(3, records, 10)) - 1


def test_the_last_row_of_every_group_counts() -> None:
    rows = [*groups(0, 3000), *groups(3000, 4000)]
    assert WINDOW.check(rows, 4000) == []
    assert WINDOW.check(rows[:-1], 4000)
    assert WINDOW.check([*rows, Value(hour=99, delay=0, flights=1)], 4000)


def test_places() -> None:
    rows = [Row(batch, row, 0, value(0)) for batch, row in ((3, 0), (3, 1), (5, 0))]
    assert faults_of_places(rows) == []
    for wrong in ([rows[1]], [rows[0], rows[2], rows[1]], [rows[0], rows[0]]):
        assert faults_of_places(wrong)


def test_places_in_real_time() -> None:
    def of(*places: tuple[int, int, int]) -> list[Row]:
        return [Row(None, row, 0, value(0), partition, offset) for partition, offset, row in places]

    assert faults_of_places(of((0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 5, 0), (0, 1, 0))) == []
    for wrong in (of((0, 1, 0), (0, 0, 0)), of((0, 0, 0), (1, 0, 0), (0, 0, 0)), of((0, 0, 1), (0, 0, 0))):
        assert faults_of_places(wrong)


def frame(message: object) -> bytes:
    payload = json.dumps(message, separators=(",", ":")).encode()
    assert 125 < len(payload) < 65_536
    return bytes([0x81, 126, *divmod(len(payload), 256)]) + payload


def event(**columns: object) -> bytes:
    data = {"sourceId": "s" * 60, "batch": 0, "row": 0, "timestamp": 0, "value": columns, "key": None}
    return frame({"type": "RESULT", "data": data})


def test_events_are_counted_wherever_they_are_cut() -> None:
    whole = event(n=1) + frame({"type": "NOTICE", "data": "x" * 120}) + event(n=2)
    for cut in range(len(whole)):
        counted, data = Counted(ALL), bytearray(whole[:cut])
        counted.look(data)
        data += whole[cut:]
        assert counted.look(data) == 2


def test_groups_stand_for_records_until_a_newer_row_does() -> None:
    grouped, data = Grouped(), bytearray()
    for flights, hour, expected in ((5, 0, 5), (7, 1, 12), (6, 0, 13)):
        data += event(hour=hour, delay=1, flights=flights)
        assert grouped.look(data) == expected


def test_a_source_of_the_configuration() -> None:
    made = source(WINDOW, "topic", 10, AT_ONCE)
    assert made["id"] == "window-of-topic"
    assert made["inputs"]["flights"]["max_offsets"] == 10
    assert made["watermarks"] == {"flights": {"column": "n", "delay": "1 day"}}
    assert made["key"] == ["hour", "delay"]
