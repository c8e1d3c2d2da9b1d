"""What the events of a source look like in JSON, and what queries make of their bytes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal


class FieldEncoding(enum.Enum):
    """Say how one column becomes a JSON value."""

    INT = "int"  # int; with `none`, that number becomes null
    TEXT = "text"  # bytes as UTF-8 text, null for None; not UTF-8: null and `{name}Base64` is added
    BASE64 = "base64"  # bytes as base64 text, null for None
    STRING = "string"  # str or None, as it is
    JSON = "json"  # bytes that already are JSON text; None is null
    VALUE = "value"  # any JSON-compatible Python value
    HEADERS = "headers"  # [(name, bytes | None)] as [{"key": .., "value": base64 | null}]
    SOURCE_ID = "source_id"  # the id of the source (no column)
    SOURCE_TYPE = "source_type"  # the type of the source (no column)


@dataclass(frozen=True, slots=True)
class Field:
    """Describe one member of an event's JSON object. `column` defaults to `name`.

    `base64_fallback` (for TEXT): whether bytes that are not UTF-8 are added as `{name}Base64`.
    `parsed` (for TEXT): bytes that are JSON text are written as that JSON, others as text.
    `left_out` (for INT with `none`, and VALUE): what would be null has no member at all.
    """

    name: str
    kind: FieldEncoding
    column: str = ""
    none: int | None = None
    base64_fallback: bool = True
    parsed: bool = False
    left_out: bool = False

    @property
    def source_column(self) -> str:
        return self.column or self.name


@dataclass(frozen=True, slots=True)
class EventSchema:
    """Describe the JSON objects that a source's events become: the members in their order, by variant.

    `variants` holds other forms of the same event that a dialect may ask for by name; where a source
    has no such variant it gets `fields`.
    """

    fields: tuple[Field, ...]
    variants: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)

    def of(self, variant: str) -> tuple[Field, ...]:
        return self.variants.get(variant, self.fields)


Form = Literal["json", "string", "int", "long", "binary", "avro"]
"""What bytes hold: JSON, UTF-8 text, a whole number of 4 or 8 bytes (big-endian, as Kafka's serializers write
it), anything (base64 text), or one Avro datum."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Say what queries make of the bytes in the columns `value` and `key`; other values are used as they are.

    avro_schema: JSON text, for `avro`. registry: what is `avro` begins with the id of its schema in a schema
    registry instead, and the schemas stand in columns of their own (`SCHEMA_COLUMNS`). fields: the types of
    the value, as text (`carrier STRING, delay BIGINT`); empty: those of each record. close: an event that a
    query cannot be evaluated for ends its subscription; else it is left out.
    """

    value: Form = "json"
    key: Form = "string"
    avro_schema: str = ""
    fields: str = ""
    close: bool = False
    registry: bool = False


Part = Literal["key", "value"]
"""Which bytes of an event."""


SCHEMA_COLUMNS: Final[Mapping[str, str]] = {"key": "key schema", "value": "value schema"}
"""By the column whose bytes name schemas of a registry (`Decode.registry`): the column with these schemas. Of
each event that has one which the source could find out, the `RegisteredSchema`, else None."""


ValueAs = Literal["text", "json"]
"""How the value of an event is written: as a string with its text, or as the JSON that it is."""


AS_JSON = Decode()
"""Values are JSON, keys are text."""
