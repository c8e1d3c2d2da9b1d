"""Makes batches of columns of the rows that the driver sends. Nothing here waits; a piece takes less than a
millisecond."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kiwi_gw.api import Batch, Gap, Positions
from kiwi_spark.gateway.positions import RECORD_ROWS, offset_of, partition_name, partition_of
from kiwi_spark.protocol.messages import PlacedRows
from kiwi_spark.protocol.packed_rows import PackedRows

BATCH_ROWS: Final = 2_000
"""Rows of one batch for the gateway: what it encodes at a time. Larger ones would hold the event loop."""

_OBJECT: Final = 33
"""Bytes that a `bytes` object weighs beside its content (CPython, 64 bit)."""
_ROW: Final = 2 * 8 + 4 + 8 + 5 * 8
"""References to key and value, and the numbers of one row."""


def row_batches(packed: bytes, batch: int, timestamp: int, first: int, skip: int = 0) -> Iterator[Batch]:
    """Return the rows of one part of a batch, `BATCH_ROWS` at a time. WireError: they are none.

    first: the number of its first row within the batch. skip: leave out so many rows.
    """
    rows = PackedRows(packed)
    for at in range(skip, rows.count, BATCH_ROWS):
        stop = min(at + BATCH_ROWS, rows.count)
        size, start = stop - at, offset_of(batch, first + at)
        offsets = array("q", range(start, start + size))
        columns = {
            "batch": array("q", (batch,)) * size,
            "row": array("q", range(first + at, first + stop)),
            "from_partition": (None,) * size,
            "from_offset": array("q", (-1,)) * size,
        }
        yield _batch(rows, at, stop, timestamp, {0: start}, array("i", (0,)) * size, offsets, columns)


def result_batches(packed: bytes, timestamp: int, first: int) -> Iterator[Batch]:
    """Return the rows of one part of the result of a query that ends, `BATCH_ROWS` at a time. WireError: they
    are none. first: the number of its first row within the result."""
    rows = PackedRows(packed)
    for at in range(0, rows.count, BATCH_ROWS):
        stop = min(at + BATCH_ROWS, rows.count)
        start, size = first + at, stop - at
        offsets = array("q", range(start, start + size))
        yield _batch(rows, at, stop, timestamp, {0: start}, array("i", (0,)) * size, offsets, {})


def lost_batches(first: int, batch: int) -> Batch:
    """Make an empty batch that announces that the batches from `first` up to `batch` never came."""
    gap = Gap({0: (offset_of(first, 0), offset_of(batch, 0) - 1)}, None)
    names = ("batch", "row", "from_partition", "from_offset", "timestamp", "key", "value")
    return Batch({0: offset_of(batch, 0)}, (), (), dict.fromkeys(names, ()), 0, gap)


def placed_batches(message: PlacedRows, starts: Positions, inputs: Sequence[str]) -> Iterator[Batch]:
    """Return the rows of a message that are not below `starts`, `BATCH_ROWS` at a time. WireError: they are
    none.

    inputs: names of the query's streams. starts: the next place of every partition. Each batch begins where
    the one before it has ended.
    """
    rows = PackedRows(message.rows, placed=True)
    partition, places = partition_of(message.input, message.partition), rows.places()
    here = dict(starts)
    for at in range(bisect_left(places, starts[partition]), rows.count, BATCH_ROWS):
        stop = min(at + BATCH_ROWS, rows.count)
        size, offsets = stop - at, places[at:stop]
        columns = {
            "batch": array("q", (-1,)) * size,
            "row": array("q", [place % RECORD_ROWS for place in offsets]),
            "from_partition": (partition_name(inputs, partition),) * size,
            "from_offset": array("q", [place // RECORD_ROWS for place in offsets]),
        }
        partitions = array("i", (partition,)) * size
        yield _batch(rows, at, stop, message.timestamp, dict(here), partitions, offsets, columns)
        here[partition] = offsets[-1] + 1


def _batch(
    rows: PackedRows,
    at: int,
    stop: int,
    timestamp: int,
    starts: Positions,
    partitions: Sequence[int],
    offsets: Sequence[int],
    numbers: Mapping[str, Sequence[object]],
) -> Batch:
    keys, values = rows.keys(at, stop), rows.values(at, stop)
    size = stop - at
    texts = sum(len(text) + _OBJECT for column in (keys, values) for text in column if text is not None)
    columns = {**numbers, "timestamp": array("q", (timestamp,)) * size, "key": keys, "value": values}
    return Batch(starts, partitions, offsets, columns, _ROW * size + texts)
