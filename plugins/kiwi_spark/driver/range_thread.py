"""Runs a query over ranges of topics, in a thread of its own: once, and to its end."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kiwi_spark.driver import jvm
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.json_types import as_json
from kiwi_spark.driver.jvm_rows import SINK, RowsLink, scheduler_pool
from kiwi_spark.driver.range_errors import classify_range_error
from kiwi_spark.driver.range_inputs import TopicRange, fix_range, records, table_frame
from kiwi_spark.driver.range_schemas import kinds_of
from kiwi_spark.driver.range_stream import scratch_folder, streamed
from kiwi_spark.driver.session import Engine, LocalEngine
from kiwi_spark.protocol.messages import Message, QueryEnded, QueryStarted
from kiwi_spark.protocol.range_query import RangeQuery

_AGAIN_SECONDS: Final = 0.1
_RELATION: Final = re.compile(r"'Unresolved(?:Relation|TableValuedFunction) \[([^\]]*)\]")
_NAMED: Final = re.compile(r"\bCTE \[([^\]]*)\]")


class RangeThread:
    """One run of a query. `send` is called from several threads."""

    def __init__(
        self,
        number: int,
        query: RangeQuery,
        engine: Engine,
        connect: Callable[[int], RowsLink],
        send: Callable[[Message], None],
    ) -> None:
        """connect: opens the connection for the rows of a run."""
        self.number = number
        self._query = query
        self._engine = engine
        self._connect = connect
        self._send = send
        self._lock = threading.Lock()
        self._stopping = False
        self._link: RowsLink | None = None
        self._context: SparkContext | None = None
        self._running: StreamingQuery | None = None
        self._group = f"run {number}"
        self._thread = threading.Thread(target=self._work, name=f"ranges {query.source}", daemon=True)

    def start(self) -> None:
        """Begin. QueryStarted and QueryEnded, or QueryEnded alone, are sent."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when it is over, and QueryEnded was sent. From any thread, any number of times."""
        with self._lock:
            self._stopping = True
            link, context, running = self._link, self._context, self._running
        if link is not None:
            link.close()  # first: it may be waiting for the gateway
        if running is not None:
            self._ask_to_stop(running)
        if context is not None:
            java: Any = context._jsc
            while self._thread.is_alive():
                # Again and again: Spark runs parts of a query to plan the others, and begins some of those
                # also in a group that was cancelled.
                java.sc().cancelJobGroupAndFutureJobs(self._group)
                self._thread.join(_AGAIN_SECONDS)
        self._thread.join()

    def _ask_to_stop(self, running: StreamingQuery) -> None:
        try:
            running.stop()
        except Exception as error:  # noqa: BLE001  (it ends all the same; what it died of no longer matters)
            print(f"{self._query.source}: while it was stopped: {error}", flush=True)

    def _is_stopping(self) -> bool:
        with self._lock:
            return self._stopping

    def _work(self) -> None:
        ended: QueryEnded | None = QueryEnded(run=self.number)
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  (every error of a query is sent to the gateway)
            if not self._is_stopping():
                ended = self._why(error)
        finally:
            if self._link is not None:
                self._link.close()
            if ended is not None:
                self._send(ended)

    def _why(self, error: Exception) -> QueryEnded | None:
        """Return what the gateway is sent of an error. None: it will find the whole driver gone."""
        if jvm.is_why(error):
            return None
        error_kind, message = classify_range_error(error, self._query)
        return QueryEnded(run=self.number, error_kind=error_kind, message=message)

    def _run(self) -> None:
        if not isinstance(self._engine, LocalEngine):
            raise QueryError("query", "over Spark Connect there are no such queries")
        cores = self._engine.cores
        with self._engine.lent_session() as spark:
            with self._lock:
                if self._stopping:
                    return
                self._context = spark.sparkContext
            self._context.setJobGroup(self._group, self._query.source)
            with scheduler_pool(self._context):
                check_sql(spark, self._query)
                ranges = self._ranges(spark)
                rows, stream = self._frames(spark, ranges, cores)
            self._bring(spark, rows, stream)

    def _ranges(self, spark: SparkSession) -> dict[str, TopicRange]:
        """Fix what is read. QueryError: it is too much."""
        ranges = {name: fix_range(spark, table) for name, table in self._query.tables.items()}
        wanted = sum(one.offsets for one in ranges.values())
        if wanted > self._query.offsets:
            raise QueryError(
                "query",
                f"the query reads {wanted:,} offsets, and {self._query.offsets:,} is the most: "
                "narrow it by `timestamp`, `offset` or `partition`",
            )
        return ranges

    def _frames(
        self, spark: SparkSession, ranges: Mapping[str, TopicRange], cores: int
    ) -> tuple[DataFrame, DataFrame | None]:
        """Make the rows of the result, and the same as a stream where that is asked for and can be."""
        query = self._query
        kinds = {}
        for name, table in query.tables.items():
            kinds[name] = kinds_of(spark, table, ranges[name], query.sql, cores)
            raw = records(spark, table, ranges[name], cores)
            table_frame(raw, table, query.sql, kinds[name]).createOrReplaceTempView(name)
        rows = as_json(spark.sql(query.sql), query.key, apart=True)
        if not query.live or not all(one.begin for one in ranges.values()):
            return rows, None
        return rows, streamed(spark, query, ranges, kinds, cores)

    def _bring(self, spark: SparkSession, rows: DataFrame, stream: DataFrame | None) -> None:
        """Bring the result: as one batch, or in several, where it can be a stream."""
        with self._lock:
            if self._stopping:
                return
            link = self._link = self._connect(self.number)
        known_as = str(uuid.uuid4())
        self._send(QueryStarted(run=self.number, query=known_as, next_batch=0))
        options = {**link.options(self._query.result_bytes), "query": known_as}
        if stream is None or not self._brought_as_stream(spark, stream, options):
            rows.write.format(SINK).options(**options).mode("append").save()

    def _brought_as_stream(self, spark: SparkSession, stream: DataFrame, options: Mapping[str, str]) -> bool:
        """Run the rows as a stream, to its end. Return whether Spark has done so; if not, none were sent."""
        assert self._link is not None  # noqa: S101  it was opened for them
        try:
            with scratch_folder(spark, self._query, distributed=self._engine.distributed) as folder:
                writer = stream.writeStream.format(SINK).options(**options).outputMode("update")
                running = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
                with self._lock:
                    self._running = running
                if self._is_stopping():  # since before there was anything to stop
                    self._ask_to_stop(running)
                running.awaitTermination()
        except Exception as error:
            error_kind, _ = classify_range_error(error, self._query)
            if error_kind == "query" and not self._is_stopping() and self._link.rows == 0:
                print(f"{self._query.source}: not as a stream: {error}", flush=True)
                return False
            raise
        return True


def check_sql(spark: SparkSession, query: RangeQuery) -> None:
    """Raise, before Spark does anything of it, if a text is more than a SELECT over the tables of the query:
    the gateway has written it, and this does not rely on that."""
    session: Any = spark._jsparkSession
    plan = str(session.sessionState().sqlParser().parseQuery(query.sql).toString())
    own = {name.strip() for found in _NAMED.findall(plan) for name in found.split(",")}
    others = set(_RELATION.findall(plan)) - own - set(query.tables)
    if others:
        raise QueryError("query", f"the query reads {', '.join(sorted(others))}, which is none of its tables")
