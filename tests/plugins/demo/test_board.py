"""The demo's table of delays."""

from __future__ import annotations

from kiwi_demo.board import SHOWN, Board


def result(
    carrier: str, delay: float | None, until: str = "2013-01-01T12:00:00.000000Z", flights: int = 2
) -> dict[str, object]:
    value = {
        "until": until,
        "carrier": carrier,
        "name": f"{carrier} Inc.",
        "delay": delay,
        "flights": flights,
    }
    return {
        "sourceId": "delays-by-carrier",
        "batch": 0,
        "row": 0,
        "key": {"carrier": carrier},
        "value": value,
    }


def test_the_longest_delays_come_first() -> None:
    board = Board()
    for number in range(8):
        board.take(result(f"C{number}", float(number)))
    head, *rows = board.news()
    assert head == "delays-by-carrier, 2013-01-01 12:00: the longest of 8 carriers"
    assert len(rows) == SHOWN
    assert [row.split()[0] for row in rows] == ["C7", "C6", "C5", "C4", "C3"]
    assert rows[0].split("Inc.")[1].strip() == "2 flights due until 12:00, +7.0 min on average"


def test_a_newer_row_replaces_an_older_one_and_not_the_other_way_round() -> None:
    board = Board()
    board.take(result("UA", 4.0, "2013-01-01T13:00:00.000000Z", flights=1))
    board.take(result("UA", 30.0, "2013-01-01T12:00:00.000000Z"))
    assert "1 flight due until 13:00, +4.0 min" in board.news()[1]
    board.take(result("UA", -5.0, "2013-01-01T13:00:00.000000Z"))
    assert "2 flights due until 13:00, -5.0 min" in board.news()[1]


def test_it_is_shown_only_when_something_changed() -> None:
    board = Board()
    assert board.news() == []
    board.take(result("UA", None))
    assert board.news() == [], "every flight of the hour was cancelled"
    board.take(result("UA", 1.0))
    assert len(board.news()) == 2
    assert board.news() == []
