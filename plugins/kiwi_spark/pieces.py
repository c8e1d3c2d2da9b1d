"""Rows as they came, in Arrow, as columns for the gateway. Nothing here waits; a piece takes less than a
millisecond."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from kiwi_gw.api import Batch, Gap
from kiwi_spark.frames import WireError
from kiwi_spark.shape import offset_of, place_of

PIECE_ROWS: Final = 2_000
"""Rows of one batch for the gateway: what it encodes at a time. Larger ones would hold the event loop."""

_OBJECT = 33
"""Bytes that a `bytes` object weighs beside its content (CPython, 64 bit)."""
_ROW = 2 * 8 + 4 + 8 + 8
"""References to key and value, and the partition, offset and timestamp of one row."""

_COLUMNS = ("key", "value")


def count(arrow: bytes) -> int:
    """How many rows an Arrow stream has. Reads its headers, not its columns. WireError if it is none."""
    try:
        with pa.ipc.open_stream(arrow) as reader:
            if not set(_COLUMNS) <= set(reader.schema.names):
                raise WireError(f"rows with the columns {reader.schema.names}, not {_COLUMNS}")
            return sum(batch.num_rows for batch in reader)
    except (pa.ArrowException, OSError) as error:
        raise WireError(f"rows that Arrow cannot read: {error}") from error


def pieces(arrow: bytes, batch: int, timestamp: int, first: int, skip: int = 0) -> Iterator[Batch]:
    """The rows of an Arrow stream, `PIECE_ROWS` at a time.

    first: the number of its first row within the batch. skip: leave out so many rows.
    """
    with pa.ipc.open_stream(arrow) as reader:
        for part in reader:
            size = part.num_rows
            for at in range(min(skip, size), size, PIECE_ROWS):
                piece = part.slice(at, PIECE_ROWS)
                yield _batch(piece, offset_of(batch, first + at), timestamp)
            skip = max(0, skip - size)
            first += size


def lost(first: int, batch: int) -> Batch:
    """An empty batch that announces that the batches from `first` up to `batch` never came."""
    gap = Gap({0: (offset_of(first, 0), offset_of(batch, 0) - 1)}, None)
    empty: dict[str, Sequence[object]] = {"batch": (), "row": (), "timestamp": (), "key": (), "value": ()}
    return Batch({0: offset_of(batch, 0)}, (), (), empty, 0, gap)


def _batch(part: Any, start: int, timestamp: int) -> Batch:
    size = part.num_rows
    keys, key_bytes = _texts(part.column("key"))
    values, value_bytes = _texts(part.column("value"))
    batch, row = place_of(start)
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
    """A column of texts as bytes, and what they weigh."""
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
