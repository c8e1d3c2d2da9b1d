"""The rows of a query: what they look like on the wire, how their positions are written, how Arrow has them.
Nothing here waits; a piece takes less than a millisecond."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from kiwi_gw.api import Batch, EventSchema, Field, FieldEncoding, Gap, PositionCodec, Positions
from kiwi_spark.protocol.messages import WireError

ROW_BITS: Final = 24
MAX_ROWS: Final = 1 << ROW_BITS
"""Rows of one batch. Batch and row together make one offset, which stays exact in every JSON reader
(below 2^53) for 2^29 batches."""

_ROW_MASK = MAX_ROWS - 1

SCHEMA: Final = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("sourceType", FieldEncoding.SOURCE_TYPE),
        Field("batch", FieldEncoding.INT),
        Field("row", FieldEncoding.INT),
        Field("timestamp", FieldEncoding.INT),
        Field("key", FieldEncoding.JSON),
        Field("value", FieldEncoding.JSON),
    )
)

BATCH_ROWS: Final = 2_000
"""Rows of one batch for the gateway: what it encodes at a time. Larger ones would hold the event loop."""

_OBJECT = 33
"""Bytes that a `bytes` object weighs beside its content (CPython, 64 bit)."""
_ROW = 2 * 8 + 4 + 8 + 8
"""References to key and value, and the partition, offset and timestamp of one row."""

_COLUMNS = ("key", "value")


def offset_of(batch: int, row: int) -> int:
    """Return the offset of a row (0 <= row < MAX_ROWS; row == MAX_ROWS is the next batch's first)."""
    return (batch << ROW_BITS) + row


def batch_and_row(offset: int) -> tuple[int, int]:
    """Return batch and row of an offset."""
    return offset >> ROW_BITS, offset & _ROW_MASK


def _dump(positions: Positions) -> dict[str, object]:
    batch, row = batch_and_row(positions[0])
    return {"batch": batch, "row": row}


def _place(offset: int) -> dict[str, object]:
    """Write a row; without `row` the end of the batch, where a run ends before the next one's first row."""
    batch, row = batch_and_row(offset)
    return {"batch": batch} if row == _ROW_MASK else {"batch": batch, "row": row}


def _load(value: object) -> Positions:
    if not isinstance(value, dict) or set(value) != {"batch", "row"}:
        raise ValueError('positions of a Spark source are {"batch": B, "row": R}')
    batch, row = value["batch"], value["row"]
    if type(batch) is not int or type(row) is not int or batch < 0 or not 0 <= row <= MAX_ROWS:
        raise ValueError(f"batch must be a non-negative integer, and row one up to {MAX_ROWS}")
    return {0: offset_of(batch, row)}


BY_BATCH: Final = PositionCodec(dump=_dump, load=_load, place=_place)
"""`{"batch": 12, "row": 7}`: the next row that a reader has not had."""


def count(arrow: bytes) -> int:
    """Count the rows of an Arrow stream by its headers, not its columns. WireError: it is none."""
    try:
        with pa.ipc.open_stream(arrow) as reader:
            if not set(_COLUMNS) <= set(reader.schema.names):
                raise WireError(f"rows with the columns {reader.schema.names}, not {_COLUMNS}")
            return sum(batch.num_rows for batch in reader)
    except (pa.ArrowException, OSError) as error:
        raise WireError(f"rows that Arrow cannot read: {error}") from error


def row_batches(arrow: bytes, batch: int, timestamp: int, first: int, skip: int = 0) -> Iterator[Batch]:
    """Return the rows of an Arrow stream, `BATCH_ROWS` at a time.

    first: the number of its first row within the batch. skip: leave out so many rows.
    """
    with pa.ipc.open_stream(arrow) as reader:
        for part in reader:
            size = part.num_rows
            for at in range(min(skip, size), size, BATCH_ROWS):
                piece = part.slice(at, BATCH_ROWS)
                yield _batch(piece, offset_of(batch, first + at), timestamp)
            skip = max(0, skip - size)
            first += size


def lost_batches(first: int, batch: int) -> Batch:
    """Make an empty batch that announces that the batches from `first` up to `batch` never came."""
    gap = Gap({0: (offset_of(first, 0), offset_of(batch, 0) - 1)}, None)
    empty: dict[str, Sequence[object]] = {"batch": (), "row": (), "timestamp": (), "key": (), "value": ()}
    return Batch({0: offset_of(batch, 0)}, (), (), empty, 0, gap)


def _batch(part: Any, start: int, timestamp: int) -> Batch:
    size = part.num_rows
    keys, key_bytes = _texts(part.column("key"))
    values, value_bytes = _texts(part.column("value"))
    batch, row = batch_and_row(start)
    columns: dict[str, Sequence[object]] = {
        "batch": array("q", (batch,)) * size,
        "row": array("q", range(row, row + size)),
        "timestamp": array("q", (timestamp,)) * size,
        "key": keys,
        "value": values,
    }
    cost = (_ROW + 2 * 8) * size + key_bytes + value_bytes
    offsets = array("q", range(start, start + size))
    return Batch({0: start}, array("i", bytes(4 * size)), offsets, columns, cost)


def _texts(column: Any) -> tuple[Sequence[bytes | None], int]:
    """Return a column of texts as bytes, and what they weigh."""
    size = len(column)
    if column.null_count == size:
        return (None,) * size, 0
    wide = column.cast(pa.large_binary())
    _, places, content = wide.buffers()
    offsets = memoryview(places).cast("q")[wide.offset : wide.offset + size + 1]
    begin, end = offsets[0], offsets[-1]
    data = bytes(memoryview(content)[begin:end]) if content is not None else b""
    ends = [place - begin for place in offsets]
    texts: list[bytes | None] = [data[a:b] for a, b in pairwise(ends)]
    if wide.null_count:
        valid = wide.is_valid().to_pylist()
        texts = [text if there else None for text, there in zip(texts, valid, strict=True)]
    return texts, len(data) + _OBJECT * (size - wide.null_count)
