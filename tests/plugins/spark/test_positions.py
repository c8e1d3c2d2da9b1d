"""How positions of a query's rows are written and read, in micro-batches and in real time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_spark.gateway.positions import (
    MAX_ROWS,
    RECORD_ROWS,
    codec,
    offset_of,
    partition_of,
    places_of,
)

ONE, TWO = codec(["flights"]), codec(["flights", "weather/now"])


@given(st.integers(0, 2**29), st.integers(0, MAX_ROWS - 1))
def test_positions_in_batches_come_back(batch: int, row: int) -> None:
    positions = {0: offset_of(batch, row)}
    assert ONE.dump(positions) == {"batch": batch, "row": row}
    assert ONE.load(ONE.dump(positions)) == TWO.load(TWO.dump(positions)) == positions


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 1), st.integers(0, 500)),
        st.tuples(st.integers(0, 2**42), st.integers(0, RECORD_ROWS - 1)),
        min_size=1,
    )
)
def test_places_come_back(places: dict[tuple[int, int], tuple[int, int]]) -> None:
    positions = {
        partition_of(number, partition): offset * RECORD_ROWS + row
        for (number, partition), (offset, row) in places.items()
    }
    assert TWO.load(TWO.dump(positions)) == positions


def test_places_are_the_positions_of_the_input() -> None:
    positions = places_of({"flights": {0: 345, 1: 678}}, ["flights"])
    assert ONE.dump(positions) == {"0": 345, "1": 678}
    positions[partition_of(0, 1)] += 1
    assert ONE.dump(positions) == {"0": 345, "1": [678, 1]}
    assert TWO.dump({partition_of(1, 4): RECORD_ROWS}) == {"weather/now/4": 1}


def test_ranges() -> None:
    own = partition_of(0, 0)
    assert ONE.dump_ranges({own: (5 * RECORD_ROWS, 7 * RECORD_ROWS + 2)}) == {"0": (5, [7, 2])}
    assert ONE.dump_ranges({own: (5 * RECORD_ROWS + 1, 8 * RECORD_ROWS - 1)}) == {"0": ([5, 1], 7)}
    assert ONE.dump_ranges({0: (offset_of(2, 3), offset_of(4, 0) - 1)}) == {
        "0": ({"batch": 2, "row": 3}, {"batch": 3})
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "must be an object"),
        ({"batch": 1}, "two integers"),
        ({"batch": 1, "row": True}, "two integers"),
        ({"batch": -1, "row": 0}, "non-negative"),
        ({"batch": 0, "row": MAX_ROWS + 1}, "one up to"),
        ({"x": 1}, "'x' is no partition"),
        ({"flights/": 1}, "'flights/' is no partition"),
        ({"hotels/0": 1}, "'hotels/0' is no partition"),
        ({"99999999": 1}, "no partition"),
        ({"0": -1}, "the place in partition 0 must be"),
        ({"0": [1, -1]}, "the place in partition 0 must be"),
        ({"0": [1, RECORD_ROWS]}, "the place in partition 0 must be"),
        ({"0": [1]}, "the place in partition 0 must be"),
        ({"0": True}, "the place in partition 0 must be"),
        ({"0": 1.0}, "the place in partition 0 must be"),
    ],
)
def test_what_is_no_position(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ONE.load(value)


def test_with_several_topics_a_partition_names_its_input() -> None:
    with pytest.raises(ValueError, match="'0' is no partition"):
        TWO.load({"0": 1})
