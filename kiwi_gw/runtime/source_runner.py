"""Keeps one source running: hands its batches to the hub, restarts it when it fails.

One of the two places that catch everything: whatever a source raises is logged and counted here, and
touches no connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

import structlog
import trio

from kiwi_gw.api import (
    HasStatistics,
    History,
    Source,
    SourceChanged,
    SourceFailed,
    SourceStatistics,
    decode_mistake,
)
from kiwi_gw.backoff import Backoff
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.model import Batch, Decode, EventSchema, FieldEncoding, HasLineage, Positions, batch_pieces
from kiwi_gw.runtime.fan_out_pace import FanOutPace
from kiwi_gw.runtime.history_task import HistoryTask
from kiwi_gw.runtime.meters import SourceMeter
from kiwi_gw.runtime.plugin_faults import FaultBarrier, words
from kiwi_gw.runtime.produce_queue import ProduceQueue
from kiwi_gw.runtime.source_metrics import SourceMetricValues

log = structlog.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between restarts: doubled each time, with jitter; a run that lasted longer begins anew."""

_HELD_LOG_SECONDS, _HELD_LOOK_SECONDS = 10.0, 0.25

_STARTING: Final = HubState.STARTING
_RUNNING: Final = HubState.RUNNING
"""By name in this module, as a batch is checked with them (see `core.publishing`)."""

Build = Callable[[], AbstractAsyncContextManager[Source]]


