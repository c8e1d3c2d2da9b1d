"""The results of a query as a source, and what runs the query again and again until it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, cast

import structlog
import trio

from kiwi_gw.api import (
    Backoff,
    Positions,
    Publisher,
    Section,
    Source,
    SourceChanged,
    SourceContext,
    SourceFailed,
    SourceStatistics,
)
from kiwi_spark.gateway.batches import (
    BatchSpool,
    IncomingBatches,
    SourceBatches,
    lost_batches,
    offset_of,
    row_batches,
)
from kiwi_spark.gateway.driver_supervisor import DriverState, MessageConnection
from kiwi_spark.gateway.metrics import count_batch
from kiwi_spark.gateway.resolve import resolve
from kiwi_spark.gateway.service import QueryRun, RunEnd, SparkService
from kiwi_spark.gateway.settings import SparkSourceSettings
from kiwi_spark.gateway.sink import sink_source, writes_here
from kiwi_spark.protocol.messages import BatchProgress, BatchTaken, QueryIdle, QueryStarted, WireError
from kiwi_spark.protocol.query_spec import FINAL

log = structlog.get_logger("kiwi_spark")

DEGRADED_BY: Final = {
    "user": "the query has failed and is started again",
    "gone": "the query has ended and is started again",
    "unreachable": "the Kafka cluster does not answer",
}
"""What notices say, by kind of error; the log has Spark's words."""

_NOT_KAFKA: Final = (
    ("UnknownTopicOrPartition", "a Kafka topic of the query does not exist, and is waited for"),
    (
        "not present in metadata",
        "the topic of the results does not exist, or Kafka does not answer",
    ),
    ("TopicAuthorization", "Kafka does not let Spark use a topic of the query"),
    ("GroupAuthorization", "Kafka does not let Spark use a topic of the query"),
    ("SaslAuthentication", "Kafka does not accept Spark's name and password"),
    ("SslAuthentication", "Kafka and Spark do not accept each other's certificates"),
    ("Spark Connect server", "the Spark Connect server does not answer"),
    ("Python worker", "Spark's Python workers do not start"),
    ("has no schema", "an input has no record yet from which its schema can be inferred"),
    ("Schema Registry", "the Schema Registry does not answer"),
)
"""What else keeps a query from its input or output, by a word of the message."""

DRIVER_AWAY: Final = "Spark is started again"

Attend = Callable[[QueryRun, QueryStarted], Awaitable[None]]
"""Does what is to be done while a query runs, and returns when it has ended."""


async def _wait(run: QueryRun, started: QueryStarted) -> None:
    await run.ended()


