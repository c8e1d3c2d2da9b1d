"""What a schema registry says, in its REST API's words (Confluent Schema Registry API: schemas, subjects)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from kiwi_gw.api import RefusalCode, SchemaRefused

if TYPE_CHECKING:  # with an HTTP client, which few need
    from kiwi_gw.api.http_fetch import FetchAnswer

HIGHEST_ID = 2**31 - 1
"""Registries count ids in 32 bits with a sign. Of a higher one they say that there is no such path."""

_UNKNOWN = (40401, 40402, 40403)
"""Codes of a registry that looked and found no such subject, version or schema. Any other 404 is of something
that is no registry, or of another path."""


_REFUSALS: Final = {409: RefusalCode.INCOMPATIBLE, 422: RefusalCode.SCHEMA}
"""By the status of an answer to a schema that is to be registered."""

_MOST_WORDS: Final = 600
"""Characters of a registry's words that are handed on."""


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
    """Hold a schema's text, and which others it refers to. id: where it was asked for by its version."""

    schema: str
    kind: str | None = None
    references: list[Reference] | None = None
    id: int | None = None


class RegisteredDocument(msgspec.Struct, frozen=True):
    """Hold what a schema is that was registered. version: newer registries say it with the id."""

    id: int
    version: int | None = None


class _ErrorDocument(msgspec.Struct, frozen=True):
    error_code: int
    message: str = ""


_decode_document = msgspec.json.Decoder(SchemaDocument).decode
_decode_registered = msgspec.json.Decoder(RegisteredDocument).decode
_decode_error = msgspec.json.Decoder(_ErrorDocument).decode


def schema_document(answer: FetchAnswer) -> SchemaDocument | NoSchema:
    """Read an answer. Raises RegistryUnavailable if it says nothing of the schema."""
    if answer.too_large and answer.status == 200:
        return NoSchema("its schema is too large")
    if answer.failure:
        if answer.status == 404 and is_unknown(answer.body):
            return NoSchema("the registry does not know it", unknown=True)
        raise _unavailable(answer)
    try:
        document = _decode_document(answer.body)
    except (ValueError, RecursionError) as error:
        raise RegistryUnavailable(f"its answer is no schema: {error}") from None
    if document.kind not in (None, "AVRO"):
        return NoSchema(f"its schema is no AVRO but {document.kind[:40]!r}")
    return document


def registered_document(answer: FetchAnswer) -> RegisteredDocument:
    """Read what is said to a schema that is registered. Raises RegistryUnavailable if that says nothing of
    it, and SchemaRefused, with the registry's words."""
    if answer.status in _REFUSALS:
        try:
            words = _decode_error(answer.body).message
        except (ValueError, RecursionError):
            words = ""
        words = words[:_MOST_WORDS] or answer.failure
        raise SchemaRefused(_REFUSALS[answer.status], f"the schema registry refuses it: {words}")
    if answer.failure:
        raise _unavailable(answer)
    try:
        return _decode_registered(answer.body)
    except (ValueError, RecursionError) as error:
        raise RegistryUnavailable(f"its answer is no id of a schema: {error}") from None


def _unavailable(answer: FetchAnswer) -> RegistryUnavailable:
    if answer.status in (401, 403):
        return RegistryUnavailable(f"it refuses user and password (HTTP status {answer.status})")
    return RegistryUnavailable(answer.failure)


def is_unknown(body: bytes) -> bool:
    try:
        return _decode_error(body).error_code in _UNKNOWN
    except (ValueError, RecursionError):
        return False
