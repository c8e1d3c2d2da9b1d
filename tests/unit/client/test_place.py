"""Where a client is: what the gateway says, moved on by what it sends."""

from __future__ import annotations

from kiwi_gw.client.place import Place


def record(partition: int, offset: int) -> dict[str, object]:
    return {"sourceType": "kafka", "partition": partition, "offset": offset}


def test_nothing_is_known_before_the_gateway_says_it() -> None:
    place = Place()
    place.received(record(0, 5))
    place.told({"sourceId": "s"})
    assert place.positions is None


def test_records_move_it_on() -> None:
    place = Place()
    place.told({"positions": {"0": 5, "1": 9}})
    place.received(record(0, 5))
    place.received(record(0, 8))
    place.received(record(2, 0))  # a partition that joined
    assert place.positions == {"0": 9, "1": 9, "2": 1}
    assert place.since == 0


def test_older_events_of_a_snapshot_do_not_move_it_back() -> None:
    place = Place()
    place.told({"positions": {"0": 50}})
    place.received(record(0, 7))
    assert place.positions == {"0": 50}


def test_events_that_do_not_say_where_they_are_are_counted() -> None:
    place = Place()
    place.told({"positions": {"0": 5}})
    for event in ({"count": 5}, {"count": 6}, {"partition": True, "offset": 6}):
        place.received(event)
    assert (place.positions, place.since) == ({"0": 5}, 3)
    place.told({"positions": {"0": 8}})
    assert (place.positions, place.since) == ({"0": 8}, 0)


def test_positions_of_another_form_are_kept_as_they_are() -> None:
    place = Place()
    place.told({"positions": {"0": "batch 7"}})
    place.received(record(0, 3))
    assert place.positions == {"0": "batch 7"}
    place.forget()
    assert place.positions is None
