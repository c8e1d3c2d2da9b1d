"""Runs the query of one source again and again until it is over, and says how it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import structlog
import trio

from kiwi_gw.api import Backoff, SourceContext, SourceFailed
from kiwi_spark.gateway.metrics import count_batch
from kiwi_spark.gateway.query_run import Progress, QueryRun, RunEnd
from kiwi_spark.gateway.resolve import resolve
from kiwi_spark.gateway.schema_fit import SchemaFit
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.gateway.settings import SparkSourceSettings
from kiwi_spark.protocol.messages import BatchProgress, QueryReads, QueryStarted
from kiwi_spark.protocol.query_spec import FINAL

log = structlog.get_logger("kiwi_spark")

DEGRADED_BY: Final = {
    "user": "the query has failed and is started again",
    "gone": "the query has ended and is started again",
    "unreachable": "the Kafka cluster does not answer",
}
"""What notices say, by kind of error; the log has Spark's words."""

_NOT_KAFKA: Final = (
    ("another process writes", "another gateway runs the query, and is waited for"),
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


class QuerySupervisor:
    """The query of one source. degraded: what keeps it from running, or its records from being read, in words
    for subscribers. What Spark said the last time is for operators, and stays when it is over."""

    def __init__(self, settings: SparkSourceSettings, context: SourceContext, spark: SparkService) -> None:
        self.degraded = ""
        self._wrong = ""
        self._runs = False
        self._last_error = ""
        self._mode = ""
        self._late = 0
        self._last: BatchProgress | None = None
        self._settings = settings
        self._context = context
        self._spark = spark
        self._tell: Callable[[str], None] = lambda trouble: None  # it does not run yet
        self._failures_in_a_row = 0
        self._made_progress = False
        self._bad_records = 0
        self._fit = SchemaFit()

    @property
    def reachable(self) -> bool:
        """Return whether nothing keeps the query from running."""
        return self.degraded in ("", self._fit.trouble)

    async def run(self, tell: Callable[[str], None], attend: Attend) -> None:
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

    async def run_beside(self, tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        """Run the query while its results are read elsewhere (`sink.RunQuery`). Raises as `run`."""

        async def attend(run: QueryRun, started: QueryStarted) -> None:
            begun()
            await run.ended()

        await self.run(tell, attend)
        begun()

    def details(self) -> Mapping[str, str | int | float | None]:
        """Return, for operators, how the driver and the query are, and what the last batch was."""
        driver, last = self._spark.driver, self._last
        known: dict[str, str | int | float | None] = {
            "driver": driver.state.value,
            "driverPid": driver.pid or None,
            "driverDeaths": driver.deaths,
            "spark": driver.spark or None,
            "query": "running" if self._runs else "not running",
            "mode": self._mode or None,
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
        """Note that a batch (or an epoch) has come through: what was wrong is over."""
        self._made_progress = True
        self._recovered()

    def rows_arrived(self) -> None:
        """Note that a query in real time has brought rows that had not come before. That is no progress yet:
        before the epoch is done it may fail at one record again and again."""
        self._recovered()

    def input_found(self) -> None:
        """Note that there is nothing between the query and its input."""
        if self._wrong != DEGRADED_BY["user"]:  # its functions have had nothing to do
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
            self._mode = "real time" if started.real_time else "micro-batches"
            log.info("query runs", source=query.source, mode=self._mode)
            for note in started.notes:
                log.info("query starts", source=query.source, note=note)
            self._say(
                self._wrong or self._fit.trouble
            )  # the driver is back; what is wrong with the query is not over yet
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
        """Note that nothing is wrong with the query any more. (With its input there may be.)"""
        self._wrong = ""
        self._say(self._fit.trouble)

    def _say(self, trouble: str) -> None:
        if trouble != self.degraded:
            self.degraded = trouble
            self._tell(trouble)

    def _on_progress(self, progress: Progress) -> None:
        """Note that a micro-batch is done, that there was no input for one, or how a query in real time with
        a sink does: what kept it from its input is over."""
        if not isinstance(progress, BatchProgress):
            self.input_found()
            if isinstance(progress, QueryReads) and progress.writes:
                self.rows_arrived()
            return
        self._fit.note(progress.input_rows, progress.bad)
        self.batch_arrived()
        self._last = progress
        self._late += progress.late
        count_batch(self._context.metrics, progress)
        if progress.bad:
            self._log_bad(progress)
        log.debug(
            "micro-batch",
            source=self._settings.id,
            batch=progress.batch,
            rows=progress.input_rows,
            seconds=progress.seconds,
            state_rows=progress.state_rows,
            watermark=progress.watermark,
        )

    def _log_bad(self, progress: BatchProgress) -> None:
        self._bad_records += progress.bad
        none = {"note": self._fit.trouble} if self._fit.trouble else {}
        because = {"because": progress.bad_because} if progress.bad_because else {}
        log.warning(
            "records could not be decoded",
            source=self._settings.id,
            batch=progress.batch,
            count=progress.bad,
            of=progress.input_rows,
            total=self._bad_records,
            sample=progress.bad_sample,
            **because,
            **none,
        )


def _words(trouble: str, message: str) -> str:
    """Return what notices say of an error that may pass."""
    other = [words for mark, words in _NOT_KAFKA if mark in message] if trouble == "unreachable" else []
    return other[0] if other else DEGRADED_BY[trouble]
