from __future__ import annotations

import base64
import json

import pytest

from benchmarks import records
from benchmarks.check import Check, order, parted, place
from kiwi_gw.dialect_api.frames import text_frame


def event(partition: int, offset: int, number: int) -> bytes:
    data = {"partition": partition, "offset": offset, "value": records.value(number, 128).decode()}
    return text_frame(json.dumps({"type": "RESULT", "data": data}).encode())


def right(count: int, partitions: int) -> list[bytes]:
    return [event(n % partitions, n // partitions, n) for n in range(count)]


def faults(stream: bytes, total: int, partitions: int) -> list[str]:
    return Check(stream, total, [0] * partitions).faults


def test_everything_once_and_in_order() -> None:
    assert faults(b"".join(right(10, 3)), 10, 3) == []


def test_records_of_a_table_are_checked_likewise() -> None:
    """In Lenses' protocol."""
    read = [
        text_frame(
            json.dumps(
                {
                    "key": "0",
                    "value": records.value(n, 128).decode(),
                    "topic": "t",
                    "partition": 0,
                    "offset": n,
                }
            ).encode()
        )
        for n in range(3)
    ]
    assert Check(b"".join(read), 3, [0], protocol="lenses").faults == []
    assert Check(read[0] + read[2], 3, [0], protocol="lenses").faults == [
        "partition 0: offset 2 where 1 was to come"
    ]


def test_partitions_may_come_in_any_order() -> None:
    events = right(10, 2)
    assert faults(b"".join(events[1::2] + events[0::2]), 10, 2) == []


def test_one_is_missing() -> None:
    events = right(10, 2)
    del events[4]
    assert faults(b"".join(events), 10, 2) == ["partition 0: offset 3 where 2 was to come"]


def test_the_last_is_missing() -> None:
    assert faults(b"".join(right(10, 2)[:-1]), 10, 2) == [
        "partition 1: ends before offset 4, produced was up to 5"
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


def test_a_topic_that_had_records_before_and_a_client_that_came_later() -> None:
    events = [event(0, 7 + 1, 2), event(1, 9 + 1, 3), event(0, 7 + 2, 4)]
    assert Check(b"".join(events), 5, [7, 9], first=2).faults == []
    assert Check(b"".join(events), 5, [7, 9]).faults
    assert Check(b"".join(events), 6, [7, 9], first=2).faults


def test_what_is_known_of_every_event() -> None:
    value = records.value(1, 128, 123_456_789).decode()
    data = {"partition": 1, "offset": 70_000, "value": value}
    frame = text_frame(json.dumps({"type": "RESULT", "data": data}).encode())
    check = Check(frame, 2, [0, 70_000], first=1)
    assert check.times.tolist() == [123_456_789]
    assert parted(check.places[0]) == (1, 70_000)


def test_the_original_servers_events_have_only_a_payload() -> None:
    payload = base64.b64encode(records.value(0, 128)).decode()
    data = {"partition": 0, "offset": 0, "payload": payload}
    frame = text_frame(json.dumps({"type": "RESULT", "data": data}).encode())
    assert Check(frame, 1, [0]).faults == []


PLACES = [place(p, o) for p, o in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]]


def test_the_order_between_partitions_is_free() -> None:
    assert order([(2, 4), (0, 2), (4, 5)], PLACES, [0, 0], [3, 2]) == []


@pytest.mark.parametrize(
    "segments", [[(0, 1), (2, 5)], [(0, 5), (4, 5)], [(0, 4)], [(4, 5), (0, 4)], [(1, 5)], [(0, 5), (2, 3)]]
)
def test_missing_doubled_and_out_of_order(segments: list[tuple[int, int]]) -> None:
    assert order(segments, PLACES, [0, 0], [3, 2])


def test_one_that_came_late_and_one_that_has_left() -> None:
    assert order([(1, 5)], PLACES, None, [3, 2]) == []
    assert order([(0, 3)], PLACES, [0, 0], None) == []
    assert order([(1, 3), (4, 5)], PLACES, None, [3, 2])
