"""What is known of the ids of one registry, within bounds."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

from kiwi_gw.api import RegisteredSchema
from kiwi_kafka.registry.documents import NoSchema

MOST_SCHEMAS = 1_000
MOST_SCHEMA_BYTES = 16 * 1024 * 1024
"""Of their texts. What is made of them weighs about five times that."""
MOST_REFUSALS = 10_000

UNKNOWN_SECONDS = 10.0
"""How long it is remembered that the registry does not know an id: it may be registered any time."""
UNUSABLE_SECONDS = 600.0
"""How long it is remembered that what the registry has cannot be used: the gateway's limits may change, or a
schema that it refers to be restored."""


class SchemaCache:
    """Keep the schemas that were used last, and refusals for their time.

    A schema that goes is found again as long as a batch somewhere still has it: of one id there are not two.
    """

    def __init__(self) -> None:
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._in_use: WeakValueDictionary[int, RegisteredSchema] = WeakValueDictionary()
        self._refusals: OrderedDict[int, tuple[NoSchema, float]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._schemas)

    def get(self, schema_id: int, now: float) -> RegisteredSchema | NoSchema | None:
        """Return what is known of the id at this time; None: nothing."""
        schema = self._schemas.get(schema_id)
        if schema is not None:
            self._schemas.move_to_end(schema_id)
            return schema
        schema = self._in_use.get(schema_id)
        if schema is not None:
            self._keep(schema)
            return schema
        refusal, ends_at = self._refusals.get(schema_id, (None, now))
        return refusal if ends_at > now else None

    def put(self, schema_id: int, found: RegisteredSchema | NoSchema, now: float) -> None:
        """Take in what the registry said at this time."""
        self._refusals.pop(schema_id, None)
        if isinstance(found, RegisteredSchema):
            self._keep(found)
            return
        lasts = UNKNOWN_SECONDS if found.unknown else UNUSABLE_SECONDS
        self._refusals[schema_id] = found, now + lasts
        if len(self._refusals) > MOST_REFUSALS:
            self._refusals.popitem(last=False)

    def forget_refusal(self, schema_id: int) -> None:
        """Know nothing of an id again, if nothing is what the registry had under it."""
        self._refusals.pop(schema_id, None)

    def _keep(self, schema: RegisteredSchema) -> None:
        before = self._schemas.get(schema.id)
        self._schemas[schema.id] = self._in_use[schema.id] = schema
        self.bytes += schema.size - (before.size if before is not None else 0)
        while len(self._schemas) > 1 and (
            len(self._schemas) > MOST_SCHEMAS or self.bytes > MOST_SCHEMA_BYTES
        ):
            _, oldest = self._schemas.popitem(last=False)
            self.bytes -= oldest.size
