"""Where a client is: what the gateway says, moved on by what it sends."""

from __future__ import annotations

from msgspec import UNSET

from kiwi_gw.client.resume_point import ResumePoint


def record(partition: int, offset: int) -> dict[str, object]:
    return {"sourceType": "kafka", "partition": partition, "offset": offset}


def test_nothing_is_known_before_the_gateway_says_it() -> None:
    point = ResumePoint()
    point.received(record(0, 5))
    point.update(UNSET)
    assert point.positions is None


def test_records_move_it_on() -> None:
    point = ResumePoint()
    point.update({"0": 5, "1": 9})
    point.received(record(0, 5))
    point.received(record(0, 8))
    point.received(record(2, 0))  # a partition that joined
    assert point.positions == {"0": 9, "1": 9, "2": 1}
    assert point.since == 0


def test_older_events_of_a_snapshot_do_not_move_it_back() -> None:
    point = ResumePoint()
    point.update({"0": 50})
    point.received(record(0, 7))
    assert point.positions == {"0": 50}


def test_events_that_do_not_say_where_they_are_are_counted() -> None:
    point = ResumePoint()
    point.update({"0": 5})
    for event in ({"count": 5}, {"count": 6}, {"partition": True, "offset": 6}):
        point.received(event)
    assert (point.positions, point.since) == ({"0": 5}, 3)
    point.update({"0": 8})
    assert (point.positions, point.since) == ({"0": 8}, 0)


def test_rows_of_records() -> None:
    point = ResumePoint()
    point.update({"0": 5, "flights/1": [7, 1]})
    point.received({"partition": 0, "offset": 5, "row": 0})
    point.received({"partition": "flights/1", "offset": 7, "row": 1})
    assert point.positions == {"0": [5, 1], "flights/1": [7, 2]}
    point.received({"partition": 0, "offset": 4, "row": 3})
    point.received({"partition": 0, "offset": 6, "row": 0})
    assert point.positions == {"0": [6, 1], "flights/1": [7, 2]}


def test_positions_of_another_form_are_kept_as_they_are() -> None:
    point = ResumePoint()
    point.update({"0": "batch 7"})
    point.received(record(0, 3))
    assert point.positions == {"0": "batch 7"}
    point.forget()
    assert point.positions is None
