"""Puts beside the bytes of one source's batches the schemas that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import trio

from kiwi_gw.api import SCHEMA_COLUMNS, Batch, Decode, HistoryReader, Positions, RegisteredSchema, schema_id
from kiwi_kafka.registry.documents import HIGHEST_ID
from kiwi_kafka.registry.refusal_budget import RefusalBudget
from kiwi_kafka.registry.schema_registry import SchemaRegistry

_HEAD = 5
"""Bytes of a zero and an id."""
_REFERENCE = 8
"""Bytes that one of a schema takes."""

Bytes = Sequence[bytes | None]
Heads = Sequence[bytes | None]
"""Of each value what names its schema."""


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

    async def added_to(self, batch: Batch, reader: object = None) -> Batch:
        """Return the batch with its schemas. Waits while the registry is away. reader: who read it, and who
        waits: the key of what is said."""
        heads = {part: _heads(cast(Bytes, batch.columns[part])) for part in self._parts}
        found = await self._find(heads.values(), reader)
        schemas = {SCHEMA_COLUMNS[part]: list(map(found.get, column)) for part, column in heads.items()}
        cost = batch.cost + _REFERENCE * len(schemas) * len(batch)
        return replace(batch, columns={**batch.columns, **schemas}, cost=cost)

    async def _find(
        self, columns: Iterable[Heads], reader: object
    ) -> Mapping[bytes | None, RegisteredSchema]:
        """Return by their heads the schemas of those values that have one."""
        counts = Counter[bytes | None]()
        for heads in columns:
            counts.update(heads)
        ids = {
            number: head
            for head, _ in counts.most_common()
            if head and (number := schema_id(head)) is not None and number <= HIGHEST_ID
        }
        if not ids:
            return {}
        budget = self._budget.begin(trio.current_time())
        found = await self._registry.find(list(ids), budget, partial(self._say, reader))
        return {ids[number]: schema for number, schema in found.items()}

    def waits_no_longer(self, reader: object) -> None:
        """Note that a call of `added_to` was given up. Needless where its source ends with it."""
        self._say(reader, "")

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
        try:
            batch = await self._schemas.added_to(self._waiting, self)
        except BaseException:
            self._schemas.waits_no_longer(self)
            raise
        self._waiting = None
        return batch


def _heads(column: Bytes) -> Heads:
    return [value[:_HEAD] if value else None for value in column]
