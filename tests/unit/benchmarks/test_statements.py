"""What the answers to a statement are held against."""

from __future__ import annotations

import pytest

from benchmarks import records, statements
from benchmarks.statements import PASSING, PASSING_BY_PLACE

PARTITIONS = 4
COUNT = 500


def frame(payload: bytes) -> bytes:
    head = (
        bytes((0x81, len(payload))) if len(payload) <= 125 else b"\x81\x7e" + len(payload).to_bytes(2, "big")
    )
    return head + payload


def answers(numbers: list[int], end: bytes = statements.END) -> list[bytes]:
    """Answer with these records, in chunks that end anywhere."""
    heard = [b'{"type":"METADATA","data":{}}']
    heard += [b'{"type":"RECORD","data":{"value":%b}}' % records.value(number, 128) for number in numbers]
    whole = b"".join(map(frame, [*heard, end]))
    return [whole[at : at + 100] for at in range(0, len(whole), 100)]


def test_what_passes() -> None:
    assert list(statements.passing(PASSING, COUNT, PARTITIONS)) == list(range(0, COUNT, 61))
    by_place = list(statements.passing(PASSING_BY_PLACE, COUNT, PARTITIONS))
    assert by_place == [n for n in range(COUNT) if n // PARTITIONS in (0, 61, 122)]
    assert list(statements.passing("", 3, PARTITIONS)) == [0, 1, 2]


def test_answers_in_the_order_of_each_partition() -> None:
    assert statements.faults(answers([1, 0, 5, 4]), [0, 1, 4, 5], PARTITIONS) == []


@pytest.mark.parametrize(
    "heard",
    [
        answers([0, 1, 4]),
        answers([0, 1, 4, 5, 5]),
        answers([4, 0, 1, 5]),
        answers([0, 1, 4, 6]),
        answers([0, 1, 4, 5], b'{"type":"ERROR","data":"x"}'),
        answers([0, 1, 4, 5])[:-1],
        [],
    ],
)
def test_other_answers(heard: list[bytes]) -> None:
    assert statements.faults(heard, [0, 1, 4, 5], PARTITIONS)
