"""How far a subscription has come in a partition, against a set of offsets."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from kiwi_gw.dialects.pulsar.partition_cursor import MOST_TEXT, PartitionCursor

steps = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=40)


@given(begin=st.integers(0, 5), steps=steps)
def test_it_holds_what_was_acknowledged(begin: int, steps: list[tuple[int, int]]) -> None:
    cursor, done = PartitionCursor(begin), set(range(begin))
    for first, length in steps:
        new = set(range(first, first + length)) - done
        assert cursor.acknowledge(first, first + length) is bool(new)
        done |= new
        position = next(offset for offset in range(100) if offset not in done)
        assert cursor.position == position
        assert [offset for offset in range(100) if cursor.has(offset)] == sorted(done)
        above = [offset for first, last in cursor.ranges for offset in range(first, last + 1)]
        assert above == sorted(offset for offset in done if offset > position)
        again = PartitionCursor(cursor.position, cursor.text)
        assert (again.position, again.ranges) == (cursor.position, cursor.ranges)


def test_a_text_that_would_be_too_long_keeps_the_lowest_ranges() -> None:
    cursor, chosen = PartitionCursor(1_000), random.Random(7)
    offset = 1_000
    for _ in range(5_000):
        offset += chosen.randrange(2, 300)
        length = chosen.randrange(1, 300)
        cursor.acknowledge(offset, offset + length)
        offset += length
    again = PartitionCursor(cursor.position, cursor.text)
    assert MOST_TEXT - 8 < len(cursor.text) <= MOST_TEXT
    assert len(again.ranges) > 900
    assert again.ranges == cursor.ranges[: len(again.ranges)]


@given(begin=st.integers(0, 5), steps=steps, data=st.data())
def test_a_damaged_text_says_nothing(begin: int, steps: list[tuple[int, int]], data: st.DataObject) -> None:
    cursor = PartitionCursor(begin)
    for first, length in steps:
        cursor.acknowledge(first, first + length)
    text = cursor.text
    assume(text)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("Aa01+/=").filter(lambda character: character != text[at]))
    # The last character before a `=` has bits that base64 does not use.
    last = text[at + 1 : at + 2] == "="
    assert PartitionCursor(cursor.position, text[:at]).ranges == []
    changed = PartitionCursor(cursor.position, text[:at] + other + text[at + 1 :])
    assert changed.ranges == [] or (last and changed.ranges == cursor.ranges)


def test_a_text_that_was_written_beside_another_offset_says_nothing() -> None:
    cursor = PartitionCursor(100)
    cursor.acknowledge(110, 120)
    assert PartitionCursor(100, cursor.text).ranges == [(110, 119)]
    assert PartitionCursor(5_100, cursor.text).ranges == []


@given(text=st.one_of(st.text(max_size=30), st.text("1AB+/=", max_size=30), st.binary(max_size=20).map(repr)))
def test_a_text_of_somebody_else_says_nothing_and_breaks_nothing(text: str) -> None:
    cursor = PartitionCursor(7, text)
    assert cursor.position == 7
    assert cursor.ranges == []