class QuerySupervisor:
    """The query of one source. degraded: what keeps it from running, in words for subscribers. What Spark
    said the last time is for operators, and stays when it is over."""

    def __init__(self, settings: SparkSourceSettings, context: SourceContext, spark: SparkService) -> None:
        self.degraded = ""
        self._wrong = ""
        self._runs = False
        self._last_error = ""
        self._late = 0
        self._last: BatchProgress | None = None
        self._settings = settings
        self._context = context
        self._spark = spark
        self._tell: Callable[[str], None] = lambda trouble: None  # it does not run yet
        self._failures_in_a_row = 0
        self._made_progress = False
        self._bad_records = 0

    async def run(self, tell: Callable[[str], None], attend: Attend = _wait) -> None:
        """Run the query until it is over by itself (trigger `available_now`). tell: called with what degrades
        it, and with "" when that is over.

        SourceFailed: it can never work, or failed too often in a row. What `attend` raises comes out.
        """
        self._tell, self.degraded, self._wrong, self._failures_in_a_row = tell, "", "", 0
        self._up(False)
        backoff = Backoff()
        while True:
            self._made_progress = False
            finite, over = await self._once(attend)
            if over.lost:
                self._say(DRIVER_AWAY)
                continue  # the service has its own pauses
            if over.error_kind is None and finite:
                self._recovered()  # over Connect nothing is reported of a query that found nothing
                return
            self._handle_end(over)
            if self._made_progress:
                backoff.reset()
            await trio.sleep(backoff.next())

    def details(self) -> Mapping[str, str | int | float | None]:
        """Return, for operators, how the driver and the query are, and what the last batch was."""
        driver, last = self._spark.driver, self._last
        known: dict[str, str | int | float | None] = {
            "driver": driver.state.value,
            "driverPid": driver.pid or None,
            "driverDeaths": driver.deaths,
            "spark": driver.spark or None,
            "query": "running" if self._runs else "not running",
            "trouble": self.degraded or None,
            "lastError": self._last_error or None,
        }
        if last is not None:
            known |= {
                "batch": last.batch,
                "inputRows": last.input_rows,
                "batchSeconds": last.seconds,
                "stateRows": last.state_rows,
                "stateBytes": last.state_bytes,
                "lateRows": self._late,
                "behindNewest": last.behind,
                "watermark": last.watermark,
            }
        return known

    def batch_arrived(self) -> None:
        """Note that a batch has come through: what was wrong is over."""
        self._made_progress = True
        self._recovered()

    async def _once(self, attend: Attend) -> tuple[bool, RunEnd]:
        """Run the query once. Returns whether it is one that ends by itself, and why it ended."""
        await self._spark.driver.ready()
        ask = partial(resolve, self._settings, self._context.plugins, fresh=self._context.altered)
        query = await trio.to_thread.run_sync(ask, limiter=self._spark.threads)
        async with self._spark.run(query, self._on_progress) as run:
            started = await run.started()
            if isinstance(started, RunEnd):
                return not query.trigger, started
            for note in started.notes:
                log.info("query starts", source=query.source, note=note)
            self._say(self._wrong)  # the driver is back; what is wrong with the query is not over yet
            self._up(True)
            try:
                await attend(run, started)
                return not query.trigger, await run.ended()
            finally:
                self._up(False)

    def _up(self, runs: bool) -> None:
        self._runs = runs
        self._context.metrics.set("spark_query_up", runs)

    def _handle_end(self, over: RunEnd) -> None:
        """Decide what the end of a run means for the source. SourceFailed: it is over."""
        trouble = over.error_kind or "gone"
        self._last_error = f"{trouble}: {over.message}" if over.message else trouble
        if trouble in FINAL:
            raise SourceFailed(over.message or f"Spark has ended the query ({trouble})")
        self._wrong = _words(trouble, over.message)
        self._say(self._wrong)
        if self._made_progress:
            self._failures_in_a_row = 0
        elif trouble != "unreachable":  # that is waited for, and is not the query's fault
            self._failures_in_a_row += 1
        if self._failures_in_a_row > self._spark.max_restarts:
            raise SourceFailed(f"the query failed {self._failures_in_a_row} times in a row: {over.message}")
        log.warning(
            "query has ended and is started again",
            source=self._settings.id,
            trouble=trouble,
            message=over.message,
            in_vain=self._failures_in_a_row,
        )

    def _recovered(self) -> None:
        """Note that nothing is wrong with the query any more."""
        self._wrong = ""
        self._say("")

    def _say(self, trouble: str) -> None:
        if trouble != self.degraded:
            self.degraded = trouble
            self._tell(trouble)

    def _on_progress(self, progress: BatchProgress | QueryIdle) -> None:
        """Note that a micro-batch is done, or that there was no input for one: what kept it from its input is
        over."""
        if isinstance(progress, QueryIdle):
            if self._wrong != DEGRADED_BY["user"]:  # its functions have had nothing to do
                self._recovered()
            return
        self.batch_arrived()
        self._last = progress
        self._late += progress.late
        count_batch(self._context.metrics, progress)
        if progress.bad:
            self._bad_records += progress.bad
            log.warning(
                "records could not be decoded",
                source=self._settings.id,
                batch=progress.batch,
                count=progress.bad,
                total=self._bad_records,
                sample=progress.bad_sample,
            )
        log.debug(
            "micro-batch",
            source=self._settings.id,
            batch=progress.batch,
            rows=progress.input_rows,
            seconds=progress.seconds,
            state_rows=progress.state_rows,
            watermark=progress.watermark,
        )


def _words(trouble: str, message: str) -> str:
    """Return what notices say of an error that may pass."""
    other = [words for mark, words in _NOT_KAFKA if mark in message] if trouble == "unreachable" else []
    return other[0] if other else DEGRADED_BY[trouble]


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
        self._batches = spark.batches(self._id)
        self._out: Publisher
        self._start: Positions | None = None
        self._ready = False

    def statistics(self) -> SourceStatistics:
        """Return whether the query can run (`reachable`). How far it is behind only Spark knows."""
        reachable = self._spark.driver.state is DriverState.READY and not self._query.degraded
        return SourceStatistics(reachable=reachable, details=self._query.details())

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Run the query. SourceFailed: it can never work, or failed too often. SourceChanged: its checkpoint
        is another one, or part of a batch was published and the rest of it is not known any more."""
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
        if not self._ready and self._start is None:  # who had this id before has let go of it by now
            self._batches.clear()
        self._batches.enter(self)
        self._batches.resume(started, self._start)
        self._out.describe(started.members)
        if not self._ready:
            self._ready = True
            await self._be_ready(self._batches)
        await self._finish()
        while (connection := await run.rows()) is not None:
            await self._receive(connection)

    async def _be_ready(self, batches: SourceBatches) -> None:
        at = 0 if self._start is None else self._start[0]
        next_at = offset_of(batches.next, 0)
        if batches.committed is not None:
            next_at = offset_of(batches.committed.batch, 0)
            batches.committed.published = max(0, at - next_at)
        await self._out.ready({0: max(next_at, at)})
        if self._query.degraded:  # being ready means to be out of trouble, and this is not over
            self._out.report_degraded(self._query.degraded)

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
    return sink_source(own.sink.topic, context, query.run, query.details)
