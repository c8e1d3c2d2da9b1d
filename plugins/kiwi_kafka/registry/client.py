"""Asks a schema registry, over HTTP."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Sequence
from urllib.parse import quote

import trio

from kiwi_gw.api import RegisteredSchema
from kiwi_gw.api.http_fetch import FetchRequest, fetch
from kiwi_kafka.registry.documents import HIGHEST_ID, NoSchema, Reference, SchemaDocument, schema_document
from kiwi_kafka.settings import RegistrySettings

DEADLINE = 2.0
"""Seconds for each answer."""
MOST_BYTES = 1024 * 1024
"""Of an answer."""
MOST_REFERENCES = 64
"""Other schemas that one refers to, directly or not."""


class RegistryClient:
    """Ask one registry. It keeps nothing."""

    def __init__(self, settings: RegistrySettings, deadline: float = DEADLINE) -> None:
        """Prepare it. Raises OSError (ssl.SSLError, too) if `ca` cannot be used."""
        self.url = settings.url.rstrip("/")
        self._deadline = deadline
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
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
        return None

    async def _get(self, path: str) -> SchemaDocument | NoSchema:
        request = FetchRequest(
            f"{self.url}{path}", self._deadline, MOST_BYTES, headers=self._headers, context=self._context
        )
        return schema_document(await fetch(request, "kiwi_kafka schema"))
