"""The results of a query as a source."""

from __future__ import annotations

from typing import cast

import structlog
import trio

from kiwi_gw.api import (
    Positions,
    Publisher,
    Section,
    Source,
    SourceChanged,
    SourceContext,
    SourceFailed,
    SourceStatistics,
)
from kiwi_spark.gateway.batches import BatchSpool, IncomingBatches
from kiwi_spark.gateway.driver_supervisor import DriverState, MessageConnection
from kiwi_spark.gateway.placed_results import PlacedResults
from kiwi_spark.gateway.positions import offset_of, places_of, rows_of
from kiwi_spark.gateway.query_run import QueryRun
from kiwi_spark.gateway.query_supervisor import QuerySupervisor
from kiwi_spark.gateway.rows import lost_batches, row_batches
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.gateway.settings import SparkSourceSettings
from kiwi_spark.gateway.sink import sink_source, writes_here
from kiwi_spark.protocol.messages import BatchTaken, QueryStarted, WireError

log = structlog.get_logger("kiwi_spark")


class SparkSource:
    """Every row that the query commits, once, as long as its checkpoint is there.

    In micro-batches a batch enters as a whole and then stays ours, whatever becomes of the driver. `run` goes
    on while there is no driver: subscriptions stay. The service keeps the SourceBatches by id, so that a
    source that is built again goes on where the last one was, within a batch even. In real time rows have
    places, and those that came before are dropped (`placed_results`).
    """

    def __init__(self, settings: SparkSourceSettings, context: SourceContext, spark: SparkService) -> None:
        self._id = settings.id
        self._spark = spark
        self._query = QuerySupervisor(settings, context, spark)
        self._batches = spark.batches(self._id)
        self._placed: PlacedResults | None = None
        self._streams = settings.topic_inputs
        self._out: Publisher
        self._start: Positions | None = None
        self._ready = False

    def statistics(self) -> SourceStatistics:
        """Return whether the query can run (`reachable`). How far it is behind only Spark knows."""
        reachable = self._spark.driver.state is DriverState.READY and self._query.reachable
        return SourceStatistics(reachable=reachable, details=self._query.details())

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Run the query. SourceFailed: it can never work, or failed too often. SourceChanged: its checkpoint
        is another one, it has other partitions, or part of a batch was published and the rest of it is not
        known any more."""
        self._out, self._start, self._ready = publisher, start, False
        try:
            await self._query.run(publisher.report_degraded, self._attend)
        except (SourceFailed, SourceChanged):
            self._batches.clear()  # a source that is built again begins anew
            raise
        except trio.Cancelled:
            self._batches.leave(self)
            raise

    async def _attend(self, run: QueryRun, started: QueryStarted) -> None:
        self._check_mode(started)
        self._out.describe(started.members)
        if started.real_time:
            await self._attend_placed(run, started)
        else:
            await self._attend_batches(run, started)

    def _check_mode(self, started: QueryStarted) -> None:
        """Raise SourceChanged where its positions would be of another kind than before."""
        if self._ready:
            placed = self._placed is not None
        elif self._start is not None:
            placed = 0 not in self._start
        else:
            return
        if placed is not started.real_time:
            mode = "real time" if started.real_time else "micro-batches"
            raise SourceChanged(f"the query runs in {mode} now: its positions are others")

    async def _be_ready(self, positions: Positions) -> None:
        self._ready = True
        await self._out.ready(positions)
        if self._query.degraded:  # being ready means to be out of trouble, and this is not over
            self._out.report_degraded(self._query.degraded)

    # --- in real time ---

    async def _attend_placed(self, run: QueryRun, started: QueryStarted) -> None:
        if not self._ready and self._start is None:  # who had this id before has let go of it by now
            self._batches.clear()
        begin = places_of(started.begin, self._streams)
        if self._placed is None:
            # Behind the last rows: a client that has these has them all, though the query begins further on.
            start = self._start or {**begin, **rows_of(started.had, self._streams)}
            self._placed = PlacedResults(self._out, self._query, self._streams, start)
        same = self._batches.query in ("", started.query)
        self._placed.resume(begin, same=same)
        self._batches.query = started.query
        if not self._ready:
            self._out.expect(places_of(started.end, self._streams))
            await self._be_ready(self._placed.next)
        while (connection := await run.rows()) is not None:
            await self._placed.receive(connection, run.reads, run.moves)

    # --- in micro-batches ---

    async def _attend_batches(self, run: QueryRun, started: QueryStarted) -> None:
        if not self._ready and self._start is None:  # who had this id before has let go of it by now
            self._batches.clear()
        self._batches.enter(self)
        self._batches.resume(started, self._start)
        if not self._ready:
            await self._be_ready(self._first_position())
        await self._finish()
        while (connection := await run.rows()) is not None:
            await self._receive(connection)

    def _first_position(self) -> Positions:
        at = 0 if self._start is None else self._start[0]
        committed, next_at = self._batches.committed, offset_of(self._batches.next, 0)
        if committed is not None:
            next_at = offset_of(committed.batch, 0)
            committed.published = max(0, at - next_at)
        return {0: max(next_at, at)}

    async def _receive(self, connection: MessageConnection) -> None:
        """Take batches until the connection is over."""
        incoming = IncomingBatches(self._batches, self._spark.budget)
        try:
            while (message := await connection.receive()) is not None:
                ended = await incoming.take(message)
                if ended is None:
                    continue
                if self._batches.committed is None:
                    log.info("a batch came again and was dropped", source=self._id, batch=ended)
                await self._finish()
                await connection.send(BatchTaken(batch=ended))
        except WireError as error:
            log.error("the rows of a query cannot be read", source=self._id, error=str(error))
        finally:
            connection.close()
            cut = incoming.cut()
            if cut is not None:
                log.info("a batch that was not whole was dropped", source=self._id, batch=cut)

    async def _finish(self) -> None:
        """Publish what was committed, from where it was left."""
        committed, out = self._batches.committed, self._out
        if committed is None:
            return
        self._query.batch_arrived()  # first: events come after the notice that all is well
        if committed.lost_from is not None:
            gap, committed.lost_from = lost_batches(committed.lost_from, committed.batch), None
            await out.publish(gap)
        first = 0
        for index, rows in enumerate(committed.spool.counts):
            if committed.published < first + rows:
                part = await self._part(committed.spool, index)
                # Here, and piece by piece: in a thread it would hold Python's lock for as long, at one go.
                skip = max(0, committed.published - first)
                for piece in row_batches(part, committed.batch, committed.timestamp, first, skip):
                    await out.publish(piece)
                    committed.published += len(piece)
            first += rows
        committed.spool.close()
        self._batches.committed = None

    async def _part(self, spool: BatchSpool, index: int) -> bytes:
        """One part of a batch."""
        if spool.holds(index):
            return spool.read(index)
        return await trio.to_thread.run_sync(spool.read, index, limiter=self._spark.threads)


def build_source(settings: Section, context: SourceContext) -> Source:
    """SourceType.build: no I/O."""
    own = cast("SparkSourceSettings", settings)
    if own.sink is None:
        return SparkSource(own, context, cast("SparkService", context.services["spark"]))
    if not writes_here(own.sink.write, context.plugins):
        return sink_source(own.sink.topic, context, None)
    query = QuerySupervisor(own, context, cast("SparkService", context.services["spark"]))
    return sink_source(own.sink.topic, context, query.run_beside, query.details)
