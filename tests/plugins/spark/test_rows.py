"""What becomes of the rows that the driver sends: columns of batches, at most so many at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
import pytest

from kiwi_gw.api import Batch
from kiwi_gw.dialects.encoder import RowEncoder
from kiwi_gw.testing.batch_rules import check_batch
from kiwi_spark.gateway.positions import MAX_ROWS, RECORD_ROWS, SCHEMA, offset_of, partition_of
from kiwi_spark.gateway.rows import BATCH_ROWS, lost_batches, placed_batches, row_batches
from kiwi_spark.protocol.messages import PlacedRows, WireError
from kiwi_spark.protocol.packed_rows import PackedRows, pack


def texts(numbers: Iterable[int]) -> list[bytes]:
    return [json.dumps({"n": n, "t": "ä"}).encode() for n in numbers]


def rows(first: int, size: int, *, keys: bool = True) -> bytes:
    numbers = range(first, first + size)
    return pack(texts(numbers), [b"[%d]" % n for n in numbers] if keys else None)


def values(found: Iterable[Batch]) -> list[int]:
    return [json.loads(value)["n"] for piece in found for value in piece.columns["value"]]  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [True, False])
def test_rows_become_batches_that_keep_the_rules(keys: bool) -> None:
    data = rows(0, 4_503, keys=keys)
    assert PackedRows(data).count == 4_503
    found = list(row_batches(data, 9, 77, 100))
    assert [len(piece) for piece in found] == [2_000, 2_000, 503]
    positions: dict[int, int] = {}
    for piece in found:
        positions = check_batch(piece, positions, SCHEMA)
    assert positions == {0: offset_of(9, 4_603)}
    assert values(found) == list(range(4_503))
    assert [row for piece in found for row in piece.columns["row"]] == list(range(100, 4_603))
    names = [key for piece in found for key in piece.columns["key"]]
    assert names == [b"[%d]" % n if keys else None for n in range(4_503)]
    assert {t for piece in found for t in piece.columns["timestamp"]} == {77}
    assert {n for piece in found for n in piece.columns["from_offset"]} == {-1}
    content = [value for piece in found for value in piece.columns["value"] if isinstance(value, bytes)]
    assert sum(piece.cost for piece in found) > sum(map(len, content))


@pytest.mark.parametrize("skip", [0, 1, 1_999, 2_000, 4_500, 4_503])
def test_what_was_taken_is_left_out(skip: int) -> None:
    found = list(row_batches(rows(0, 4_503), 0, 0, 10, skip))
    assert values(found) == list(range(skip, 4_503))
    if found:
        assert found[0].offsets[0] == offset_of(0, 10 + skip)
    assert all(len(piece) <= BATCH_ROWS for piece in found)


def test_the_last_row_of_the_largest_batch() -> None:
    (piece,) = row_batches(rows(0, 1), 3, 0, MAX_ROWS - 1)
    assert piece.offsets[0] + 1 == offset_of(4, 0)
    assert list(piece.columns["batch"]) == [3]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"none",
        b"no rows at all",
        rows(0, 3)[:-1],
        rows(0, 3) + b"x",
        (2**31 - 1).to_bytes(4, "little") + bytes(4),
        b"\xff\xff\xff\xff" + bytes(4),
    ],
)
def test_what_is_no_rows(data: bytes) -> None:
    with pytest.raises(WireError):
        PackedRows(data)


def test_no_rows_are_rows_too() -> None:
    assert PackedRows(pack([])).count == 0
    assert list(row_batches(pack([]), 0, 0, 0)) == []


def test_a_loss_keeps_the_rules() -> None:
    assert check_batch(lost_batches(2, 5), {0: offset_of(2, 0)}, SCHEMA) == {0: offset_of(5, 0)}


def placed(partition: int, places: list[int], number: int = 0) -> PlacedRows:
    packed = pack(texts(places), None, places)
    return PlacedRows(input=number, partition=partition, timestamp=5, rows=packed)


def test_rows_with_places() -> None:
    """A record with two rows, one with none, and one with one."""
    own, other = partition_of(0, 3), partition_of(1, 0)
    places = [7 * RECORD_ROWS, 7 * RECORD_ROWS + 1, 9 * RECORD_ROWS]
    starts = {own: 5 * RECORD_ROWS, other: RECORD_ROWS}
    (piece,) = placed_batches(placed(3, places), starts, ["a"])
    assert check_batch(piece, starts, SCHEMA) == {own: places[-1] + 1, other: RECORD_ROWS}
    assert list(piece.columns["from_partition"]) == [3, 3, 3]
    assert list(piece.columns["from_offset"]) == [7, 7, 9]
    assert list(piece.columns["row"]) == [0, 1, 0]
    assert list(piece.columns["batch"]) == [-1, -1, -1]


@pytest.mark.parametrize("had", [0, 1, 4_999, 5_000])
def test_rows_that_came_before_are_dropped(had: int) -> None:
    own = partition_of(0, 0)
    places = [n * RECORD_ROWS for n in range(5_000)]
    found = list(placed_batches(placed(0, places), {own: had * RECORD_ROWS}, ["a", "b"]))
    assert values(found) == places[had:]
    assert {name for piece in found for name in piece.columns["from_partition"]} <= {"a/0"}
    positions = {own: had * RECORD_ROWS}
    for piece in found:
        positions = check_batch(piece, positions, SCHEMA)


def test_a_row_has_a_batch_or_a_place() -> None:
    encoder = RowEncoder(SCHEMA.fields, "late", "spark")
    (whole,) = row_batches(pack([b"1"], [b"2"]), 3, 7, 4)
    (place,) = placed_batches(placed(3, [9 * RECORD_ROWS + 1]), {partition_of(0, 3): 0}, ["a"])
    (named,) = placed_batches(placed(3, [9 * RECORD_ROWS]), {partition_of(0, 3): 0}, ["a", "b"])
    found = [msgspec.json.encode(row).decode() for one in (whole, place, named) for row in encoder.of(one)]
    name = '{"sourceId":"late","sourceType":"spark",'
    assert found[0] == name + '"batch":3,"row":4,"timestamp":7,"key":2,"value":1}'
    assert found[1].startswith(name + '"partition":3,"offset":9,"row":1,"timestamp":5,"key":null,')
    assert found[2].startswith(name + '"partition":"a/3","offset":9,"row":0,')
