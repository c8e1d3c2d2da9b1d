"""The account of what a client of the demo got."""

from __future__ import annotations

from kiwi_demo.tally import Tally


def of(*places: tuple[int, int]) -> Tally:
    tally = Tally()
    for partition, offset in places:
        tally.event({"partition": partition, "offset": offset})
    return tally


def test_all_in_order() -> None:
    tally = of((0, 0), (1, 0), (0, 1))
    assert (tally.received, tally.missed, tally.doubled, tally.to_come(5)) == (3, 0, 0, 2)
    assert tally.agrees(5)


def test_what_is_passed_over_is_missed_and_was_announced_or_not() -> None:
    tally = of((0, 0), (0, 4), (1, 2))
    assert (tally.received, tally.missed, tally.to_come(8)) == (3, 5, 0)
    assert not tally.agrees(8)
    tally.lag(3)
    tally.lag(2)
    assert (tally.announced, tally.lags) == (5, 2)
    assert tally.agrees(8)
    tally.lag(1)
    assert not tally.agrees(8), "nothing is left that it could be"
    assert tally.agrees(9), "its place has not been passed yet"


def test_what_comes_twice_is_a_mistake() -> None:
    tally = of((0, 0), (0, 1), (0, 1))
    assert (tally.doubled, tally.to_come(2)) == (1, 0)
    assert not tally.agrees(2)


def test_a_notice_that_does_not_know_how_many_announces_none() -> None:
    tally = of((0, 0), (0, 2))
    tally.lag(None)
    assert not tally.agrees(3)


def test_events_without_an_offset_are_counted() -> None:
    tally = Tally()
    tally.event({"count": 3})
    assert (tally.received, tally.missed) == (1, 0)
