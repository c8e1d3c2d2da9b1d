"""Runs queries: one `Run` for each, told to start and to stop, telling how it goes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kiwi_spark.driver import jvm
from kiwi_spark.driver.batches import RowsLink, ToGateway
from kiwi_spark.driver.checkpoints import Checkpoints, Files, Place, note_of_provider
from kiwi_spark.driver.collecting import collected
from kiwi_spark.driver.files import HadoopFiles
from kiwi_spark.driver.forms import as_json, members_of
from kiwi_spark.driver.intervals import interval
from kiwi_spark.driver.plans import build
from kiwi_spark.driver.progress import Listener, follow
from kiwi_spark.driver.remote import PROVIDER
from kiwi_spark.driver.remote_files import SparkFiles
from kiwi_spark.driver.session import Engine
from kiwi_spark.driver.to_topic import ToTopic, begun
from kiwi_spark.driver.troubles import NoSink, trouble_of
from kiwi_spark.driver.turns import turn
from kiwi_spark.frames import Message
from kiwi_spark.spec import Query
from kiwi_spark.wire import Ended, Progress, Started

_LAST_WORDS_SECONDS: Final = 2.0
_RESULTS: Final = uuid.UUID("3f1d9d0e-58a5-4c1e-9a3f-6d7c2f0b8a11")
_start_lock = threading.Lock()
"""Starting the callback server of py4j is not for two threads at once."""


class Run:
    """One run of a query, with a thread of its own. `tell` is called from several threads."""

    def __init__(
        self,
        number: int,
        query: Query,
        engine: Engine,
        connect: Callable[[str], RowsLink],
        token: str,
        tell: Callable[[Message], None],
    ) -> None:
        """connect: makes the `rows` connection of a role."""
        self.number = number
        self._query = query
        self._engine = engine
        self._connect = connect
        self._token = token
        self._tell = tell
        self._lock = threading.Lock()
        self._stopping = False
        self._link: RowsLink | None = None
        self._sink: ToGateway | ToTopic | None = None
        self._running: StreamingQuery | None = None
        self._computing: SparkContext | None = None
        self._group = f"run {number}"
        self._members = ""
        self._thread = threading.Thread(target=self._work, name=f"query {query.source}", daemon=True)

    def start(self) -> None:
        """Begin. Started and Ended, or Ended alone, are told."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when it is over, and Ended was told. From any thread, any number of times."""
        with self._lock:
            self._stopping = True
            link, running, computing = self._link, self._running, self._computing
        if link is not None:
            link.close()  # first: the query may be waiting for the gateway
        if running is not None:
            self._ask_to_stop(running)
        if computing is not None:  # a result of tables: it may take an hour
            java: Any = computing._jsc
            java.sc().cancelJobGroupAndFutureJobs(self._group)
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
        ended: Ended | None = Ended(run=self.number)
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  (every error of a query is told to the gateway)
            if not self._is_stopping():
                ended = self._why(error)
        finally:
            if self._link is not None:
                self._link.close()
            if ended is not None:
                self._tell(ended)

    def _why(self, error: Exception) -> Ended | None:
        """What the gateway is told of an error. None: nothing, for it will find the whole driver gone."""
        failure = self._sink.failure if self._sink is not None else None
        if jvm.is_why(failure or error):
            return None
        trouble, message = trouble_of(failure or error)
        return Ended(run=self.number, trouble=trouble, message=message)

    def _run(self) -> None:
        with self._engine.session(self._query) as spark:
            if is_remote():
                self._run_remote(spark)
            else:
                self._run_here(spark)

    def _run_here(self, spark: SparkSession) -> None:
        query = self._query
        files = HadoopFiles(spark)
        rows, place = self._prepare(spark, files)
        place.notes.extend(note_of_provider(files, place, PROVIDER, str(spark.conf.get(PROVIDER))))
        if not rows.isStreaming:
            self._compute(rows)
            return
        listener = Listener(self.number, list(query.streams), self._tell)
        spark.streams.addListener(listener)
        try:
            self._stream(spark, files, rows, place)
        finally:
            if self._running is not None:  # of the last batch Spark tells a moment later
                listener.over.wait(_LAST_WORDS_SECONDS)
            spark.streams.removeListener(listener)

    def _compute(self, rows: DataFrame) -> None:
        """Bring a result that reads no stream, as one batch: the same one whenever it is brought again."""
        query = self._query
        with self._lock:
            if self._stopping:
                return
            link = self._link = self._connect(str(self.number))
            spark = self._computing = rows.sparkSession.sparkContext
        spark.setJobGroup(self._group, query.source)
        known_as = str(uuid.uuid5(_RESULTS, f"{query.checkpoint}\n{query.source}"))
        self._tell(Started(run=self.number, query=known_as, next_batch=0, members=self._members))
        began = time.monotonic()
        with turn(spark):
            # Where there is no room for them they are computed twice, and nothing is written.
            found = collected(rows, query.batch_bytes, StorageLevel.MEMORY_ONLY)
        link.deliver(known_as, 0, time.time_ns() // 1_000_000, found)
        seconds = time.monotonic() - began
        self._tell(Progress(run=self.number, batch=0, input_rows=found.num_rows, seconds=seconds))

    def _stream(self, spark: SparkSession, files: HadoopFiles, rows: DataFrame, place: Place) -> None:
        """Run the query to its end. Raises what ended it."""
        query = self._query
        writer = self._writer(rows, place)
        with self._lock:
            if self._stopping:
                return
            if query.sink is None:
                self._link = self._connect(str(self.number))
        if query.sink is not None:
            before = begun(files, place.path, place.next_batch)
            self._sink = ToTopic(query.sink, files, place.path, before)
        elif self._link is not None:
            self._sink = ToGateway(self._link, query)
        with _start_lock:
            if self._sink is not None:
                writer = writer.foreachBatch(self._sink)
            running = writer.start()
        self._runs(running, place)
        running.awaitTermination()

    def _run_remote(self, spark: SparkSession) -> None:
        """Over Spark Connect. `foreachBatch` would run in a Python of the server's machine, which need not be
        ours nor have these modules: Spark's own sink writes."""
        query = self._query
        if query.sink is None:
            raise NoSink("over Spark Connect a query needs a sink: {topic: ...}")
        rows, place = self._prepare(spark, SparkFiles(spark))
        writer = self._writer(rows, place).format("kafka").options(**query.sink.options)
        with self._lock:
            if self._stopping:
                return
        running = writer.option("topic", query.sink.topic).start()
        self._runs(running, place)
        follow(running, self.number, list(query.streams), self._tell)

    def _prepare(self, spark: SparkSession, files: Files) -> tuple[DataFrame, Place]:
        """The rows in JSON, and where the query goes on."""
        query = self._query
        checkpoints = Checkpoints(files, query.checkpoint, query.source, spark.version)
        known = checkpoints.schemas()
        built = build(spark, query, self._token, known, elsewhere=self._engine.elsewhere)
        rows = as_json(built.frame, query.key)
        self._members = members_of(built.frame.schema)
        if not rows.isStreaming:
            return rows, Place("", 0, [])
        return rows, checkpoints.take(query, built.stateful, built.schemas)

    def _writer(self, rows: DataFrame, place: Place) -> DataStreamWriter:
        query = self._query
        writer = rows.writeStream.queryName(query.source).outputMode(query.output_mode)
        writer = writer.option("checkpointLocation", place.path)
        if query.trigger:
            return writer.trigger(processingTime=interval(query.trigger))
        return writer.trigger(availableNow=True)

    def _runs(self, running: StreamingQuery, place: Place) -> None:
        self._tell(
            Started(
                run=self.number,
                query=running.id,
                next_batch=place.next_batch,
                notes=place.notes,
                members=self._members,
            )
        )
        with self._lock:
            self._running = running
        if self._is_stopping():  # since before there was anything to stop
            self._ask_to_stop(running)