class HubPublisher:
    """`api.Publisher` over a hub. pace: of its fan-out. meter: what every batch is measured with, None for
    not at all. quiet: the log says for debugging only that the source runs."""

    def __init__(
        self,
        hub: SourceHub,
        subscribed: trio.lowlevel.ParkingLot,
        pace: FanOutPace,
        meter: SourceMeter | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self._hub = hub
        self._say = log.debug if quiet else log.info
        self._meter = meter
        self._subscribed, self._pace = subscribed, pace
        self._columns = _columns(hub.info.event_schema)
        self._said_at = -math.inf
        self._publishes = False

    async def ready(self, positions: Positions) -> None:
        info = self._hub.info
        self._say("source runs", source=info.id, type=info.type, partitions=len(positions))
        self._hub.started(positions)
        await trio.lowlevel.checkpoint()
        while self._hub.begin_some():
            await trio.lowlevel.checkpoint()
        self._hub.report_degraded("")

    def expect(self, positions: Positions) -> None:
        self._hub.expected = positions

    async def publish(self, batch: Batch) -> None:
        state = self._hub.state
        if state is _STARTING:
            raise RuntimeError("publish was called before ready")
        if self._publishes:
            raise RuntimeError("publish was called while another one was under way")
        if state is _RUNNING:
            self._check(batch)
            self._publishes = True
            if self._hub.subscribers:
                self._pace.serves_readers()
            steps = publish(self._hub, batch, self._pace.slice_seconds)
            try:
                if self._hub.blocking.holding(batch):
                    await self._wait_for_holders(next(batch_pieces(batch)))
                began = time.perf_counter()
                for piece in steps:
                    await self._pace.give_way()
                    if piece is not None and self._hub.blocking.holding(piece):
                        stopped = time.perf_counter()
                        await self._wait_for_holders(piece)
                        began += time.perf_counter() - stopped
            finally:
                self._publishes = False
                steps.close()  # if it was cancelled half-way, those not served yet read on from the window
            if self._meter is not None:
                seconds = time.perf_counter() - began
                self._meter.published(batch, self._hub.subscribers, seconds, time.time())
        # else it was stopped and is on its way out: no reader is to get any more of it.
        await trio.lowlevel.checkpoint()

    @property
    def subscribed(self) -> bool:
        return self._hub.subscribers > 0

    async def wait_subscribed(self) -> None:
        while not self._hub.subscribers:
            await self._subscribed.park()
        await trio.lowlevel.checkpoint()

    def describe(self, members: str) -> None:
        if members == self._hub.info.members:
            return
        if wrong := decode_mistake(Decode(fields=members)):
            raise ValueError(wrong)
        self._hub.info = replace(self._hub.info, members=members)

    def report_degraded(self, message: str) -> None:
        self._hub.report_degraded(message)

    async def _wait_for_holders(self, piece: Batch) -> None:
        """Policy `block`: until everyone has room for this piece, or may hold the source no longer. It is
        looked at whenever they have read some."""
        hub = self._hub
        try:
            while hub.state is _RUNNING and (holders := hub.blocking.holding(piece)):
                freed = trio.Event()
                hub.on_freed = freed.set
                hub.held_by = [str(subscription.owner) for subscription in holders]
                if trio.current_time() - self._said_at >= _HELD_LOG_SECONDS:
                    self._said_at = trio.current_time()
                    log.warning("source is held by subscriptions", source=hub.info.id, by=hub.held_by[:10])
                with trio.move_on_after(
                    _HELD_LOOK_SECONDS
                ):  # those without credit: their time ends by itself
                    await freed.wait()
        finally:
            hub.held_by = []

    def _check(self, batch: Batch) -> None:
        # Here it is the source's fault; in the window it would end every subscription that comes to it.
        columns = batch.columns
        if missing := self._columns.difference(columns):
            raise ValueError(f"a batch lacks the columns {', '.join(sorted(missing))}")
        size = len(batch.offsets)
        for column in (batch.partitions, *columns.values()):
            if len(column) != size:
                raise ValueError(f"a batch of {size} events has columns of other lengths")


class SourceRunner:
    """Runs one source until it ends, fails for good, changes, or is stopped.

    build: makes the source with its services, anew for every run. changed: called when the source said
    that it became another one; it is not run again by this runner. pace: of its fan-out. meter:
    what is measured of it, None for nothing. metrics: what it counts itself. quiet: it is one of very many,
    so its starts are no news.

    restarts: how often it failed and was run again. last_error: why, the last time. refused: what the
    last reload would have made of it and why that cannot work, empty if nothing. done: set when the
    source is over and has cleaned up. source: as it runs now, None while it does not. turned: set, and
    replaced, when the state of the hub is another, or what degrades it.
    """

    def __init__(
        self,
        hub: SourceHub,
        build: Build,
        changed: Callable[[str], None],
        pace: FanOutPace,
        meter: SourceMeter | None = None,
        metrics: SourceMetricValues | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.hub = hub
        self.metrics = metrics or SourceMetricValues((), meter)
        self.restarts = 0
        self.last_error: str = ""
        self.refused = ""
        self.history = HistoryTask(hub, pace.serves_readers)
        self._build = build
        self._changed, self._pace = changed, pace
        self._meter = meter
        self.source: Source | None = None
        self._produce_queue: ProduceQueue | None = None
        self._quiet = quiet
        self._stalled_since: float | None = None
        self._events_seen = 0
        self._scope = trio.CancelScope()
        self._subscribed = trio.lowlevel.ParkingLot()
        hub.on_subscribed = self._subscriber_added
        self.turned = trio.lowlevel.ParkingLot()
        hub.on_state_changed = self.tell
        self.done = trio.Event()

    def _subscriber_added(self) -> None:
        """Wake a source that waits for its first subscription."""
        self._subscribed.unpark_all()

    def tell(self) -> None:
        """Have those look again who wait for it to start."""
        self.turned.unpark_all()

    def produce_queue(self, spawn: Callable[[Callable[[], Awaitable[None]]], None]) -> ProduceQueue:
        """Return what writes to it. spawn: runs a task as long as the gateway runs."""
        if self._produce_queue is None:
            self._produce_queue = ProduceQueue(lambda: self.source, spawn, self._pace, self._meter)
        return self._produce_queue

    def statistics(self) -> SourceStatistics | None:
        """Return what the source knows of its origin; None while it does not run, or if it knows nothing."""
        source: object = self.source
        if not isinstance(source, HasStatistics):
            return None
        with FaultBarrier() as barrier:  # it may not cost a scrape or the pulse
            return source.statistics()
        log.error("source cannot say how it is", source=self.hub.info.id, exc_info=barrier.error)
        return None

    def look(self, now: float) -> None:
        """Call it about once a second: notices a source that has something to read and does not move.

        It stalls while it is starting, while its origin does not answer, or while it is behind and no event
        comes. now: monotonic seconds.
        """
        statistics = self.statistics()
        moved, self._events_seen = self.hub.events_in != self._events_seen, self.hub.events_in
        waits = statistics is not None and (not statistics.reachable or any(statistics.behind.values()))
        if self.hub.state is HubState.STARTING or (
            self.hub.state is HubState.RUNNING and waits and not moved
        ):
            if self._stalled_since is None:
                self._stalled_since = now
        else:
            self._stalled_since = None

    def stalled(self, now: float) -> float:
        """For how many seconds it has been seen to stall."""
        return 0.0 if self._stalled_since is None else now - self._stalled_since

    def stop(self) -> None:
        """Stop the source; its hub is left as it is."""
        self._scope.cancel()

    async def run(self) -> None:
        """Run the source until it is over, for whatever reason."""
        try:
            with self._scope:
                await self._keep_running()
        finally:
            self.done.set()

    async def _keep_running(self) -> None:
        source_id = self.hub.info.id
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            began = trio.current_time()
            error = await self._run_once()
            if trio.current_effective_deadline() == -math.inf:
                # It was stopped, and its hub is another's business now, whatever it says at its end.
                if error is not None:
                    log.error("source raised while it was stopped", source=source_id, exc_info=error)
                return
            if error is None:
                return
            message = words(error)
            if isinstance(error, SourceFailed):
                self.last_error = str(error)
                log.error("source failed", source=source_id, error=str(error))
                self.hub.failed(str(error))
                return
            if isinstance(error, SourceChanged):
                log.warning("source changed", source=source_id, change=str(error))
                if trio.current_time() - began < FIRST_PAUSE:
                    await trio.sleep(FIRST_PAUSE)  # or one that always says so would keep us busy
                self._changed(str(error))
                return
            self.last_error = message
            self.restarts += 1
            if self._meter is not None:
                self._meter.restarts["error"] += 1
            self.hub.report_degraded(
                "the source has failed and is started again"
            )  # why is the operator's matter
            if trio.current_time() - began > LONGEST_PAUSE:
                backoff.reset()
            pause = backoff.next()
            log.error(
                "source raised; it is restarted", source=source_id, pause=round(pause, 1), exc_info=error
            )
            await trio.sleep(pause)

    async def _run_once(self) -> BaseException | None:
        """Build the source and run it. Returns what it raised; None if it ended."""
        out = HubPublisher(self.hub, self._subscribed, self._pace, self._meter, quiet=self._quiet)
        start = self.hub.positions if self.hub.state is not HubState.STARTING else None
        with FaultBarrier() as barrier:
            try:
                async with self._build() as source:
                    await self._serve(source, out, start)
            finally:
                self.source = None
        return barrier.error

    async def _serve(self, source: Source, out: HubPublisher, start: Positions | None) -> None:
        self.source = source
        self.hub.lineage_source = source if isinstance(source, HasLineage) else None
        if isinstance(source, History):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.history.run, source)
                await self._run_to_its_end(source, out, start)
                await trio.sleep_forever()  # what it was can still be read, until it is removed
        elif self.hub.info.replayable:
            raise SourceFailed(f"sources of type {self.hub.info.type!r} lack `api.History`")
        else:
            await self._run_to_its_end(source, out, start)

    async def _run_to_its_end(self, source: Source, out: HubPublisher, start: Positions | None) -> None:
        await source.run(out, start)
        if trio.current_effective_deadline() > -math.inf:  # else it was stopped, and says nothing
            log.info("source ended", source=self.hub.info.id)
            self.hub.ended()


def _columns(event_schema: EventSchema) -> frozenset[str]:
    """Find the columns that every batch must have."""
    fields = [field for fields in (event_schema.fields, *event_schema.variants.values()) for field in fields]
    named = {
        field.source_column
        for field in fields
        if field.kind not in (FieldEncoding.SOURCE_ID, FieldEncoding.SOURCE_TYPE)
    }
    return frozenset(named - {"partition", "offset"})
