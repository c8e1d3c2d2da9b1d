from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from kiwi_gw.testing.batch_rules import check_batch
from kiwi_spark.frames import WireError
from kiwi_spark.pieces import PIECE_ROWS, count, lost, pieces
from kiwi_spark.shape import MAX_ROWS, SHAPE, offset_of
from kiwi_spark.stage import Stage, StageBudget


def arrow(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def rows(first: int, size: int, kind: pa.DataType, *, keys: bool = True) -> pa.RecordBatch:
    values = pa.array(
        [json.dumps({"n": n, "t": "ä"}).encode() for n in range(first, first + size)], pa.binary()
    )
    names = pa.array([b"[1]" if keys and n % 2 else None for n in range(first, first + size)], pa.binary())
    return pa.record_batch({"key": names.cast(kind), "value": values.cast(kind)})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("keys", [True, False])
def test_rows_become_batches_that_keep_the_rules(kind: pa.DataType, keys: bool) -> None:
    data = arrow(rows(0, 4_500, kind, keys=keys), rows(4_500, 3, kind, keys=keys))
    assert count(data) == 4_503
    found = list(pieces(data, 9, 77, 100))
    assert [len(piece) for piece in found] == [2_000, 2_000, 500, 3]
    positions: dict[int, int] = {}
    for piece in found:
        positions = check_batch(piece, positions, SHAPE)
    assert positions == {0: offset_of(9, 4_603)}
    values = [json.loads(value)["n"] for piece in found for value in piece.columns["value"]]  # type: ignore[arg-type]
    assert values == list(range(4_503))
    assert [row for piece in found for row in piece.columns["row"]] == list(range(100, 4_603))
    names = [key for piece in found for key in piece.columns["key"]]
    assert names == [b"[1]" if keys and n % 2 else None for n in range(4_503)]
    assert {t for piece in found for t in piece.columns["timestamp"]} == {77}
    texts = [value for piece in found for value in piece.columns["value"] if isinstance(value, bytes)]
    assert sum(piece.cost for piece in found) > sum(map(len, texts))


@pytest.mark.parametrize("skip", [0, 1, 1_999, 2_000, 4_500, 4_501, 4_503])
def test_what_was_taken_is_left_out(skip: int) -> None:
    data = arrow(rows(0, 4_500, pa.string()), rows(4_500, 3, pa.string()))
    found = list(pieces(data, 0, 0, 10, skip))
    values = [json.loads(value)["n"] for piece in found for value in piece.columns["value"]]  # type: ignore[arg-type]
    assert values == list(range(skip, 4_503))
    if found:
        assert found[0].offsets[0] == offset_of(0, 10 + skip)
    assert all(len(piece) <= PIECE_ROWS for piece in found)


def test_the_last_row_of_the_largest_batch() -> None:
    (piece,) = pieces(arrow(rows(0, 1, pa.string())), 3, 0, MAX_ROWS - 1)
    assert piece.offsets[0] + 1 == offset_of(4, 0)
    assert list(piece.columns["batch"]) == [3]


@pytest.mark.parametrize("data", [b"", b"no Arrow at all", arrow(pa.record_batch({"x": pa.array([1])}))])
def test_what_is_no_rows(data: bytes) -> None:
    with pytest.raises(WireError):
        count(data)


def test_a_loss_keeps_the_rules() -> None:
    assert check_batch(lost(2, 5), {0: offset_of(2, 0)}, SHAPE) == {0: offset_of(5, 0)}


async def test_a_stage_spills_what_has_no_room(tmp_path: Path) -> None:
    budget = StageBudget(10)
    one, other = Stage(budget, str(tmp_path)), Stage(budget, str(tmp_path))
    texts = [b"12345", b"1234567890" * 10, b"54321", b"x" * 100_000, b""]
    for text in texts:
        await one.add(text, len(text))
    await other.add(b"abc", 1)
    assert [one.read(index) for index in range(len(one))] == texts
    assert one.counts == [len(text) for text in texts]
    assert one.rows == sum(one.counts)
    assert (one.spilled, other.spilled, budget.used) == (100_100, 3, 10)
    assert os.listdir(tmp_path) == []  # the file has no name
    one.close()
    one.close()
    assert budget.used == 0
    assert other.read(0) == b"abc"
    other.close()


async def test_no_room_at_all() -> None:
    stage = Stage(StageBudget(0), "/proc")
    with pytest.raises(OSError):  # noqa: PT011  whatever the system says
        await stage.add(b"x", 1)
    assert (stage.rows, len(stage)) == (0, 0)
    stage.close()
