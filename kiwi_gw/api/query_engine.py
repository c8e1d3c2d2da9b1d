"""What runs queries over whole sources: aggregates, joins, everything that needs more than one event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kiwi_gw.api.declarations import PluginContext, SourceContext
from kiwi_gw.api.source import Source
from kiwi_gw.model import EngineQuery, EventSchema


@dataclass(frozen=True, slots=True)
class QueryEngine:
    """Declare what runs them.

    schema: of the results, whose events have at least the columns `key` and `value`, as JSON; offsets count
    the rows of a result from 0, in partition 0.
    services: names of the services that a query needs, opened before `build`, by the first query.
    refusal: why this query cannot be run here, in words for a client; None: it can. At once, without I/O.
    build: makes a source that is there for one query. `Source.run` calls `ready` when the query is known to
        be right, publishes the rows of its result and returns; it raises SourceFailed, in words for a client,
        if there is none, and nothing else. Cancelled, it stops the query. No I/O here.
    start_ms: how long it may take until a query is ready, the start of the engine included.
    """

    schema: EventSchema
    services: Sequence[str]
    refusal: Callable[[EngineQuery, PluginContext], str | None]
    build: Callable[[EngineQuery, SourceContext], Source]
    start_ms: int = 5_000
