"""The results of a query as a source."""

from __future__ import annotations

from functools import partial
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
from kiwi_spark.gateway.batches import BatchSpool, IncomingBatches, SourceBatches, TooManyRowsError
from kiwi_spark.gateway.connection import MessageConnection
from kiwi_spark.gateway.driver_supervisor import DriverState
from kiwi_spark.gateway.query_run import QueryRun
from kiwi_spark.gateway.query_supervisor import QuerySupervisor
from kiwi_spark.gateway.rows import lost_batches, offset_of, row_batches
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.gateway.settings import SparkSourceSettings
from kiwi_spark.gateway.sink import sink_source, writes_here
from kiwi_spark.protocol.messages import BatchTaken, QueryStarted, WireError

log = structlog.get_logger("kiwi_spark")


class SparkSource:
    """Every row that the query commits, once, as long as its checkpoint is there.

    A batch enters as a whole and then stays ours, whatever becomes of the driver. `run` goes on while there
    is no driver: subscriptions stay. The service keeps the SourceBatches by id, so that a source that is
    built again goes on where the last one was, within a batch even.
    """

    def __init__(self, settings: SparkSourceSettings, context: SourceContext, spark: SparkService) -> None:
        self._id = settings.id
        self._spark = spark
        self._query = QuerySupervisor(settings, context, spark)
        self._out: Publisher | None = None
        self._ready = False
        self._anew = False

    def statistics(self) -> SourceStatistics:
        """Return whether the query can run (`reachable`). How far it is behind only Spark knows."""
        reachable = self._spark.state is DriverState.READY and not self._query.degraded
        return SourceStatistics(reachable=reachable, details=self._query.details())

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Run the query. SourceFailed: it can never work, or failed too often. SourceChanged: its checkpoint
        is another one, or part of a batch was published and the rest of it is not known any more."""
        self._out, self._ready, self._anew = publisher, False, start is None
        batches = self._spark.batches(self._id)
        try:
            await self._query.run(publisher.report_degraded, partial(self._attend, batches, start))
        except (SourceFailed, SourceChanged):
            batches.clear()  # a source that is built again begins anew
            raise
        except trio.Cancelled:
            batches.leave(self)
            raise

    async def _attend(
        self, batches: SourceBatches, start: Positions | None, run: QueryRun, started: QueryStarted
    ) -> None:
        if self._anew:  # by now the source that had this id before has let go of it
            batches.clear()
            self._anew = False
        batches.enter(self)
        batches.resume(started, start)
        if self._out is not None:
            self._out.describe(started.members)
        await self._be_ready(batches, start)
        await self._finish(batches)
        while (connection := await run.rows()) is not None:
            await self._receive(connection, batches)

    async def _be_ready(self, batches: SourceBatches, start: Positions | None) -> None:
        if self._ready or self._out is None:
            return
        self._ready = True
        at = 0 if start is None else start[0]
        next_at = offset_of(batches.next, 0)
        if batches.committed is not None:
            next_at = offset_of(batches.committed.batch, 0)
            batches.committed.published = max(0, at - next_at)
        await self._out.ready({0: max(next_at, at)})
        if self._query.degraded:  # being ready means to be out of trouble, and this is not over
            self._out.report_degraded(self._query.degraded)

    async def _receive(self, connection: MessageConnection, batches: SourceBatches) -> None:
        """Take batches until the connection is over."""
        incoming = IncomingBatches(batches, self._spark.budget)
        try:
            while (message := await connection.receive()) is not None:
                ended = await incoming.take(message)
                if ended is None:
                    continue
                if batches.committed is None:
                    log.info("a batch came again and was dropped", source=self._id, batch=ended)
                await self._finish(batches)
                await connection.send(BatchTaken(batch=ended))
        except WireError as error:
            log.error("the rows of a query cannot be read", source=self._id, error=str(error))
        except TooManyRowsError as error:
            raise SourceFailed(str(error)) from error
        finally:
            connection.close()
            cut = incoming.cut()
            if cut is not None:
                log.info("a batch that was not whole was dropped", source=self._id, batch=cut)

    async def _finish(self, batches: SourceBatches) -> None:
        """Publish what was committed, from where it was left."""
        committed, out = batches.committed, self._out
        if committed is None or out is None:
            return
        self._query.batch_arrived()  # first: events come after the notice that all is well
        if committed.lost_from is not None and not committed.gap_announced:
            committed.gap_announced = True
            await out.publish(lost_batches(committed.lost_from, committed.batch))
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
        batches.committed = None

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
    return sink_source(own.sink.topic, context, query.run, query.details)
