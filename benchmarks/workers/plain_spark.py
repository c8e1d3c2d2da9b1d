"""The queries of `spark_queries` in plain PySpark, as one would write them, and what else is measured in it.

Settings: conf (of Spark), master, nice, real_time_partitions. The session is made as the driver of a gateway
makes its own, so that both have the same Spark. Says `ready`, then does one job (a line of JSON) after the
other:

    {"do": "stream", "query", "source": {...}, "bootstrap", "topic", "warm", "records", "checkpoint"}
        The query of a source of type `spark` (as `spark_queries.source` makes it) over a topic, into the sink
        `noop`. Says `warm` and `done` (the time at which that batch had ended) when so many records were
        read, with `seconds` of all batches that had records.
    {"do": "rows", ...}
        The same, its rows as JSON over a Unix socket to a thread that only reads them (`rows_taker`), by the
        gateway's own sink: the same work of Spark's, so that what is beyond it is the gateway's alone. (Spark
        has no sink for a socket; by its sink for Kafka rows would go through a broker and a consumer, which
        take longer than what is measured.) In real time that sink needs the place of each record, so it is
        noted here, too. Says `warm` and `done` when the rows are there, with `fresh` and `around`: how long
        they took from the making of their record, as `spark_reader` does.
    {"do": "json", "rows", "repeat"}
        JSON of so many rows of seven columns, which are in memory. Says `json`: lists of seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.spark_queries import QUERIES
from benchmarks.workers import child
from benchmarks.workers.rows_taker import RowsTaker
from kiwi_spark.driver.json_types import as_json
from kiwi_spark.driver.jvm_rows import SINK, RowsLink
from kiwi_spark.driver.session import open_session, threads
from kiwi_spark.gateway.rows import row_batches
from kiwi_spark.java.classes import jars_conf
from kiwi_spark.java.home import java_home
from kiwi_spark.protocol.packed_rows import pack
from kiwi_spark.protocol.query_spec import BATCH_BYTES, SessionSpec

_BATCH_SECONDS = 170.0
"""Longest time that is waited for a batch."""
_PART_ROWS = 5_000
"""Rows of one message of the sink, about: a megabyte."""
_RUNS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Batch:
    """Hold a batch that had records. ended: seconds of the monotonic clock."""

    records: int
    seconds: float
    ended: float


class ProgressListener(StreamingQueryListener):
    """Put every batch into a queue; None: the query has ended."""

    def __init__(self, batches: queue.SimpleQueue[Batch | None]) -> None:
        self._batches = batches

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: not needed."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: not needed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._batches.put(None)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        said = event.progress
        if said.numInputRows <= 0:
            return
        seconds = said.durationMs["triggerExecution"] / 1000
        begun = datetime.fromisoformat(said.timestamp.replace("Z", "+00:00")).timestamp()
        ended = begun + seconds - (time.time() - time.monotonic())
        self._batches.put(Batch(said.numInputRows, seconds, ended))


def main() -> None:
    settings = child.settings()
    os.nice(settings["nice"])
    os.environ["JAVA_HOME"] = str(java_home())
    conf = {**settings["conf"], **jars_conf(settings["conf"])}
    wanted = SessionSpec(master=settings["master"], real_time_partitions=settings["real_time_partitions"])
    spark = open_session(SessionSpec(master=threads(wanted)[0], conf=conf))
    child.say(ready=True)
    while True:
        job = json.loads(child.wait_word())
        match job["do"]:
            case "json":
                child.say(json=_json(spark, job["rows"], job["repeat"]))
            case "rows":
                _rows(spark.newSession(), job)
            case _:
                _stream(spark.newSession(), job)


def _frame(spark: SparkSession, job: dict[str, Any], *, tracked: bool) -> DataFrame:
    source = job["source"]
    (name, item), *_ = source["inputs"].items()
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job["bootstrap"])
    reader = reader.option("subscribe", job["topic"]).option("startingOffsets", item["start"])
    if not tracked:  # real time has no bound
        reader = reader.option("maxOffsetsPerTrigger", item["max_offsets"])
    raw = reader.load()
    if tracked:
        jvm: Any = spark._jvm
        java: Any = raw._jdf
        raw = DataFrame(jvm.kiwigw.spark.InputPlace.tracked(java, 0), spark)
    decoded = F.from_json(F.col("value").cast("string"), item["schema"])
    frame = raw.select(decoded.alias("record")).select("record.*")
    for mark in source.get("watermarks", {}).values():
        frame = frame.withWatermark(mark["column"], mark["delay"])
    frame.createOrReplaceTempView(name)
    return spark.sql(source["sql"])


def _writer(frame: DataFrame, job: dict[str, Any]) -> DataStreamWriter:
    wanted, mode = job["source"]["trigger"], job["source"]["output_mode"]
    if wanted.get("real_time"):
        mode, trigger = "update", {"realTime": wanted["checkpoint_interval"]}
    else:
        trigger = {"processingTime": wanted["processing_time"]}
    # Spark knows no `ms`, and PySpark's types no `realTime` yet.
    options: Any = {name: time.replace("ms", "milliseconds") for name, time in trigger.items()}
    writer = frame.writeStream.option("checkpointLocation", job["checkpoint"])
    return writer.outputMode(mode).trigger(**options)


def _stream(spark: SparkSession, job: dict[str, Any]) -> None:
    batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
    listener = ProgressListener(batches)
    spark.streams.addListener(listener)
    running = _writer(_frame(spark, job, tracked=False), job).format("noop").start()
    read: list[Batch] = []
    for said in ("warm", "done"):
        until = job["warm"] if said == "warm" else job["records"]
        while sum(batch.records for batch in read) < until:
            batch = batches.get(timeout=_BATCH_SECONDS)
            if batch is None:
                raise SystemExit(f"the query has ended: {running.exception()}")
            read.append(batch)
        if said == "warm":
            warm = len(read)
            if sum(batch.records for batch in read) != until:
                raise SystemExit(
                    f"batches of {[batch.records for batch in read]} records, not {until} in all"
                )
            child.say(warm=read[-1].ended)
    running.stop()
    spark.streams.removeListener(listener)
    short = sum(batch.records for batch in read) - job["records"]
    child.say(
        done=read[-1].ended,
        faults=[f"{short:+} records were read"] if short else [],
        seconds=[batch.seconds for batch in read[warm:]],
    )


def _rows(spark: SparkSession, job: dict[str, Any]) -> None:
    query = QUERIES[job["query"]]
    real_time = bool(job["source"]["trigger"].get("real_time"))
    frame = _frame(spark, job, tracked=real_time)
    value = F.to_json(F.struct(*frame.columns)).alias("value")
    key = F.to_json(F.struct(*query.key)) if query.key else F.lit(None).cast("string")
    with RowsTaker(query) as taker:
        link = RowsLink(taker.path, "", next(_RUNS))
        writer = _writer(frame.select(key.alias("key"), value), job).format(SINK)
        options = link.options(BATCH_BYTES)
        if real_time:
            folder = f"{job['checkpoint']}/last-rows"
            options |= {"realTime": "true", "inputs": "flights", "lastRows": "", "lastRowsFolder": folder}
        running = writer.options(**options).start()
        mark = 0
        for said in ("warm", "done"):
            at = taker.wait(job["warm"] if said == "warm" else job["records"], _BATCH_SECONDS)
            if at is None:
                raise SystemExit(f"not all rows came: {running.exception()}")
            if said == "warm":
                mark = taker.mark()
                child.say(warm=at)
        result = taker.result(mark, job["records"], Path(job["checkpoint"]))
        link.close()
        running.stop()
    child.say(done=at, **result)


def _json(spark: SparkSession, rows: int, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of `repeat` times each: `columns` and `texts`, the rows computed as they are and as
    JSON and thrown away; `pieces`, taken apart as the gateway does with those that come."""
    n = F.col("id")
    frame = spark.range(0, rows, 1, 2).select(
        n.alias("n"),
        F.concat(F.lit("AA"), n % 16).alias("carrier"),
        F.lit("EWR").alias("origin"),
        F.concat(F.lit("DE"), n % 100).alias("dest"),
        ((n % 61) - 10).cast("double").alias("dep_delay"),
        (n % 61).cast("int").alias("delay"),
        F.timestamp_seconds(n + 1_700_000_000).alias("sched_dep"),
    )
    frame = frame.cache()
    frame.count()
    texts = as_json(frame, ["carrier"])
    made = [(row["key"].encode(), row["value"].encode()) for row in texts.collect()]
    parts = [
        pack([value for _, value in part], [key for key, _ in part])
        for part in (made[at : at + _PART_ROWS] for at in range(0, rows, _PART_ROWS))
    ]
    found: dict[str, list[float]] = {"columns": [], "texts": [], "pieces": []}
    for _ in range(repeat):
        for name, one in (("columns", frame), ("texts", texts)):
            begun = time.perf_counter()
            one.write.format("noop").mode("overwrite").save()
            found[name].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        taken = sum(len(piece) for part in parts for piece in row_batches(part, 0, 0, 0))
        found["pieces"].append(time.perf_counter() - begun)
        if taken != rows:
            raise SystemExit(f"{taken} rows, not {rows}")
    frame.unpersist()
    return found


if __name__ == "__main__":
    main()
