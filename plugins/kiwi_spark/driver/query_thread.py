"""Runs queries: each in a thread of its own, which reports how it goes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kiwi_spark.driver import jvm
from kiwi_spark.driver.bad_records import BadRecordCounter
from kiwi_spark.driver.checkpoint_files import CheckpointFiles, files_of
from kiwi_spark.driver.checkpoints import Checkpoints, ResumePoint
from kiwi_spark.driver.error_classification import QueryError, classify_error
from kiwi_spark.driver.json_types import as_json, members_of
from kiwi_spark.driver.jvm_rows import SINK, RowsLink, TopicLink, query_reports
from kiwi_spark.driver.last_rows import Places, as_text, folder_of, read_places
from kiwi_spark.driver.progress import follow, follow_remote
from kiwi_spark.driver.query_plan import BuiltQuery, build
from kiwi_spark.driver.real_time import RealTimePlaces, why_batches
from kiwi_spark.driver.run_thread import RunThread
from kiwi_spark.driver.session import Engine
from kiwi_spark.driver.topic_offsets import TopicOffsets, look, resume_offsets, starting_offsets
from kiwi_spark.driver.topic_sink import SLACK_MS, TopicSink, find_begun_batch
from kiwi_spark.protocol.messages import BatchProgress, Message, QueryEnded, QueryStarted
from kiwi_spark.protocol.query_spec import QuerySpec

_RESULTS: Final = uuid.UUID("3f1d9d0e-58a5-4c1e-9a3f-6d7c2f0b8a11")
_start_lock = threading.Lock()
"""Starting the callback server of py4j is not for two threads at once."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A streaming query before its start. placed: whether its rows have places. offsets: where its topics
    are; begin: where it goes on in them; had: behind the last rows, in real time; bad: as in `BuiltQuery`."""

    rows: DataFrame
    place: ResumePoint
    placed: bool
    real_time: bool
    offsets: dict[str, TopicOffsets]
    begin: dict[str, dict[int, int]]
    had: Places
    bad: dict[str, BadRecordCounter]


class QueryThread(RunThread):
    """One run of a query, with a thread of its own. `send` is called from several threads."""

    def __init__(
        self,
        number: int,
        query: QuerySpec,
        engine: Engine,
        connect: Callable[[int], RowsLink],
        places: RealTimePlaces,
        send: Callable[[Message], None],
    ) -> None:
        """connect: opens the connection for the rows of a run."""
        super().__init__(number, query.source, send, lambda: places.give_back(number))
        self._query = query
        self._engine = engine
        self._connect = connect
        self._places = places
        self._sink: TopicSink | None = None
        self._members = ""

    def _why(self, error: Exception) -> QueryEnded | None:
        failure = self._sink.failure if self._sink is not None else None
        if isinstance(self._link, TopicLink):
            failure = self._link.failure()
        if jvm.is_why(failure or error):
            return None
        error_kind, message = classify_error(failure or error)
        return QueryEnded(run=self.number, error_kind=error_kind, message=message)

    def _run(self) -> None:
        query = self._query
        with self._engine.session(query) as spark:
            files = files_of(spark)
            checkpoints = Checkpoints(files, query.checkpoint, query.source, spark.version)
            known = checkpoints.schemas()
            built = build(spark, query, known, distributed=self._engine.distributed)
            self._members = members_of(built.frame.schema)
            if not built.frame.isStreaming:
                self._compute(as_json(built.frame, query.key))
                return
            prepared = self._prepare(spark, files, checkpoints, built)
            if is_remote():
                self._stream_remote(prepared)
            else:
                self._stream(spark, files, prepared, checkpoints.since())

    def _prepare(
        self, spark: SparkSession, files: CheckpointFiles, checkpoints: Checkpoints, built: BuiltQuery
    ) -> Prepared:
        """Decide where and how the query runs. Raises QueryError, and what Spark and Kafka's client raise."""
        query, distributed = self._query, self._engine.distributed
        threads = self._places.total
        why = why_batches(query, built, distributed=distributed, threads=threads)
        placed = real_time = query.real_time != "no" and not why
        place = checkpoints.take(query, built.stateful, built.schemas)
        if is_remote():  # there is no JVM here, nor Kafka's client
            _note_mode(place, why)
            return Prepared(as_json(built.frame, query.key), place, False, False, {}, {}, {}, {})
        offsets = look(spark, query)
        logged = files.read(f"{place.path}/offsets/{place.next_batch - 1}") if place.next_batch else None
        begin = resume_offsets(offsets, query, checkpoints.begin(), logged)
        if real_time:
            why = self._take_threads(offsets)
            real_time = not why
            placed = real_time or query.sink is not None  # so that no row is written twice when that changes
        _note_mode(place, why)
        if not place.next_batch:
            query = self._begin_exactly(query, checkpoints, offsets)
        if placed or query is not self._query:
            built = build(
                spark, query, built.schemas, distributed=distributed, tracked=placed, real_time=real_time
            )
        had = read_places(files, place, begin) if real_time and query.sink is None else {}
        if not real_time:  # whose rows are not noted
            files.remove(folder_of(place))
        rows = as_json(built.frame, query.key)
        return Prepared(rows, place, placed, real_time, offsets, begin, had, built.bad)

    def _take_threads(self, offsets: Mapping[str, TopicOffsets]) -> str:
        """Take a thread for every partition. Returns why there are not enough; empty if there are. Raises
        QueryError where the query is for real time only."""
        try:
            self._places.take(self.number, sum(len(one.end) for one in offsets.values()))
        except QueryError as error:
            if self._query.real_time == "only":
                raise
            return str(error)
        return ""

    @staticmethod
    def _begin_exactly(
        query: QuerySpec, checkpoints: Checkpoints, offsets: dict[str, TopicOffsets]
    ) -> QuerySpec:
        """Return the query with the offsets that it begins with, and keep them until its first batch is
        done."""
        checkpoints.keep_begin({name: one.start for name, one in offsets.items()})
        kept = checkpoints.begin()
        streams = {
            name: item
            if item.start == "earliest"
            else structs.replace(item, start=starting_offsets(item, kept[name], offsets[name]))
            for name, item in query.streams.items()
        }
        return structs.replace(query, streams=streams)

    def _compute(self, rows: DataFrame) -> None:
        """Bring a result that reads no stream, as one batch: the same one whenever it is brought again."""
        query = self._query
        with self._lock:
            if self._stopping:
                return
            link = self._link = self._connect(self.number)
            spark = self._computing = rows.sparkSession.sparkContext
        spark.setJobGroup(self._group, query.source)
        known_as = str(uuid.uuid5(_RESULTS, f"{query.checkpoint}\n{query.source}"))
        self._send(QueryStarted(run=self.number, query=known_as, next_batch=0, members=self._members))
        began = time.monotonic()
        options = {**link.options(query.batch_bytes), "query": known_as}
        rows.write.format(SINK).options(**options).mode("append").save()
        seconds = time.monotonic() - began
        self._send(BatchProgress(run=self.number, batch=0, input_rows=link.rows, seconds=seconds))

    def _stream(self, spark: SparkSession, files: CheckpointFiles, prepared: Prepared, since: int) -> None:
        """Run the query to its end. since: when it was new. Raises what ended it."""
        query, place, written = self._query, prepared.place, _nothing
        writer = self._writer(prepared)
        with self._lock:
            if self._stopping:
                return
            if query.sink is None:
                self._link = self._connect(self.number)
            elif prepared.placed:
                self._link = TopicLink(self.number, query.sink, prepared.begin, place.path)
        if isinstance(self._link, TopicLink):
            written = self._link.progress
            _find_written(self._link, files, place, since)
        if self._link is not None:
            writer = writer.format(SINK).options(**self._link.options(query.batch_bytes))
            if prepared.real_time:
                writer = writer.options(
                    realTime="true",
                    inputs=",".join(query.streams),
                    lastRows=as_text(prepared.had),
                    lastRowsFolder=folder_of(place),
                )
        elif query.sink is not None:
            before = find_begun_batch(files.read, place.path, place.next_batch)
            self._sink = TopicSink(query.sink, before)
        with query_reports(spark) as reports:
            follow(self._start(writer, prepared), reports, self.number, prepared.bad, self._send, written)

    def _stream_remote(self, prepared: Prepared) -> None:
        """Over Spark Connect. `foreachBatch` would run in a Python of the server's machine, which need not be
        ours nor have these modules: Spark's own sink writes."""
        query = self._query
        assert query.sink is not None  # noqa: S101  else the gateway has refused it (`unreachable_reason`)
        if self._is_stopping():
            return
        writer = self._writer(prepared).format("kafka")
        writer = writer.options(**query.sink.options).option("topic", query.sink.topic)
        follow_remote(self._start(writer, prepared), self.number, list(query.streams), self._send)

    def _writer(self, prepared: Prepared) -> DataStreamWriter:
        query = self._query
        writer = prepared.rows.writeStream.queryName(query.source)
        writer = writer.option("checkpointLocation", prepared.place.path)
        trigger: Any = {"processingTime": query.trigger} if query.trigger else {"availableNow": True}
        if prepared.real_time:
            trigger = {"realTime": query.epoch}
        return writer.outputMode("update" if prepared.real_time else query.output_mode).trigger(**trigger)

    def _start(self, writer: DataStreamWriter, prepared: Prepared) -> StreamingQuery:
        if self._sink is None:
            running = writer.start()
        else:
            with _start_lock:
                running = writer.foreachBatch(self._sink).start()
        self._send(
            QueryStarted(
                run=self.number,
                query=running.id,
                next_batch=prepared.place.next_batch,
                notes=prepared.place.notes,
                members=self._members,
                real_time=prepared.real_time,
                begin=prepared.begin,
                had=prepared.had,
                end={name: one.end for name, one in prepared.offsets.items()},
            )
        )
        with self._lock:
            self._running = running
        if self._is_stopping():  # since before there was anything to stop
            self._ask_to_stop(running)
        return running


def _nothing() -> int:
    return 0


def _find_written(link: TopicLink, files: CheckpointFiles, place: ResumePoint, since: int) -> None:
    """Have the topic looked at for rows that the query has written since its checkpoint. since: when it was
    new."""
    known = files.read(f"{place.path}/metadata")
    if known is None:  # it has never run
        return
    last = find_begun_batch(files.read, place.path, place.next_batch - 1)
    at = since if last is None else last.since
    link.find(msgspec.json.decode(known, type=_Metadata).id, max(0, at - SLACK_MS))


class _Metadata(msgspec.Struct):
    """What Spark writes when a checkpoint is new. id: the query's."""

    id: str


def _note_mode(place: ResumePoint, why: str) -> None:
    """Have it said why a query that might run in real time does not."""
    if why:
        place.notes.append(f"it runs in micro-batches: {why}")
