"""How the keys and values of a request to produce become bytes: by the schemas that it brings, by the version
of one, or by what the source says.

Theory of operation. Where the source has a schema registry (`Decode.registry`), what is written in Avro
begins with the id of its schema. A schema that a request brings is registered after all of its messages have
become bytes, with room for the id: a request that is refused leaves nothing behind in the registry. Then the
ids are put in (`register_schemas`). The schema of a version has its id from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from kiwi_gw.api import SchemaRefused, SchemaVersion
from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.http import ClientRights
from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError
from kiwi_gw.dialects.pulsar.messages import SchemasAsked, is_absent
from kiwi_gw.dialects.pulsar.schemas import (
    KEY_VALUE,
    Encode,
    SchemaInfo,
    avro_encoder,
    encoder_of,
    schema_info,
)
from kiwi_gw.dialects.pulsar.topics import declared_schema, uses_registry
from kiwi_gw.model import Outgoing, Part, SourceInfo
from kiwi_gw.query.avro import HEAD_BYTES, schema_head
from kiwi_gw.query.avro_writer import schema_text

EVERY: Final = 16
"""After so many messages it is looked whether others have their turn."""

_ROOM: Final = bytes(HEAD_BYTES)
_INVALID: Final = {"key": PulsarCode.KEY_SCHEMA, "value": PulsarCode.VALUE_SCHEMA}


@dataclass(frozen=True, slots=True)
class PartEncoder:
    """How keys or values become bytes. defined: by a definition, which may take long. definition: of what is
    to be registered before they are written; until then there is room for its id. version: of a schema whose
    id they begin with."""

    encode: Encode
    defined: bool = False
    definition: str = ""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Encoders:
    """How values become bytes, and keys; key: None: they are text."""

    value: PartEncoder
    key: PartEncoder | None = None

    @property
    def every(self) -> int:
        """Return after how many messages it is looked whether others have their turn."""
        return 1 if self.value.defined or (self.key is not None and self.key.defined) else EVERY


async def encoders_of(asked: SchemasAsked, source: SourceInfo, rights: ClientRights) -> Encoders:
    """Find how keys and values become bytes. Raises PulsarError."""
    kind = None if asked.schema_type is None else asked.schema_type.lower()
    bare = asked.schema_version is None and is_absent(asked.value_schema)
    key = None
    if kind == KEY_VALUE:
        if bare or is_absent(asked.key_schema):
            words = "key_value needs both key_schema and value_schema, or schema_version for this"
            raise PulsarError(PulsarCode.NO_KEY_VALUE_SCHEMA, words)
        key = part_encoder_of_schema(schema_info(asked.key_schema, PulsarCode.KEY_SCHEMA), "key", source)
    elif not is_absent(asked.key_schema):
        raise PulsarError(PulsarCode.KEY_SCHEMA, f"key_schema is for schema_type {KEY_VALUE}")
    if asked.schema_version is not None:
        if uses_registry(source, "value") and kind not in (None, "avro", KEY_VALUE):
            raise PulsarError(PulsarCode.VALUE_SCHEMA, f"there are no versions of {kind[:40]!r}, but of avro")
        return Encoders(await part_encoder_of_version(asked.schema_version, source, rights), key)
    return Encoders(_values(asked, kind, source), key)


def _values(asked: SchemasAsked, kind: str | None, source: SourceInfo) -> PartEncoder:
    """Find how values become bytes, where no version is said. Raises PulsarError."""
    if not is_absent(asked.value_schema):
        info = schema_info(asked.value_schema, PulsarCode.VALUE_SCHEMA)
        if kind not in (None, KEY_VALUE, info.type.lower()):
            words = f"schema_type and the type of value_schema differ: {kind[:40]!r}, {info.type[:40]!r}"
            raise PulsarError(PulsarCode.VALUE_SCHEMA, words)
    elif kind in ("json", "avro"):
        raise PulsarError(PulsarCode.NO_VALUE_SCHEMA, f"{kind} needs value_schema")
    elif kind is not None:
        return _of_type(kind)
    else:
        info = declared_schema(source)
    return part_encoder_of_schema(info, "value", source)


@cache  # an error is not kept, so there are as many as there are types
def _of_type(kind: str) -> PartEncoder:
    """Find how values become bytes by the name of a type alone. Raises PulsarError."""
    return PartEncoder(encoder_of(SchemaInfo(kind), PulsarCode.VALUE_SCHEMA))


def part_encoder_of_schema(info: SchemaInfo, part: Part, source: SourceInfo) -> PartEncoder:
    """Find how keys or values become bytes by a schema, which may have to be registered. Raises
    PulsarError."""
    encode = encoder_of(info, _INVALID[part])
    if info.type.lower() != "avro" or not uses_registry(source, part):
        return PartEncoder(encode, defined=bool(info.schema))
    return PartEncoder(_headed(encode, _ROOM), True, schema_text(info.schema))


async def part_encoder_of_version(version: int, source: SourceInfo, rights: ClientRights) -> PartEncoder:
    """Find how values become bytes by a version of their schema. Raises PulsarError."""
    if not uses_registry(source, "value"):
        words = "there are no versions of schemas here: the topic has no schema registry"
        raise PulsarError(PulsarCode.VALUE_SCHEMA, words)
    try:
        found = await rights.find_schema(source.id, "value", version)
    except SchemaRefused as error:
        raise _refused(error, "value") from None
    encode = avro_encoder(found.definition, PulsarCode.VALUE_SCHEMA, found.references)
    return PartEncoder(_headed(encode, schema_head(found.id)), True, version=found.version)


async def register_schemas(
    records: Sequence[Outgoing], encoders: Encoders, source: SourceInfo, rights: ClientRights
) -> tuple[Sequence[Outgoing], int | None]:
    """Register what has to be, and put the ids into the records. Returns these, and the version of the
    values' schema. Raises PulsarError."""
    value = await _register(encoders.value, "value", source, rights)
    key = None if encoders.key is None else await _register(encoders.key, "key", source, rights)
    if value is None and key is None:
        return records, encoders.value.version
    found = []
    for index, record in enumerate(records):
        data = _with_id(record.value, value)
        found.append(record._replace(key=_with_id(record.key, key), value=data))
        if index % EVERY == 0:
            await rights.turn()
    return found, encoders.value.version if value is None else value.version


async def _register(
    encoder: PartEncoder, part: Part, source: SourceInfo, rights: ClientRights
) -> SchemaVersion | None:
    """Register a schema, if there is one to be. Raises PulsarError."""
    if not encoder.definition:
        return None
    try:
        return await rights.register_schema(source.id, part, encoder.definition)
    except SchemaRefused as error:
        raise _refused(error, part) from None


def _refused(error: SchemaRefused, part: Part) -> PulsarError:
    """Say that a schema is not taken. What is not compatible has one code, whichever part it is of: document
    003 does not know that."""
    words = f"nothing was written: {error}"
    if error.code == RefusalCode.UNAVAILABLE:
        return PulsarError(PulsarCode.UNAVAILABLE, words)
    if error.code == RefusalCode.INCOMPATIBLE:
        return PulsarError(PulsarCode.INCOMPATIBLE, f"nothing was written: the schema of the {part}: {error}")
    return PulsarError(_INVALID[part], words)


def _headed(encode: Encode, head: bytes) -> Encode:
    def headed(text: bytes) -> bytes | None:
        data = encode(text)
        return None if data is None else head + data

    return headed


def _with_id(data: bytes | None, schema: SchemaVersion | None) -> bytes | None:
    return data if data is None or schema is None else schema_head(schema.id) + data[HEAD_BYTES:]
