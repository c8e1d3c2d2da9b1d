"""One registry, for all sources that read by its schemas: what is known, and asking for what is not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog
import trio

from kiwi_gw.api import Backoff, RegisteredSchema
from kiwi_kafka.registry.documents import NoSchema, RegistryUnavailable
from kiwi_kafka.registry.refusal_budget import BatchBudget
from kiwi_kafka.registry.schema_cache import SchemaCache

log = structlog.get_logger("kiwi_kafka")

AWAY = "the schema registry does not answer as it should"

AT_ONCE = 8
"""Requests at a time, of all sources together; one, while the last one has failed."""
_LOG_SECONDS = 10.0
"""Between two lines about ids that nobody knows."""


class AsksForSchemas(Protocol):
    """Ask a registry."""

    url: str

    async def schema(self, schema_id: int) -> RegisteredSchema | NoSchema:
        """Return what has this id. Raises RegistryUnavailable."""


class SchemaRegistry:
    """Find schemas by their ids, however long the registry is away."""

    def __init__(self, client: AsksForSchemas, backoff: Backoff | None = None) -> None:
        self.cache = SchemaCache()
        self._client = client
        self._backoff = backoff or Backoff(0.1, 5.0)
        self._places = trio.Semaphore(AT_ONCE)
        self._probe = trio.Lock()
        self._asked: dict[int, trio.Event] = {}
        self._away_since: float | None = None
        self._listeners: dict[object, Callable[[str], None]] = {}
        self._said_at: dict[str, float] = {}

    async def find(
        self, schema_ids: Sequence[int], budget: BatchBudget, tell: Callable[[str], None]
    ) -> dict[int, RegisteredSchema]:
        """Return the schemas of those ids that have one. Waits while the registry is away.

        schema_ids: in the order in which they are asked for. tell: called, while this waits, with what is
        wrong with the registry (an empty message: nothing any more; not where this is cancelled).
        """
        found: dict[int, RegisteredSchema] = {}
        unknown: deque[int] = deque()
        now = trio.current_time()
        for schema_id in schema_ids:
            known = self.cache.get(schema_id, now)
            if isinstance(known, RegisteredSchema):
                found[schema_id] = known
            elif known is None:
                unknown.append(schema_id)

        async def ask() -> None:
            while unknown and not budget.spent(trio.current_time()):
                schema_id = unknown.popleft()
                answer = await self._learn(schema_id)
                if isinstance(answer, RegisteredSchema):
                    found[schema_id] = answer
                else:
                    budget.refused(trio.current_time())

        if unknown:
            with self._telling(tell):
                async with trio.open_nursery() as nursery:
                    for _ in range(min(AT_ONCE, len(unknown))):
                        nursery.start_soon(ask)
        if unknown:
            self._say_seldom("schema ids not asked for: too many are unknown", ids=len(unknown))
        return found

    async def _learn(self, schema_id: int) -> RegisteredSchema | NoSchema:
        """Return what the registry says of the id, which is asked for once for all who want to know."""
        while True:
            known = self.cache.get(schema_id, trio.current_time())
            if known is not None:
                return known
            asked = self._asked.get(schema_id)
            if asked is not None:
                await asked.wait()
                continue
            self._asked[schema_id] = trio.Event()
            try:
                return await self._ask(schema_id)
            finally:
                self._asked.pop(schema_id).set()

    async def _ask(self, schema_id: int) -> RegisteredSchema | NoSchema:
        answer = None
        while answer is None:
            if self._away_since is None:
                async with self._places:
                    if self._away_since is None:  # still, after the wait
                        answer = await self._try(schema_id)
            else:
                async with self._probe:
                    if self._away_since is not None:
                        await trio.sleep(self._backoff.next())
                        answer = await self._try(schema_id)
        return answer

    async def _try(self, schema_id: int) -> RegisteredSchema | NoSchema | None:
        """Ask once; None: the registry is away."""
        try:
            answer = await self._client.schema(schema_id)
        except RegistryUnavailable as error:
            self._is_away(error)
            return None
        self._is_back()
        self.cache.put(schema_id, answer, trio.current_time())
        if isinstance(answer, NoSchema):
            words: dict[str, object] = {"schema_id": schema_id, "reason": answer.reason}
            if answer.unknown:  # a producer can make up as many as it likes
                self._say_seldom("schema id is unknown: its records cannot be read", **words)
            else:
                log.warning("schema cannot be used: its records cannot be read", **words)
        return answer

    def _say_seldom(self, event: str, **words: object) -> None:
        now = trio.current_time()
        if now - self._said_at.get(event, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._said_at[event] = now
            log.warning(event, **words)

    # --- whether it answers ---

    @contextmanager
    def _telling(self, tell: Callable[[str], None]) -> Iterator[None]:
        key = object()
        self._listeners[key] = tell
        try:
            if self._away_since is not None:
                tell(AWAY)
            yield
            tell("")
        finally:
            del self._listeners[key]

    def _is_away(self, error: RegistryUnavailable) -> None:
        if self._away_since is None:
            self._away_since = trio.current_time()
            log.warning("schema registry away", url=self._client.url, error=str(error))
            for tell in list(self._listeners.values()):
                tell(AWAY)

    def _is_back(self) -> None:
        self._backoff.reset()
        if self._away_since is not None:
            seconds = round(trio.current_time() - self._away_since, 1)
            log.info("schema registry back", url=self._client.url, away_seconds=seconds)
            self._away_since = None
            for tell in list(self._listeners.values()):
                tell("")
