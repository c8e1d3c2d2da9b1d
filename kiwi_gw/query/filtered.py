"""A query as a link of the chain before a wire format: the events that pass, and what it makes of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kiwi_gw.errors import EncodingFailed
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
from kiwi_gw.query import cpu_budget
from kiwi_gw.query.decoded_batch import DecodedBatch, decoded
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

    Raises EncodingFailed for an event that the query cannot be evaluated for, if the source says so.
    """
    decode, selects = info.decode, query.select is not None
    # Equal filters share what passes, whatever they select.
    where = (query.where.key if query.where is not None else "", compiled.roots)

    def steps(batch: Batch, turn: TimeSlice) -> Steps[Transformed]:
        seen = decoded(batch, decode)
        yield from seen.decoded(compiled.roots, turn)
        columns = {root: seen.column(root) for root in compiled.roots}
        kept, decode_errors = yield from seen.query_result(
            where, lambda: compiled.filter_steps(columns, len(batch), turn), _numbers
        )
        made = (yield from compiled.project_steps(columns, kept, turn, batch.cost)) if selects else []
        if b"" in made:  # could not be evaluated
            decode_errors += made.count(b"")
            kept = [index for index, text in zip(kept, made, strict=True) if text]
            made = [text for text in made if text]
        if decode_errors and decode.close:
            raise EncodingFailed(f"the query cannot be evaluated for {_first_bad(seen, compiled, selects)}")
        return Transformed(
            None if len(kept) == len(batch) else kept, {PROJECTION: made} if selects else {}, decode_errors
        )

    # One string, whose hash is computed once: the key is looked up for every batch.
    key = f"{query.key} {decode!r}"
    return EventTransform(lambda batch: at_once(steps(batch, TimeSlice())), key, steps)


def _numbers(made: tuple[list[int], int]) -> int:
    return _NUMBER * len(made[0])


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


def _first_bad(seen: DecodedBatch, compiled: CompiledQuery, selects: bool) -> str:
    """Find the first bad event, one by one: it is about to end a subscription."""
    began = time.thread_time()
    for index in range(len(seen)):
        columns = {root: seen.column(root)[index : index + 1] for root in compiled.roots}
        kept, decode_errors = compiled.filter(columns, 1)
        if decode_errors or (selects and b"" in compiled.project(columns, kept)):
            return f"partition {seen.batch.partitions[index]}, offset {seen.batch.offsets[index]}"
        if time.thread_time() - began > cpu_budget.SECONDS:
            break
    return "an event"
