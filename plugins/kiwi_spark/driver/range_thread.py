"""Runs a query over ranges of topics, in a thread of its own: once, and to its end."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kiwi_spark.driver import jvm
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.json_types import as_json
from kiwi_spark.driver.jvm_rows import SINK, RowsLink, scheduler_pool
from kiwi_spark.driver.range_errors import classify_range_error
from kiwi_spark.driver.range_inputs import TopicRange, fix_range, records, table_frame
from kiwi_spark.driver.range_schemas import kinds_of
from kiwi_spark.driver.range_stream import scratch_folder, streamed
from kiwi_spark.driver.run_thread import RunThread
from kiwi_spark.driver.session import Engine, LocalEngine
from kiwi_spark.protocol.messages import Message, QueryEnded, QueryStarted
from kiwi_spark.protocol.range_query import RangeQuery

_RELATION: Final = re.compile(r"'Unresolved(?:Relation|TableValuedFunction) \[([^\]]*)\]")
_NAMED: Final = re.compile(r"\bCTE \[([^\]]*)\]")


class RangeThread(RunThread):
    """Run one query over ranges."""

    def __init__(
        self,
        number: int,
        query: RangeQuery,
        engine: Engine,
        connect: Callable[[int], RowsLink],
        send: Callable[[Message], None],
    ) -> None:
        """connect: opens the connection for the rows of a run."""
        super().__init__(number, query.source, send)
        self._query = query
        self._engine = engine
        self._connect = connect

    def _why(self, error: Exception) -> QueryEnded | None:
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
                context = self._computing = spark.sparkContext
            context.setJobGroup(self._group, self._query.source)
            with scheduler_pool(context):
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
        if stream is None or not self._brought_as_stream(spark, stream, link, options):
            rows.write.format(SINK).options(**options).mode("append").save()

    def _brought_as_stream(
        self, spark: SparkSession, stream: DataFrame, link: RowsLink, options: Mapping[str, str]
    ) -> bool:
        """Run the rows as a stream, to its end. Return whether Spark has done so; if not, none were sent."""
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
            if error_kind == "query" and not self._is_stopping() and link.rows == 0:
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
