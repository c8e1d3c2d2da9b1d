"""A query over whole sources as a source: there for one client, and over with its result."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Final, cast

import structlog
import trio

from kiwi_gw.api import EngineQuery, Positions, Publisher, QueryEngine, SourceContext, SourceFailed
from kiwi_spark.gateway.driver_supervisor import MessageConnection
from kiwi_spark.gateway.engine_query import refusal, resolve_query
from kiwi_spark.gateway.query_result import QueryResult
from kiwi_spark.gateway.query_run import QueryRun, RunEnd
from kiwi_spark.gateway.rows import result_batches
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.gateway.sink import SINK_SCHEMA
from kiwi_spark.protocol.messages import BatchTaken, WireError
from kiwi_spark.protocol.range_query import RangeQuery

log = structlog.get_logger("kiwi_spark")

LOST: Final = "Spark has ended while the query ran; try again"
FAILED: Final = "Spark could not run the query; the log of the gateway says why"
_NO_ROOM: Final = "there is no room for the result"

_WORDS: Final = {
    "unreachable": "the Kafka cluster does not answer",
    "data_loss": "events were deleted while the query read them; try again",
    "no_space": "there is no room for the query where Spark runs",
}
"""What clients are told, by kind of error; the log has Spark's words."""

_NOT_KAFKA: Final = (
    ("UnknownTopicOrPartition", "a Kafka topic of the query does not exist"),
    ("Authorization", "Kafka does not let Spark read a topic of the query"),
    ("SaslAuthentication", "Kafka does not accept Spark's name and password"),
    ("SslAuthentication", "Kafka and Spark do not accept each other's certificates"),
)
"""What else keeps a query from its topics, by a word of the message."""


class EngineSource:
    """The rows of one query. What the driver brings is taken as it comes, and published as the client takes
    it."""

    def __init__(self, query: EngineQuery, context: SourceContext) -> None:
        self._query = query
        self._context = context
        self._spark = cast("SparkService", context.services["spark"])

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Run the query, from its beginning, and publish its result. SourceFailed: there is none, and why."""
        ask = partial(resolve_query, self._context.source_id, self._query, self._context.plugins)
        query = await trio.to_thread.run_sync(ask, limiter=self._spark.threads)
        result = QueryResult(self._spark.budget, self._query.limits.result_bytes)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._bring, query, result)
                await self._publish(publisher, result)
        finally:
            result.close()
        if result.problem:
            raise SourceFailed(result.problem)

    async def _bring(self, query: RangeQuery, result: QueryResult) -> None:
        """Have the driver run the query, and keep what comes. Its time begins when it does."""
        seconds = self._query.limits.seconds
        try:
            async with self._spark.compute(query) as run:
                with trio.move_on_after(seconds) as limit:
                    result.end(await self._receive(run, result))
                if limit.cancelled_caught:
                    result.end(f"the query was not done within {seconds:g} s")
        except SourceFailed as error:
            result.end(str(error))
        except OSError as error:
            log.error("no room for a result", source=query.source, error=str(error))
            result.end(_NO_ROOM)

    async def _receive(self, run: QueryRun, result: QueryResult) -> str:
        """Take all that comes. Return why there is no result; empty if there is."""
        started = await run.started()
        if isinstance(started, RunEnd):
            return self._why(started)
        result.begin()
        while (connection := await run.rows()) is not None:
            try:
                await _take_all(connection, result)
            except WireError as error:
                log.error(
                    "the rows of a query cannot be read", source=self._context.source_id, error=str(error)
                )
                return FAILED
            finally:
                connection.close()
        return self._why(await run.ended())

    def _why(self, over: RunEnd) -> str:
        if over.lost:
            return LOST
        if over.error_kind is None or over.error_kind == "query":
            return over.message
        log.warning(
            "a query of a client has failed",
            source=self._context.source_id,
            trouble=over.error_kind,
            message=over.message,
        )
        if over.error_kind == "unreachable":
            for mark, words in _NOT_KAFKA:
                if mark in over.message:
                    return words
        return _WORDS.get(over.error_kind, FAILED)

    async def _publish(self, out: Publisher, result: QueryResult) -> None:
        if not await result.wait_begun():
            return
        await out.ready({0: 0})
        row = 0
        async with aclosing(result.parts(self._spark.threads)) as parts:
            async for part, timestamp in parts:
                for piece in result_batches(part, timestamp, row):
                    await out.publish(piece)
                    row += len(piece)


async def _take_all(connection: MessageConnection, result: QueryResult) -> None:
    while (message := await connection.receive()) is not None:
        ended = await result.take(message)
        if ended is not None:
            await connection.send(BatchTaken(batch=ended))


ENGINE: Final = QueryEngine(
    schema=SINK_SCHEMA,  # the same members: a place, a time, key and value as JSON
    services=("spark",),
    refusal=refusal,
    build=EngineSource,
    # A JVM and its session, then the turns of eight others, two at a time, a minute each, and its own.
    start_ms=115_000 + 5 * 60_000,
)
