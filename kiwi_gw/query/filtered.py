"""A query as a link of the chain before a wire format: the events that pass, and what it makes of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kiwi_gw.model import (
    Batch,
    EventSchema,
    EventTransform,
    Field,
    FieldEncoding,
    SourceInfo,
    Steps,
    TimeSlice,
    Transformed,
    at_once,
)
from kiwi_gw.query.decoded_batch import decoded
from kiwi_gw.query.tree import Query

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import CompiledQuery

_NUMBER: Final = 40
"""Bytes of an integer in a list."""

PROJECTION: Final = "value of the query"
"""The column with the JSON text of a projection."""


def query_transform(query: Query, compiled: CompiledQuery, info: SourceInfo) -> EventTransform:
    """Make the transform of a query: the events that pass stay. The projection of each is in a column of its
    own, for `projected(info)`.

    An event that it cannot be evaluated for is bad, and ends who comes to it, if the source says so.
    """
    decode, selects = info.decode, query.select is not None
    # Equal filters share what passes, whatever they select.
    where = (query.where.key if query.where is not None else "", compiled.roots)

    def steps(batch: Batch, turn: TimeSlice) -> Steps[Transformed]:
        seen = decoded(batch, decode)
        yield from seen.decoded(compiled.roots, turn)
        columns = {root: seen.column(root) for root in compiled.roots}
        kept, bad = yield from seen.query_result(
            where, lambda: compiled.filter_steps(columns, len(batch), turn), _numbers
        )
        made = (yield from compiled.project_steps(columns, kept, turn, batch.cost)) if selects else []
        if b"" in made:  # could not be evaluated
            bad = bad + [index for index, text in zip(kept, made, strict=True) if not text]
            kept = [index for index, text in zip(kept, made, strict=True) if text]
            made = [text for text in made if text]
        columns_made = {PROJECTION: made} if selects else {}
        if bad and decode.close:
            return Transformed(kept, columns_made, failing=bad)
        return Transformed(None if len(kept) == len(batch) else kept, columns_made, bad)

    # One string, whose hash is computed once: the key is looked up for every batch.
    key = f"{query.key} {decode!r}"
    return EventTransform(lambda batch: at_once(steps(batch, TimeSlice())), key, steps)


def _numbers(made: tuple[list[int], list[int]]) -> int:
    return _NUMBER * sum(map(len, made))


def projected(info: SourceInfo) -> SourceInfo:
    """Describe the source with a projection in the place of the value, which is then nowhere else."""

    def of(fields: Sequence[Field]) -> tuple[Field, ...]:
        made: list[Field] = []
        value = Field("value", FieldEncoding.JSON, PROJECTION)
        for field in fields:
            if field.kind in _ABOUT or field.source_column in _BESIDE:
                made.append(field)
            elif value not in made:
                made.append(value)
        return tuple(made if value in made else [*made, value])

    event_schema = info.event_schema
    variants = {name: of(fields) for name, fields in event_schema.variants.items()}
    return replace(info, event_schema=EventSchema(of(event_schema.fields), variants))


_ABOUT: Final = (FieldEncoding.SOURCE_ID, FieldEncoding.SOURCE_TYPE)
_BESIDE: Final = ("key", "partition", "offset", "timestamp", "headers", "batch", "row")
"""Columns beside the value of an event."""
