"""What the contract says of positions, shapes and batches, as checks that name the broken rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from kiwi_gw.model import Batch, EventSchema, Field, FieldEncoding, Gap, Positions

_NO_COLUMN = (FieldEncoding.SOURCE_ID, FieldEncoding.SOURCE_TYPE)


def broken(message: str) -> NoReturn:
    raise AssertionError(message)


def check_positions(what: str, positions: object) -> None:
    if not isinstance(positions, Mapping):
        broken(f"{what} must be a mapping of partition to next offset, not {positions!r}")
    for partition, offset in positions.items():
        if not (_is_count(partition) and _is_count(offset)):
            broken(f"{what} must map int to int, none negative: {partition!r}: {offset!r}")


def check_event_schema(event_schema: object) -> EventSchema:
    if not isinstance(event_schema, EventSchema):
        broken(f"shape must be a kiwi_gw.api.EventSchema, not {event_schema!r}")
    for name, fields in {"": event_schema.fields, **event_schema.variants}.items():
        where = f"variant {name!r} of the shape" if name else "the shape"
        names = [field.name for field in fields]
        if not names:
            broken(f"{where} has no fields")
        for twice in {item for item in names if names.count(item) > 1}:
            broken(f"{where} has two fields called {twice!r}")
        for field in fields:
            if field.none is not None and field.kind is not FieldEncoding.INT:
                broken(f"field {field.name!r} has a `none`, which is for FieldEncoding.INT only")
    return event_schema


def check_batch(batch: object, positions: Positions, event_schema: EventSchema | None) -> dict[int, int]:
    """Return the positions behind the batch. `positions`: those before it; `event_schema`: None, columns are
    not compared with one. Raise AssertionError."""
    if not isinstance(batch, Batch):
        broken(f"publish takes a kiwi_gw.api.Batch, not {type(batch).__name__}")
    _check_starts(batch, positions)
    if batch.gap is not None:
        _check_gap(batch.gap, batch.starts, positions)
    after = _check_offsets(batch)
    _check_columns(batch, event_schema)
    if not _is_count(batch.cost):
        broken(f"cost must be a number of bytes, an int that is not negative, not {batch.cost!r}")
    return after


def _check_starts(batch: Batch, positions: Positions) -> None:
    check_positions("starts", batch.starts)
    for partition, expected in positions.items():
        start = batch.starts.get(partition)
        if start is None:
            broken(f"starts must name every partition of the source; partition {partition} is missing")
        if start < expected:
            broken(
                f"a batch begins at offset {start} of partition {partition}, which repeats events: "
                f"the next one is {expected}"
            )


def _check_gap(gap: Gap, starts: Positions, positions: Positions) -> None:
    if gap.count is not None and not _is_count(gap.count):
        broken(f"the count of a gap must be None or an int that is not negative, not {gap.count!r}")
    for partition, (first, last) in gap.ranges.items():
        if first > last:
            broken(f"the gap of partition {partition} ends before it begins: {first} to {last}")
        if first < positions.get(partition, 0):
            broken(f"the gap of partition {partition} begins at {first}, before the end of the last batch")
        if last >= starts.get(partition, 0):
            broken(f"starts must lie behind the gap: partition {partition} lost {first} to {last}")


def _check_offsets(batch: Batch) -> dict[int, int]:
    if len(batch.partitions) != len(batch.offsets):
        broken(f"{len(batch.partitions)} partitions, but {len(batch.offsets)} offsets in a batch")
    after = dict(batch.starts)
    seen: set[int] = set()
    for partition, offset in zip(batch.partitions, batch.offsets, strict=True):
        if not (_is_count(partition) and _is_count(offset)):
            broken(f"partitions and offsets must be ints, none negative: {partition!r}, {offset!r}")
        if partition not in after:
            broken(f"starts must name every partition of the source; partition {partition} is missing")
        if offset < after[partition]:
            rule = (
                "offsets must grow within a partition"
                if partition in seen
                else "starts lies behind the events"
            )
            broken(f"{rule}: offset {offset} of partition {partition} where {after[partition]} is next")
        seen.add(partition)
        after[partition] = offset + 1
    return after


def _check_columns(batch: Batch, event_schema: EventSchema | None) -> None:
    for name, column in batch.columns.items():
        if len(column) != len(batch):
            broken(f"column {name!r} has {len(column)} values for {len(batch)} events")
    if event_schema is None:
        return
    described: set[str] = set()
    for fields in (event_schema.fields, *event_schema.variants.values()):
        for field in fields:
            if field.kind in _NO_COLUMN:
                continue
            name = field.source_column
            described.add(name)
            if name not in batch.columns and name not in ("partition", "offset"):
                broken(f"the shape has a field {field.name!r}, but the batch has no column {name!r}")
            _check_values(f"column {name!r}, FieldEncoding.{field.kind.name}", field.kind, batch.column(name))
    for name, kind in _CONVENTION.items():
        if name in batch.columns and name not in described:
            _check_values(
                f"column {name!r}, by convention FieldEncoding.{kind.name}", kind, batch.columns[name]
            )


def _check_values(where: str, kind: FieldEncoding, values: Sequence[object]) -> None:
    fits, wanted = _KINDS[kind]
    for index, value in enumerate(values):
        if not fits(value):
            broken(f"{where}: event {index} has {type(value).__name__} {_short(value)}; wanted is {wanted}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def _is_string(value: object) -> bool:
    return value is None or (isinstance(value, str) and _is_value(value))


def _is_json(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, bytes):
        return False
    try:
        json.loads(value.decode(), parse_constant=broken)
    except (ValueError, AssertionError):
        return False
    return True


def _is_value(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError):
        return False
    return True


def _is_headers(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and _is_bytes(pair[1])
        for pair in value
    )


_KINDS: dict[FieldEncoding, tuple[Callable[[object], bool], str]] = {
    FieldEncoding.INT: (lambda value: type(value) is int, "int"),
    FieldEncoding.TEXT: (_is_bytes, "bytes or None"),
    FieldEncoding.BASE64: (_is_bytes, "bytes or None"),
    FieldEncoding.STRING: (_is_string, "str (valid Unicode) or None"),
    FieldEncoding.JSON: (_is_json, "bytes that are JSON in UTF-8, or None"),
    FieldEncoding.VALUE: (_is_value, "a value that JSON has"),
    FieldEncoding.HEADERS: (_is_headers, "a sequence of (str, bytes or None)"),
}

_CONVENTION = {
    "key": FieldEncoding.BASE64,
    "value": FieldEncoding.BASE64,
    "timestamp": FieldEncoding.INT,
    "headers": FieldEncoding.HEADERS,
}
"""What columns of these names hold where the shape does not say otherwise (`Batch.columns`)."""


def column_names(event_schema: EventSchema) -> frozenset[str]:
    """Return the columns that events of this shape are made of."""

    def needed(field: Field) -> bool:
        return field.kind not in _NO_COLUMN

    groups = (event_schema.fields, *event_schema.variants.values())
    return frozenset(field.source_column for fields in groups for field in fields if needed(field))
