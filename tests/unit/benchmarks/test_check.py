from __future__ import annotations

import json

import pytest

from benchmarks import records
from benchmarks.check import faults
from kiwi_gw.dialects.frames import text_frame


def event(partition: int, offset: int, number: int) -> bytes:
    data = {"partition": partition, "offset": offset, "value": records.value(number, 128).decode()}
    return text_frame(json.dumps({"type": "RESULT", "data": data}).encode())


def right(count: int, partitions: int) -> list[bytes]:
    return [event(n % partitions, n // partitions, n) for n in range(count)]


def test_everything_once_and_in_order() -> None:
    assert faults(b"".join(right(10, 3)), 10, 3) == []


def test_partitions_may_come_in_any_order() -> None:
    events = right(10, 2)
    assert faults(b"".join(events[1::2] + events[0::2]), 10, 2) == []


def test_one_is_missing() -> None:
    events = right(10, 2)
    del events[4]
    assert faults(b"".join(events), 10, 2) == ["partition 0: offset 3 where 2 was to come"]


def test_the_last_is_missing() -> None:
    assert faults(b"".join(right(10, 2)[:-1]), 10, 2) == [
        "partition 1: ends before offset 4, 5 were produced"
    ]


@pytest.mark.parametrize("order", [(0, 1, 1, 2), (0, 2, 1)])
def test_one_is_doubled_or_late(order: tuple[int, ...]) -> None:
    assert faults(b"".join(event(0, n, n) for n in order), 3, 1)


def test_the_value_of_another_record() -> None:
    assert faults(event(0, 0, 0) + event(0, 1, 2), 2, 1) == ["partition 0, offset 1: another record's value"]


def test_an_unknown_partition() -> None:
    assert faults(event(0, 0, 0) + event(7, 0, 1), 1, 1) == ["an event of partition 7, of which there are 1"]


def test_not_everything_is_told() -> None:
    assert len(faults(b"".join(event(0, 2 * n, n) for n in range(100)), 100, 1)) <= 6
