from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

from kiwi_gw.testing.batch_rules import check_batch
from kiwi_spark.gateway.batches import (
    BATCH_ROWS,
    MAX_ROWS,
    SCHEMA,
    count,
    lost_batches,
    offset_of,
    row_batches,
)
from kiwi_spark.protocol.messages import WireError


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
    found = list(row_batches(data, 9, 77, 100))
    assert [len(piece) for piece in found] == [2_000, 2_000, 500, 3]
    positions: dict[int, int] = {}
    for piece in found:
        positions = check_batch(piece, positions, SCHEMA)
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
    found = list(row_batches(data, 0, 0, 10, skip))
    values = [json.loads(value)["n"] for piece in found for value in piece.columns["value"]]  # type: ignore[arg-type]
    assert values == list(range(skip, 4_503))
    if found:
        assert found[0].offsets[0] == offset_of(0, 10 + skip)
    assert all(len(piece) <= BATCH_ROWS for piece in found)


def test_the_last_row_of_the_largest_batch() -> None:
    (piece,) = row_batches(arrow(rows(0, 1, pa.string())), 3, 0, MAX_ROWS - 1)
    assert piece.offsets[0] + 1 == offset_of(4, 0)
    assert list(piece.columns["batch"]) == [3]


@pytest.mark.parametrize("data", [b"", b"no Arrow at all", arrow(pa.record_batch({"x": pa.array([1])}))])
def test_what_is_no_rows(data: bytes) -> None:
    with pytest.raises(WireError):
        count(data)


def test_a_loss_keeps_the_rules() -> None:
    assert check_batch(lost_batches(2, 5), {0: offset_of(2, 0)}, SCHEMA) == {0: offset_of(5, 0)}
