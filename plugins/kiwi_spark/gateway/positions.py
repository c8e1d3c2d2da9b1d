"""What rows of a query look like on the wire, and how their positions are written.

A query in micro-batches numbers its rows: a position is `{"batch": 12, "row": 7}`, the next row that a reader
has not had. In real time a row has the place of the record that it comes from, and positions are those of the
input: `{"0": 345, "1": [678, 1]}` names by partition the next record, or the next row of a record of which a
reader has had some. Where a query reads several topics a partition is called `flights/0`.

For the core a position is a number: of partition 0 for rows in batches, of another partition for rows with a
place. Which of the two a source has is known only when its query runs, so one codec reads and writes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from kiwi_gw.api import EventSchema, Field, FieldEncoding, PositionCodec, Positions, Ranges

ROW_BITS: Final = 24
MAX_ROWS: Final = 1 << ROW_BITS
"""Rows of one batch. Batch and row together make one offset, which stays exact in every JSON reader
(below 2^53) for 2^29 batches."""

RECORD_ROWS: Final = 1 << 20
"""Rows of one record of an input (`RealTimeWrite.java`)."""

_INPUT: Final = 1 << 20
"""Partitions of one input."""

SCHEMA: Final = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("sourceType", FieldEncoding.SOURCE_TYPE),
        Field("batch", FieldEncoding.INT, none=-1, left_out=True),
        Field("partition", FieldEncoding.VALUE, column="from_partition", left_out=True),
        Field("offset", FieldEncoding.INT, column="from_offset", none=-1, left_out=True),
        Field("row", FieldEncoding.INT),
        Field("timestamp", FieldEncoding.INT),
        Field("key", FieldEncoding.JSON),
        Field("value", FieldEncoding.JSON),
    )
)
"""A row has a batch, or the partition and offset of the record that it comes from; the partition as positions
name it."""


def offset_of(batch: int, row: int) -> int:
    """Return the offset of a row (0 <= row < MAX_ROWS; row == MAX_ROWS is the next batch's first)."""
    return (batch << ROW_BITS) + row


def batch_and_row(offset: int) -> tuple[int, int]:
    """Return batch and row of an offset."""
    return offset >> ROW_BITS, offset & (MAX_ROWS - 1)


def partition_of(number: int, partition: int) -> int:
    """Return what the core calls a partition of an input. number: the input's among the query's streams."""
    return 1 + number * _INPUT + partition


def places_of(inputs: Mapping[str, Mapping[int, int]], names: Sequence[str]) -> dict[int, int]:
    """Make positions of the next offsets of each input's partitions. names: the query's streams in order."""
    return {
        partition_of(names.index(name), partition): offset * RECORD_ROWS
        for name, offsets in inputs.items()
        for partition, offset in offsets.items()
    }


def rows_of(inputs: Mapping[str, Mapping[int, tuple[int, int]]], names: Sequence[str]) -> dict[int, int]:
    """Make positions of a record and a row of each input's partitions. names: as in `places_of`."""
    return {
        partition_of(names.index(name), partition): record * RECORD_ROWS + row
        for name, places in inputs.items()
        for partition, (record, row) in places.items()
    }


def codec(inputs: Sequence[str]) -> PositionCodec:
    """Return how positions of a source are written whose query has these streams."""
    return PositionCodec(
        dump=partial(_dump, inputs), load=partial(_load, inputs), dump_ranges=partial(_dump_ranges, inputs)
    )


def partition_name(inputs: Sequence[str], partition: int) -> int | str:
    """Return what clients call a partition. partition: as `partition_of` gives it."""
    number, own = divmod(partition - 1, _INPUT)
    return own if len(inputs) == 1 else f"{inputs[number]}/{own}"


def _dump(inputs: Sequence[str], positions: Positions) -> dict[str, object]:
    if 0 in positions:
        batch, row = batch_and_row(positions[0])
        return {"batch": batch, "row": row}
    return {str(partition_name(inputs, p)): _place(positions[p]) for p in sorted(positions)}


def _place(offset: int) -> object:
    record, row = divmod(offset, RECORD_ROWS)
    return [record, row] if row else record


def _dump_ranges(inputs: Sequence[str], ranges: Ranges) -> dict[str, tuple[object, object]]:
    if 0 in ranges:
        first, last = ranges[0]
        return {"0": (_row(first), _row(last))}
    return {
        str(partition_name(inputs, p)): (_place(ranges[p][0]), _last_place(ranges[p][1]))
        for p in sorted(ranges)
    }


def _row(offset: int) -> dict[str, object]:
    """Write a row; without `row` the end of the batch, where a run ends before the next one's first row."""
    batch, row = batch_and_row(offset)
    return {"batch": batch} if row == MAX_ROWS - 1 else {"batch": batch, "row": row}


def _last_place(offset: int) -> object:
    """Write a row's place; of a run that ends before the next record's first row, that of the record."""
    record, row = divmod(offset, RECORD_ROWS)
    return record if row == RECORD_ROWS - 1 else _place(offset)


def _load(inputs: Sequence[str], value: object) -> Positions:
    if not isinstance(value, dict):
        raise ValueError("positions must be an object")  # noqa: TRY004
    if "batch" in value or "row" in value:
        return {0: _load_row(value)}
    known = {name: number for number, name in enumerate(inputs)}
    positions = {}
    for name, place in value.items():
        source, slash, partition = str(name).rpartition("/")
        number = known.get(source) if slash else 0 if len(inputs) == 1 else None
        if number is None or not (partition.isascii() and partition.isdigit() and int(partition) < _INPUT):
            raise ValueError(f"{name!r} is no partition of an input")
        positions[partition_of(number, int(partition))] = _load_place(name, place)
    return positions


def _load_row(value: Mapping[str, object]) -> int:
    batch, row = value.get("batch"), value.get("row")
    if set(value) != {"batch", "row"} or type(batch) is not int or type(row) is not int:
        raise ValueError('positions in batches are {"batch": B, "row": R}, two integers')
    if batch < 0 or not 0 <= row <= MAX_ROWS:
        raise ValueError(f"batch must be a non-negative integer, and row one up to {MAX_ROWS}")
    return offset_of(batch, row)


def _load_place(name: object, place: object) -> int:
    record, row = place if isinstance(place, list) and len(place) == 2 else (place, 0)
    if type(record) is not int or type(row) is not int or record < 0 or not 0 <= row < RECORD_ROWS:
        raise ValueError(f"the place in partition {name} must be an offset, or [offset, row]")
    return record * RECORD_ROWS + row
