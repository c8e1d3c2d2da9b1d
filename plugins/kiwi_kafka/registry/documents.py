"""What a schema registry says, in its REST API's words (Confluent Schema Registry API: schemas, subjects)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # with an HTTP client, which few need
    from kiwi_gw.api.http_fetch import FetchAnswer

HIGHEST_ID = 2**31 - 1
"""Registries count ids in 32 bits with a sign. Of a higher one they say that there is no such path."""

_UNKNOWN = (40401, 40402, 40403)
"""Codes of a registry that looked and found no such subject, version or schema. Any other 404 is of something
that is no registry, or of another path."""


class RegistryUnavailable(Exception):  # noqa: N818  (it is no error of this program)
    """Says in words why nothing was learned of a schema; it is to be asked for again."""


@dataclass(frozen=True, slots=True)
class NoSchema:
    """Say why what has this id cannot be read. unknown: the registry has nothing under it, so far."""

    reason: str
    unknown: bool = False


class Reference(msgspec.Struct, frozen=True):
    """Name a schema by its subject and version there."""

    subject: str
    version: int


class SchemaDocument(msgspec.Struct, frozen=True, rename={"kind": "schemaType"}):
    """Hold a schema's text, and which others it refers to."""

    schema: str
    kind: str | None = None
    references: list[Reference] | None = None


class _ErrorDocument(msgspec.Struct, frozen=True):
    error_code: int


_decode_document = msgspec.json.Decoder(SchemaDocument).decode
_decode_error = msgspec.json.Decoder(_ErrorDocument).decode


def schema_document(answer: FetchAnswer) -> SchemaDocument | NoSchema:
    """Read an answer. Raises RegistryUnavailable if it says nothing of the schema."""
    if answer.too_large and answer.status == 200:
        return NoSchema("its schema is too large")
    if answer.failure:
        if answer.status == 404 and _is_unknown(answer.body):
            return NoSchema("the registry does not know it", unknown=True)
        if answer.status in (401, 403):
            raise RegistryUnavailable(f"it refuses user and password (HTTP status {answer.status})")
        raise RegistryUnavailable(answer.failure)
    try:
        document = _decode_document(answer.body)
    except (ValueError, RecursionError) as error:
        raise RegistryUnavailable(f"its answer is no schema: {error}") from None
    if document.kind not in (None, "AVRO"):
        return NoSchema(f"its schema is no AVRO but {document.kind[:40]!r}")
    return document


def _is_unknown(body: bytes) -> bool:
    try:
        return _decode_error(body).error_code in _UNKNOWN
    except (ValueError, RecursionError):
        return False
