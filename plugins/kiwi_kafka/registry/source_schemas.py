"""Puts beside the bytes of one source's batches the schemas that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import trio

from kiwi_gw.api import SCHEMA_COLUMNS, Batch, Decode, HistoryReader, Positions, RegisteredSchema, schema_id
from kiwi_kafka.registry.documents import HIGHEST_ID
from kiwi_kafka.registry.refusal_budget import RefusalBudget
from kiwi_kafka.registry.schema_registry import SchemaRegistry

_HEAD = 5
_REFERENCE = 8

Bytes = Sequence[bytes | None]


class SourceSchemas:
    """Add to the batches of one source the columns of its schemas."""

    def __init__(self, registry: SchemaRegistry, decode: Decode, say: Callable[[object, str], None]) -> None:
        """Prepare it. say: called with a key and what is wrong with the registry while a batch waits for it
        (an empty message: nothing any more)."""
        forms = {"key": decode.key, "value": decode.value}
        self._parts = tuple(part for part, form in forms.items() if form == "avro")
        self._registry = registry
        self._say = say
        self._budget = RefusalBudget()

    async def added_to(self, batch: Batch) -> Batch:
        """Return the batch with its schemas. Waits while the registry is away."""
        columns = {part: cast(Bytes, batch.columns[part]) for part in self._parts}
        heads = Counter(_heads(columns.values()))
        ids = {
            head: number for head in heads if (number := schema_id(head)) is not None and number <= HIGHEST_ID
        }
        found: Mapping[int, RegisteredSchema] = {}
        if ids:
            key = object()
            often_first = [ids[head] for head, _ in heads.most_common() if head in ids]
            budget = self._budget.begin(trio.current_time())
            found = await self._registry.find(often_first, budget, lambda message: self._say(key, message))
        by_head = {head: found.get(number) for head, number in ids.items()}
        schemas = {
            SCHEMA_COLUMNS[part]: [by_head.get(value[:_HEAD]) if value else None for value in column]
            for part, column in columns.items()
        }
        cost = batch.cost + _REFERENCE * len(schemas) * len(batch)
        return replace(batch, columns={**batch.columns, **schemas}, cost=cost)

    def added_by(self, reader: HistoryReader) -> HistoryReader:
        """Return what reads the same, with schemas."""
        return _ReaderWithSchemas(reader, self)


class _ReaderWithSchemas:
    """Read history, with schemas. A batch that was read waits here if the call is cancelled meanwhile."""

    def __init__(self, reader: HistoryReader, schemas: SourceSchemas) -> None:
        self._reader = reader
        self._schemas = schemas
        self._waiting: Batch | None = None

    async def read(self, until: Positions) -> Batch:
        """See `HistoryReader.read`. `until` never moves back, so a batch that waited is still below it."""
        if self._waiting is None:
            self._waiting = await self._reader.read(until)
        batch = await self._schemas.added_to(self._waiting)
        self._waiting = None
        return batch


def _heads(columns: Iterable[Bytes]) -> Iterable[bytes]:
    return (value[:_HEAD] for column in columns for value in column if value is not None)
