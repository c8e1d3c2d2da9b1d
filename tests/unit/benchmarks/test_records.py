from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records


@pytest.mark.parametrize("size", [80, 128, 1000])
@pytest.mark.parametrize("number", [0, 7, 123_456_789])
def test_a_value_is_json_of_exactly_its_size(number: int, size: int) -> None:
    value = records.value(number, size)
    assert len(value) == size
    assert json.loads(value)["n"] == number


def test_a_value_says_when_it_was_made() -> None:
    value = records.value(5, 128, 10**18)
    assert len(value) == 128
    assert json.loads(value)["t"] == 10**18


@given(st.lists(st.integers(0, 99), min_size=1, max_size=5), st.integers(0, 50))
def test_next_offsets(bases: list[int], count: int) -> None:
    found = records.offsets(bases, count)
    assert sum(found) == sum(bases) + count
    assert all(found[n % len(bases)] - bases[n % len(bases)] > n // len(bases) for n in range(count))


def test_a_value_that_cannot_be_so_small() -> None:
    with pytest.raises(ValueError, match="at least"):
        records.value(1, 20)


@given(st.integers(1, 7), st.integers(0, 50), st.integers(0, 50))
def test_every_record_has_one_partition(partitions: int, first: int, more: int) -> None:
    by_partition = [list(records.numbers(p, partitions, first, first + more)) for p in range(partitions)]
    assert sorted(chain.from_iterable(by_partition)) == list(range(first, first + more))
    for partition, numbers in enumerate(by_partition):
        assert all(number % partitions == partition for number in numbers)
