"""Queries over whole sources: while it runs, each is a finite source of its own, with one subscription.

Theory of operation. A plugin's engine reads the sources of a query itself and publishes the rows of its
result. Window, credits, slow clients and the end are those of any source. But it is none of the gateway's: no
list has it, nobody else can subscribe to it, and all of them are counted under one id (`SHARED_ID`), that of
no source. It is not started again: whatever it raises ends the query. It lives as long as its subscription:
when that is over, for whatever reason, its memory is given back and it is stopped.

The engine is never held up by the client; what that has not read yet is kept. So a query may cost
`_IN_MEMORY` times the bytes of its result, but at most `window.bytes`, and one batch of up to 256 KiB more.
All of them take from what the windows of all sources share, `window.memory_bytes`; where that is short, the
largest loses its oldest rows, whichever it is. A client that has not read what is lost is too slow, and its
query ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import structlog
import trio

from kiwi_gw.api import PluginContext, QueryEngine, SourceContext, SourceFailed
from kiwi_gw.codes import RefusalCode
from kiwi_gw.config import ConfigDifference, LoadedConfig
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.hub_limits import HubLimits, HubState
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import CloseReason, Decode, EngineQuery, OverflowPolicy, Refusal, SourceInfo
from kiwi_gw.runtime.fan_out_pace import FanOutPace
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.meters import Meters
from kiwi_gw.runtime.plugin_faults import FaultBarrier
from kiwi_gw.runtime.services import Services
from kiwi_gw.runtime.source_runner import HubPublisher

log = structlog.get_logger(__name__)

SHARED_ID = "(queries)"
"""What is counted of their subscriptions has this for the id of its source, and so has what clients see."""

MAX_QUERIES = 256
"""Queries at a time, whatever protocols allow: that many windows have at least their newest batch each."""

_IN_MEMORY = 2
"""A row with its key, as two objects of Python in two columns, takes about twice the bytes of its text."""

_TOO_SLOW = "the result was not read in time, and there is no more room for what is left of it"
_BROKEN = "the query has failed in the gateway; the error is in its log"
_STOPPED = "the gateway stops"


@dataclass(slots=True, eq=False)
class RunningQuery:
    """One query and its source. id: unique in this process, for the log and for its engine. over: set when
    its subscription is. ready_by: monotonic seconds. loaded, context: of when it was asked."""

    id: str
    query: EngineQuery
    engine: QueryEngine
    hub: SourceHub
    loaded: LoadedConfig
    context: PluginContext
    ready_by: float
    over: trio.Event = field(default_factory=trio.Event)
    subscription: Subscription | None = None


class EngineQueries:
    """Those of one gateway. pace: of the fan-out of results. current: the configuration in force, and what
    plugins know of it."""

    def __init__(
        self,
        hooks: Hooks,
        services: Services,
        encodings: EncodingMemo,
        memory: MemoryBudget,
        meters: Meters,
        clock: Callable[[], float],
        pace: FanOutPace,
        current: Callable[[], tuple[LoadedConfig, PluginContext]],
    ) -> None:
        self._hooks = hooks
        self._services = services
        self._encodings = encodings
        self._memory = memory
        self._meters = meters
        self._clock, self._pace = clock, pace
        self._current = current
        self._nursery: trio.Nursery | None = None
        self._numbers = itertools.count(1)
        self._running: dict[object, RunningQuery] = {}  # by hub

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[RunningQuery]:
        return iter(list(self._running.values()))

    async def run(self) -> None:
        """Let queries run, until cancelled: that ends them."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def prepare(self, query: EngineQuery) -> RunningQuery:
        """Make the source of a query, which does not run yet. Nothing is to be given back if it never does.

        Raises SubscribeRefused where nothing runs such queries, or not this one, or so many.
        """
        loaded, context = self._current()
        engine = self._hooks.query_engine(query, context)
        if isinstance(engine, Refusal):
            raise SubscribeRefused(engine.code, engine.message)
        if len(self._running) >= MAX_QUERIES or self._nursery is None:
            words = _STOPPED if self._nursery is None else "too many queries run already; try again"
            raise SubscribeRefused(RefusalCode.BUSY, words)
        info = SourceInfo(SHARED_ID, "query", engine.schema, decode=Decode(key="json"))
        hub = SourceHub(info, _limits_of(query, loaded), self._encodings, self._memory, self._clock)
        ready_by = self._clock() + engine.start_ms / 1000
        number = f"query-{next(self._numbers)}"
        return RunningQuery(number, query, engine, hub, loaded, context, ready_by)

    def start(self, item: RunningQuery, subscription: Subscription) -> None:
        """Have it run for its subscription, if that is not over yet."""
        if subscription.closed:
            return
        assert self._nursery is not None  # noqa: S101  looked at in `prepare`, in the same step
        item.subscription = subscription
        item.hub.on_deserted = item.over.set
        self._running[item.hub] = item
        self._nursery.start_soon(self._run, item)

    def of(self, hub: object) -> EngineQuery | None:
        """Find the query whose source has this hub; None: it is the hub of another source."""
        item = self._running.get(hub)
        return item.query if item is not None else None

    def sweep(self) -> None:
        """Notice what is due. Call it a few times a second."""
        now = self._clock()
        for item in self:
            if item.hub.state is HubState.STARTING and now >= item.ready_by:
                seconds = item.engine.start_ms / 1000
                item.hub.failed(f"the query was not ready within {seconds:g} s; try again")
            item.hub.sweep()

    def tables_changed(self, difference: ConfigDifference) -> None:
        """End the queries that read a source which a reload has removed or altered."""
        self._end_those_of(difference.removed, CloseReason.REMOVED)
        self._end_those_of(difference.altered, CloseReason.ALTERED)

    # --- inside ----------------------------------------------------------------------------

    def _end_those_of(self, source_ids: Iterable[str], reason: CloseReason) -> None:
        gone = frozenset(source_ids)
        for item in self if gone else ():
            read = next((t.source_id for t in item.query.tables.values() if t.source_id in gone), None)
            if read is not None and item.subscription is not None:
                words = f"the source {read}, which the query reads, was {reason.value}"
                item.hub.withdraw(item.subscription, words, reason)

    async def _run(self, item: RunningQuery) -> None:
        """Run it until its subscription is over."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, item)
                await item.over.wait()
                self._give_back(item)  # before it is stopped, which may take a while
                nursery.cancel_scope.cancel()
        finally:
            self._give_back(item)

    def _give_back(self, item: RunningQuery) -> None:
        if self._running.pop(item.hub, None) is not None:
            item.hub.failed(_STOPPED)  # heard by a subscription that is not over
            item.hub.close()
            self._meters.hub_over(item.hub)

    async def _serve(self, item: RunningQuery) -> None:
        """Have the engine make the result."""
        engine = item.engine
        publisher = HubPublisher(item.hub, trio.lowlevel.ParkingLot(), self._pace, quiet=True)
        with FaultBarrier() as barrier:
            kinds = item.loaded.plugins.service_types()
            async with self._services.use(kinds, tuple(engine.services), item.context) as values:
                source = engine.build(item.query, SourceContext(item.id, item.context, values))
                await source.run(publisher, None)
            if item.hub.state is HubState.STARTING:
                raise RuntimeError("Source.run returned without a call of `ready`")
        error = barrier.error
        if isinstance(error, SourceFailed):
            log.info("query failed", query=item.id, error=str(error))
            item.hub.failed(str(error))
        elif error is not None:
            log.error("query raised", query=item.id, exc_info=error)
            item.hub.failed(_BROKEN)
        else:
            item.hub.ended("the query has ended")


def _limits_of(query: EngineQuery, loaded: LoadedConfig) -> HubLimits:
    limits = loaded.settings.server.limits
    held = max(1, min(_IN_MEMORY * query.limits.result_bytes, loaded.settings.window.bytes))
    return HubLimits(
        window_events=held,  # its bytes are the bound
        window_bytes=held,
        overflow=OverflowPolicy.CLOSE,
        overflow_words=_TOO_SLOW,
        subscribe_timeout=math.inf,  # `EngineQueries.sweep` has words of its own
        direct_bytes=limits.send_bytes,
        slice_seconds=limits.fan_out_slice_ms / 1000,
    )
