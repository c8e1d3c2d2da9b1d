"""What a row of a Spark query looks like on the wire, and how its place is written."""

from __future__ import annotations

from typing import Final

from kiwi_gw.api import Field, Kind, PositionCodec, Positions, Shape

ROW_BITS: Final = 24
MAX_ROWS: Final = 1 << ROW_BITS
"""Rows of one batch. Batch and row together make one offset, which stays exact in every JSON reader
(below 2^53) for 2^29 batches."""

_ROW_MASK = MAX_ROWS - 1

SHAPE: Final = Shape(
    (
        Field("sourceId", Kind.SOURCE_ID),
        Field("sourceType", Kind.SOURCE_TYPE),
        Field("batch", Kind.INT),
        Field("row", Kind.INT),
        Field("timestamp", Kind.INT),
        Field("key", Kind.JSON),
        Field("value", Kind.JSON),
    )
)


def offset_of(batch: int, row: int) -> int:
    """The offset of a row (0 <= row < MAX_ROWS; row == MAX_ROWS is the next batch's first)."""
    return (batch << ROW_BITS) + row


def place_of(offset: int) -> tuple[int, int]:
    """Batch and row of an offset."""
    return offset >> ROW_BITS, offset & _ROW_MASK


def _dump(positions: Positions) -> dict[str, object]:
    batch, row = place_of(positions[0])
    return {"batch": batch, "row": row}


def _place(offset: int) -> dict[str, object]:
    """A row; without `row`, the end of the batch, where a run ends before the first row of the next one."""
    batch, row = place_of(offset)
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
