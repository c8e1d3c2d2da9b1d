"""An engine for queries over whole sources that does what a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kiwi_gw.api import (
    AS_JSON,
    Action,
    Batch,
    EngineLimits,
    EngineQuery,
    EventSchema,
    Field,
    FieldEncoding,
    Identity,
    Interceptor,
    PluginContext,
    Positions,
    Publisher,
    QueriedTable,
    QueryEngine,
    Refusal,
    ServiceType,
    Source,
    SourceContext,
    SourceInfo,
    hookimpl,
)
from kiwi_gw.core.commands import LabelLimit, OpenQuery
from kiwi_gw.model import Mode
from tests.unit.core.fakes import names

ROWS = EventSchema((Field("key", FieldEncoding.JSON), Field("value", FieldEncoding.JSON)))
ROW_COST = 100


def rows(first: int, size: int = 1, cost: int = ROW_COST) -> Batch:
    """The next rows of a result."""
    offsets = range(first, first + size)
    columns = {"key": [b"1"] * size, "value": [b"2"] * size}
    return Batch({0: first}, [0] * size, offsets, columns, cost=cost * size)


def ask(
    *source_ids: str,
    sql: str = "SELECT 1",
    credit: int | None = None,
    limit: int | None = None,
    result_bytes: int = 1024 * 1024,
    handle: str = "q",
) -> OpenQuery:
    """Have a query over these sources run; the result comes by push, or by pull with some credit."""
    tables = {f"t{number}": QueriedTable(name, AS_JSON) for number, name in enumerate(source_ids)}
    query = EngineQuery(sql, tables, limits=EngineLimits(result_bytes=result_bytes))
    limits: dict[Hashable, LabelLimit] = {} if limit is None else {None: LabelLimit(limit)}
    mode = Mode.PUSH if credit is None else Mode.PULL
    return OpenQuery(handle, query, lambda info: names(), mode, credit or 0, limits)


Run = Callable[[Publisher, EngineQuery], Awaitable[None]]


async def endless(publisher: Publisher, query: EngineQuery) -> None:
    """A query that gives a row and never ends."""
    await publisher.ready({0: 0})
    await publisher.publish(rows(0))
    await trio.sleep_forever()


class _Result:
    def __init__(self, engine: Engine, query: EngineQuery, context: SourceContext) -> None:
        self._engine, self._query, self._id = engine, query, context.source_id
        assert set(context.services) == set(engine.services_of_queries)

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        assert start is None
        self._engine.running.append(self._id)
        try:
            await self._engine.run(publisher, self._query)
        finally:
            self._engine.running.remove(self._id)


@dataclass
class Engine:
    """A plugin whose engine does this with every query. refuses: why it does not. built: ids of the sources
    that it has made; running: of those that run. service: how far `engine` is. may_open: it opens then."""

    run: Run = endless
    start_ms: int = 5_000
    services_of_queries: tuple[str, ...] = ()
    refuses: str | None = None
    built: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    service: str = "closed"
    opened: int = 0
    may_open: trio.Event = field(default_factory=trio.Event)

    @hookimpl
    def query_engine(self) -> QueryEngine:
        return QueryEngine(ROWS, self.services_of_queries, self._refusal, self._build, self.start_ms)

    @hookimpl
    def services(self) -> Sequence[ServiceType]:
        return [ServiceType("engine", self._open)]

    def _refusal(self, query: EngineQuery, context: PluginContext) -> str | None:
        return self.refuses

    def _build(self, query: EngineQuery, context: SourceContext) -> Source:
        self.built.append(context.source_id)
        return _Result(self, query, context)

    @asynccontextmanager
    async def _open(self, context: PluginContext) -> AsyncIterator[object]:
        self.service = "opening"
        try:
            await self.may_open.wait()
            self.service = "open"
            self.opened += 1
            yield self
        finally:
            self.service = "closed"


@dataclass
class Rules:
    """A plugin that says who may do what. forbidden: with which source. intercepted: sources of which nobody
    sees everything."""

    forbidden: set[tuple[str, Action]] = field(default_factory=set)
    intercepted: set[str] = field(default_factory=set)
    only: str | None = None
    """Who may do anything at all; None: everybody."""

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        if self.only not in (None, identity.name) or (source.id, action) in self.forbidden:
            return Refusal("forbidden", "not for you")
        return None

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        return Interceptor(lambda record: record) if source.id in self.intercepted else None
