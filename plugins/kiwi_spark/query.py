"""Runs the query of a source: again and again, until it is over or can never work."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import structlog
import trio

from kiwi_gw.api import SourceContext, SourceFailed
from kiwi_spark.bad_records import BadRecords
from kiwi_spark.bridge import serve_bridge
from kiwi_spark.figures import count_batch
from kiwi_spark.resolve import resolve
from kiwi_spark.runs import Over, Run
from kiwi_spark.service import Spark
from kiwi_spark.settings import SparkSourceSettings
from kiwi_spark.spec import FINAL, Query
from kiwi_spark.wire import Idle, Progress, Started

log = structlog.get_logger("kiwi_spark")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a query that failed is started again: doubled each time, with jitter."""

TROUBLES: Final = {
    "user": "the query has failed and is started again",
    "gone": "the query has ended and is started again",
    "unreachable": "the Kafka cluster does not answer",
}
"""What subscribers are told; the log has Spark's words."""

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
    ("BridgeAway", "Spark does not reach this gateway"),
    ("Spark Connect server", "the Spark Connect server does not answer"),
    ("Python worker", "Spark's Python workers do not start"),
    ("has no schema", "an input has no record yet from which its schema can be inferred"),
    ("Schema Registry", "the Schema Registry does not answer"),
)
"""What else keeps a query from its input or output, by a word of the message."""

DRIVER_AWAY: Final = "Spark is started again"

Attend = Callable[[Run, Started], Awaitable[None]]
"""Does what is to be done while a query runs, and returns when it has ended."""


async def _wait(run: Run, started: Started) -> None:
    await run.ended()


class QueryRunner:
    """The query of one source. trouble: what keeps it from running, in words for subscribers. What Spark said
    the last time is for operators, and stays when it is over."""

    def __init__(self, settings: SparkSourceSettings, context: SourceContext, spark: Spark) -> None:
        self.trouble = ""
        self._wrong = ""
        self._runs = False
        self._last_error = ""
        self._late = 0
        self._last: Progress | None = None
        self._settings = settings
        self._context = context
        self._spark = spark
        self._tell: Callable[[str], None] = _nobody
        self._in_vain = 0
        self._fruitful = False
        self._bad = BadRecords(settings.id)

    async def run(self, tell: Callable[[str], None], attend: Attend = _wait) -> None:
        """Until the query is over by itself (trigger `available_now`). tell: told of its troubles.

        SourceFailed: it can never work, or failed too often in a row. What `attend` raises comes out.
        """
        self._tell, self.trouble, self._wrong, self._in_vain = tell, "", "", 0
        self._up(False)
        pause = FIRST_PAUSE
        while True:
            self._fruitful = False
            finite, over = await self._once(attend)
            if over.lost:
                self._say(DRIVER_AWAY)
                continue  # the service has its own pauses
            if over.trouble is None and finite:
                self._mended()  # over Connect nobody tells of a query that found nothing
                return
            self._judge(over)
            if self._fruitful:
                pause = FIRST_PAUSE
            await trio.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311  jitter, not a secret
            pause = min(pause * 2, LONGEST_PAUSE)

    def details(self) -> Mapping[str, str | int | float | None]:
        """For operators: how the driver and the query are, and what the last batch was."""
        driver, last = self._spark.driver, self._last
        known: dict[str, str | int | float | None] = {
            "driver": driver.state.value,
            "driverPid": driver.pid or None,
            "driverDeaths": driver.deaths,
            "spark": driver.spark or None,
            "query": "running" if self._runs else "not running",
            "trouble": self.trouble or None,
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

    def brought(self) -> None:
        """A batch has come through: what was wrong is over."""
        self._fruitful = True
        self._mended()

    async def _once(self, attend: Attend) -> tuple[bool, Over]:
        """One run of the query: whether it is one that ends by itself, and why it ended."""
        await self._spark.driver.ready()
        query = await self._resolve(self._spark.driver.bridge_path())
        async with self._bridge(query), self._spark.run(query, self._told) as run:
            started = await run.started()
            if isinstance(started, Over):
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
        self._context.figures.set("spark_query_up", runs)

    async def _resolve(self, bridge: str) -> Query:
        context = self._context
        ask = partial(resolve, self._settings, context.plugins, fresh=context.altered, bridge=bridge)
        return await trio.to_thread.run_sync(ask, limiter=self._spark.threads)

    @asynccontextmanager
    async def _bridge(self, query: Query) -> AsyncIterator[None]:
        """The sources that only the gateway has are there for the query while the block runs."""
        path = next((item.bridge for item in query.streams.values() if item.bridge), "")
        if not path:
            yield
            return
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_bridge, path, self._spark.driver.token, self._context.read)
            yield
            nursery.cancel_scope.cancel()

    def _judge(self, over: Over) -> None:
        """What a query's end means for the source. SourceFailed: it is over."""
        trouble = over.trouble or "gone"
        self._last_error = f"{trouble}: {over.message}" if over.message else trouble
        if trouble in FINAL:
            raise SourceFailed(over.message or f"Spark has ended the query ({trouble})")
        self._wrong = _words(trouble, over.message)
        self._say(self._wrong)
        if self._fruitful:
            self._in_vain = 0
        elif trouble != "unreachable":  # that is waited for, and is not the query's fault
            self._in_vain += 1
        if self._in_vain > self._spark.max_restarts:
            raise SourceFailed(f"the query failed {self._in_vain} times in a row: {over.message}")
        log.warning(
            "query has ended and is started again",
            source=self._settings.id,
            trouble=trouble,
            message=over.message,
            in_vain=self._in_vain,
        )

    def _mended(self) -> None:
        """Note that nothing is wrong with the query any more."""
        self._wrong = ""
        self._say("")

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._tell(trouble)

    def _told(self, progress: Progress | Idle) -> None:
        """Hear that a micro-batch is done, or that there was no input for one: what kept it from its input is
        over."""
        if isinstance(progress, Idle):
            if self._wrong != TROUBLES["user"]:  # its functions have had nothing to do
                self._mended()
            return
        self.brought()
        self._last = progress
        self._late += progress.late
        count_batch(self._context.figures, progress)
        self._bad.seen(progress.batch, progress.bad, progress.bad_sample)
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
    """What subscribers are told of a trouble that may be over some time."""
    other = [words for mark, words in _NOT_KAFKA if mark in message] if trouble == "unreachable" else []
    return other[0] if other else TROUBLES[trouble]


def _nobody(trouble: str) -> None:
    """Who is told before it runs."""
