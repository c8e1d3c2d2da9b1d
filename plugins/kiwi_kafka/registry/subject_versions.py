"""The schemas of what is written: registered under the subjects of their topics, and found by their versions.

A subject is `{topic}-key` or `{topic}-value` (Confluent's TopicNameStrategy). What the registry has said is
kept for those that were used last: neither a version nor an id ever means anything else. Refusals are not
kept for them: what is compatible may be changed at the registry, and a version may come. Who writes waits for
the registry, and is told when it does not answer; those who read, and want to know which version it is that
they read, have places of their own, so that neither holds up the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import structlog
import trio

from kiwi_gw.api import RefusalCode, RegisteredSchema, SchemaRefused, SchemaVersion, WeightedLru
from kiwi_kafka.registry.documents import RegistryUnavailable
from kiwi_kafka.registry.schema_cache import SchemaCache

log = structlog.get_logger("kiwi_kafka")

AT_ONCE: Final = 8
"""Schemas that are asked for at a time, for all who write together; and for all who read."""
MOST_KEPT: Final = 8 * 1024 * 1024
"""Characters of the texts of versions that are kept, each counted with 1,000 more."""

NONE_SECONDS: Final = 10.0
"""How long it is remembered that a schema that is read is no version of its subject."""
_MOST_NONE: Final = 64
_EACH: Final = 1_000
_LOG_SECONDS: Final = 10.0
_AWAY: Final = "the schema registry does not answer as it should"

_Key = tuple[str, str | int]  # a subject, and a text or a version


class KeepsVersions(Protocol):
    """Ask a registry. Its methods raise RegistryUnavailable and SchemaRefused."""

    url: str

    async def register(self, subject: str, definition: str) -> SchemaVersion:
        """Return the version that a schema is there, a new one if it was none."""

    async def find(self, subject: str, version: int) -> SchemaVersion:
        """Return what has this version."""

    async def known(self, subject: str, definition: str) -> SchemaVersion:
        """Return the version that a schema is there; one that is none is refused."""


@dataclass(slots=True, eq=False)
class _Asked:
    """What is under way. refused: what came of it, for those who have waited."""

    done: trio.Event = field(default_factory=trio.Event)
    refused: SchemaRefused | None = None


class SubjectVersions:
    """Register and find schemas of what is written. cache: of the schemas of what is read."""

    def __init__(self, client: KeepsVersions, cache: SchemaCache) -> None:
        self._client, self._cache = client, cache
        self._kept: WeightedLru[SchemaVersion] = WeightedLru(MOST_KEPT)
        self._places, self._places_to_read = trio.Semaphore(AT_ONCE), trio.Semaphore(AT_ONCE)
        self._none: dict[_Key, float] = {}
        self._asked: dict[_Key, _Asked] = {}
        self._said_at = -_LOG_SECONDS

    async def register(self, subject: str, definition: str) -> SchemaVersion:
        """Return the version that a schema is there, a new one if it was none. Raises SchemaRefused."""
        return await self._once((subject, definition), partial(self._register, subject, definition))

    async def find(self, subject: str, version: int) -> SchemaVersion:
        """Return what has this version. Raises SchemaRefused."""
        return await self._once((subject, version), partial(self._client.find, subject, version))

    async def known(self, subject: str, definition: str) -> SchemaVersion:
        """Return the version that a schema is there. Raises SchemaRefused, also if it is none."""
        found = self._kept.known((subject, definition))
        if found is not None:
            return found
        # By another key: who registers it meanwhile must not be told that it is none.
        key, now = (f"{subject}?", definition), trio.current_time()
        if self._none.get(key, now) > now:
            raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, f"it is no schema of {subject}")
        ask = partial(self._client.known, subject, definition)
        try:
            return await self._once(key, ask, self._places_to_read)
        except SchemaRefused as refused:
            if refused.code == RefusalCode.UNKNOWN_VERSION:
                self._none.pop(key, None)
                self._none[key] = trio.current_time() + NONE_SECONDS
                if len(self._none) > _MOST_NONE:
                    del self._none[next(iter(self._none))]
            raise

    async def _register(self, subject: str, definition: str) -> SchemaVersion:
        try:
            # In a thread, as it may be large. What readers could not read is not registered.
            await trio.to_thread.run_sync(RegisteredSchema, 0, definition)
        except ValueError as error:
            raise SchemaRefused(RefusalCode.SCHEMA, f"the schema cannot be used: {error}") from None
        found = await self._client.register(subject, definition)
        self._cache.forget_refusal(found.id)  # a record may have made that id up before
        return found

    async def _once(
        self,
        key: _Key,
        ask: Callable[[], Awaitable[SchemaVersion]],
        places: trio.Semaphore | None = None,
    ) -> SchemaVersion:
        """Return what is known, or ask, once for all who want to know at the same time. places: None: those
        of who writes."""
        while (known := self._kept.known(key)) is None:
            asked = self._asked.get(key)
            if asked is None:
                return await self._ask(key, ask, places or self._places)
            await asked.done.wait()
            if asked.refused is not None:
                raise SchemaRefused(asked.refused.code, str(asked.refused))
        return known

    async def _ask(
        self, key: _Key, ask: Callable[[], Awaitable[SchemaVersion]], places: trio.Semaphore
    ) -> SchemaVersion:
        asked = self._asked[key] = _Asked()
        try:
            async with places:
                found = await ask()
        except SchemaRefused as refused:
            asked.refused = refused
            raise
        except RegistryUnavailable as error:
            self._say_away(error)
            asked.refused = SchemaRefused(RefusalCode.UNAVAILABLE, _AWAY)
            raise asked.refused from None
        finally:
            del self._asked[key]
            asked.done.set()
        weight = _EACH + len(found.definition) + sum(map(len, found.references)) + len(str(key[1]))
        if weight <= MOST_KEPT:
            self._kept.keep(key, weight, found)
        return found

    def _say_away(self, error: RegistryUnavailable) -> None:
        now = trio.current_time()
        if now - self._said_at >= _LOG_SECONDS:
            self._said_at = now
            log.warning("schema registry away, for what is written", url=self._client.url, error=str(error))
