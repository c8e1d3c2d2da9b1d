"""Asks a schema registry, over HTTP."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
import trio

from kiwi_gw.api import RefusalCode, RegisteredSchema, SchemaRefused, SchemaVersion
from kiwi_gw.api.http_fetch import FetchAnswer, FetchRequest, fetch
from kiwi_kafka.registry.documents import (
    HIGHEST_ID,
    NoSchema,
    Reference,
    RegisteredDocument,
    RegistryUnavailable,
    SchemaDocument,
    is_unknown,
    registered_document,
    schema_document,
)
from kiwi_kafka.settings import RegistrySettings

DEADLINE = 2.0
"""Seconds for each answer."""
MOST_BYTES = 1024 * 1024
"""Of an answer; and characters of all that a schema refers to."""
MOST_REFERENCES = 64
"""Other schemas that one refers to, directly or not."""


_JSON: Final = "application/vnd.schemaregistry.v1+json"


class RegistryClient:
    """Ask one registry. It keeps nothing."""

    def __init__(self, settings: RegistrySettings, deadline: float = DEADLINE) -> None:
        """Prepare it. Raises OSError (ssl.SSLError, too) if `ca` cannot be used."""
        self.url = settings.url.rstrip("/")
        self._deadline = deadline
        self._headers = {"Accept": f"{_JSON}, application/json"}
        if settings.user is not None and settings.password is not None:
            pair = f"{settings.user}:{settings.password.get_secret_value()}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        self._context: ssl.SSLContext | None = None
        if self.url.lower().startswith("https:"):
            self._context = ssl.create_default_context(cafile=str(settings.ca) if settings.ca else None)

    async def schema(self, schema_id: int) -> RegisteredSchema | NoSchema:
        """Return what has this id. Raises RegistryUnavailable."""
        document = await self._get(f"/schemas/ids/{schema_id}")
        if isinstance(document, NoSchema):
            return document
        texts: dict[Reference, str] = {}
        refused = await self._add_references(document.references or (), texts, set())
        if refused is not None:
            return NoSchema(f"it refers to another one: {refused.reason}")
        try:
            # A large one takes too long for the event loop.
            return await trio.to_thread.run_sync(
                RegisteredSchema, schema_id, document.schema, tuple(texts.values())
            )
        except ValueError as error:
            return NoSchema(f"it cannot be used: {str(error)[:200]}")

    async def register(self, subject: str, definition: str) -> SchemaVersion:
        """Return the version that a schema is of a subject, a new one if it was none. Raises
        RegistryUnavailable and SchemaRefused."""
        path, body = f"/subjects/{quote(subject, safe='')}", msgspec.json.encode({"schema": definition})
        found = registered_document(await self._fetch(f"{path}/versions", body))
        if found.version is None:
            found = registered_document(await self._fetch(path, body))
        return _version(found, definition)

    async def known(self, subject: str, definition: str) -> SchemaVersion:
        """Return the version that a schema is of a subject. Raises RegistryUnavailable and SchemaRefused,
        also if it is none."""
        body = msgspec.json.encode({"schema": definition})
        answer = await self._fetch(f"/subjects/{quote(subject, safe='')}", body)
        if answer.status == 404 and is_unknown(answer.body):
            raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, f"it is no schema of {subject}")
        return _version(registered_document(answer), definition)

    async def find(self, subject: str, version: int) -> SchemaVersion:
        """Return what has this version of a subject. Raises RegistryUnavailable and SchemaRefused."""
        what = f"version {version} of {subject}"
        unknown = f"the schema registry knows no {what}"
        if not 0 < version <= HIGHEST_ID:
            raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, unknown)
        document = await self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if isinstance(document, NoSchema):
            if document.unknown:
                raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, unknown)
            raise SchemaRefused(RefusalCode.SCHEMA, f"{what}: {document.reason}")
        texts: dict[Reference, str] = {}
        refused = await self._add_references(document.references or (), texts, set())
        if refused is not None:
            raise SchemaRefused(RefusalCode.SCHEMA, f"{what} refers to another one: {refused.reason}")
        if document.id is None or not 0 <= document.id <= HIGHEST_ID:
            raise RegistryUnavailable("its answer has no id that records can have")
        return SchemaVersion(document.id, version, document.schema, tuple(texts.values()))

    async def check(self) -> None:
        """Ask for an id that hardly exists. Raises RegistryUnavailable if that is not answered."""
        await self._get(f"/schemas/ids/{HIGHEST_ID}")

    async def _add_references(
        self, references: Sequence[Reference], texts: dict[Reference, str], seen: set[Reference]
    ) -> NoSchema | None:
        """Add the schemas of these, each behind those that it refers to itself."""
        for reference in references:
            if reference in seen:
                continue
            if len(seen) >= MOST_REFERENCES:
                return NoSchema(f"there are more than {MOST_REFERENCES}")
            seen.add(reference)
            subject = quote(reference.subject, safe="")
            document = await self._get(f"/subjects/{subject}/versions/{reference.version}")
            if isinstance(document, NoSchema):
                return document
            refused = await self._add_references(document.references or (), texts, seen)
            if refused is not None:
                return refused
            texts[reference] = document.schema
            if sum(map(len, texts.values())) > MOST_BYTES:
                return NoSchema("they are too large together")
        return None

    async def _get(self, path: str) -> SchemaDocument | NoSchema:
        return schema_document(await self._fetch(path))

    async def _fetch(self, path: str, body: bytes | None = None) -> FetchAnswer:
        headers = self._headers if body is None else {**self._headers, "Content-Type": _JSON}
        request = FetchRequest(f"{self.url}{path}", self._deadline, MOST_BYTES, headers, self._context, body)
        return await fetch(request, "kiwi_kafka schema")


def _version(found: RegisteredDocument, definition: str) -> SchemaVersion:
    """Return the version that a schema is. Raises RegistryUnavailable."""
    if found.version is None or not (0 <= found.id <= HIGHEST_ID and 0 < found.version <= HIGHEST_ID):
        raise RegistryUnavailable("its answer has no version, or no id that records can have")
    return SchemaVersion(found.id, found.version, definition)
