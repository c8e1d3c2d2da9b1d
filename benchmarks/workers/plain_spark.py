"""The queries of `spark_queries` in plain PySpark, as one would write them, and what else is measured in it.

Settings: conf (of Spark), master, nice. The session is made as the driver of a gateway makes its own, so that
both have the same Spark. Says `ready`, then does one job (a line of JSON) after the other:

    {"do": "stream", "source": {...}, "bootstrap", "topic", "warm", "records", "checkpoint", "times"}
        The query of a source of type `spark` (as `spark_queries.source` makes it) over a topic, into the sink
        `noop`. Says `warm` and `done` (the time at which that batch had ended) when so many records were
        read, with `seconds` of all batches that had records; and, where `times` is asked for, `fresh`: how
        long records took from their making until their batch was computed, without the commit of it, in ms.
    {"do": "json", "rows", "repeat"}
        JSON of so many rows of seven columns, which are in memory. Says `json`: lists of seconds.
"""

from __future__ import annotations

import json
import os
import queue
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryListener

from benchmarks.latency import Delays
from benchmarks.workers import child
from kiwi_spark.driver.gateway_sink import parts_of
from kiwi_spark.driver.json_types import as_json
from kiwi_spark.driver.session import open_session
from kiwi_spark.gateway.batches import row_batches
from kiwi_spark.java.connector import connector_conf
from kiwi_spark.java.home import java_home
from kiwi_spark.protocol.query_spec import SessionSpec

_BATCH_SECONDS = 170.0
"""Longest time that is waited for a batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Hold a batch that had records. ended, computed: ns of the monotonic clock. offsets: by partition,
    behind its last record."""

    records: int
    seconds: float
    ended: int
    computed: int
    offsets: dict[int, int]


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
        took = said.durationMs
        begun = datetime.fromisoformat(said.timestamp.replace("Z", "+00:00")).timestamp()
        begun_ns = round(begun * 1e9) - (time.time_ns() - time.monotonic_ns())
        ended = begun_ns + took["triggerExecution"] * 1_000_000
        offsets = next(iter(json.loads(said.sources[0].endOffset).values()))
        self._batches.put(
            Batch(
                said.numInputRows,
                took["triggerExecution"] / 1000,
                ended,
                ended - took.get("commitOffsets", 0) * 1_000_000,
                {int(partition): offset for partition, offset in offsets.items()},
            )
        )


def main() -> None:
    settings = child.settings()
    os.nice(settings["nice"])
    os.environ["JAVA_HOME"] = str(java_home())
    conf = {**settings["conf"], **connector_conf(settings["conf"])}
    spark = open_session(SessionSpec(master=settings["master"], conf=conf))
    child.say(ready=True)
    while True:
        job = json.loads(child.wait_word())
        if job["do"] == "json":
            child.say(json=_json(spark, job["rows"], job["repeat"]))
        else:
            _stream(spark.newSession(), job)


def _stream(spark: SparkSession, job: dict[str, Any]) -> None:
    source = job["source"]
    (name, item), *_ = source["inputs"].items()
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("subscribe", job["topic"])
        .option("startingOffsets", item["start"])
        .option("maxOffsetsPerTrigger", item["max_offsets"])
        .load()
    )
    decoded = F.from_json(F.col("value").cast("string"), item["schema"])
    frame = raw.select(decoded.alias("record")).select("record.*")
    for mark in source.get("watermarks", {}).values():
        frame = frame.withWatermark(mark["column"], mark["delay"])
    frame.createOrReplaceTempView(name)
    batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
    listener = ProgressListener(batches)
    spark.streams.addListener(listener)
    writer = spark.sql(source["sql"]).writeStream.format("noop").outputMode(source["output_mode"])
    trigger = source["trigger"]["processing_time"].replace("ms", "milliseconds")
    running = writer.option("checkpointLocation", job["checkpoint"]).trigger(processingTime=trigger).start()
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
            child.say(warm=read[-1].ended / 1e9)
    running.stop()
    spark.streams.removeListener(listener)
    result: dict[str, Any] = {
        "done": read[-1].ended / 1e9,
        "records": sum(batch.records for batch in read),
        "seconds": [batch.seconds for batch in read[warm:]],
    }
    if job.get("times"):
        result["fresh"] = _fresh(spark, job, read, warm)
    child.say(**result)


def _fresh(spark: SparkSession, job: dict[str, Any], read: list[Batch], warm: int) -> dict[str, float]:
    """Return how long the records of all batches but the first `warm` took until they were computed."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("subscribe", job["topic"])
        .load()
    )
    made = F.get_json_object(F.col("value").cast("string"), "$.t").cast("bigint")
    times = {
        (row["partition"], row["offset"]): row["t"]
        for row in records.select("partition", "offset", made.alias("t")).collect()
    }
    delays = Delays()
    at = read[warm - 1].offsets if warm else {}
    for batch in read[warm:]:
        places = (
            (partition, offset)
            for partition, end in batch.offsets.items()
            for offset in range(at.get(partition, 0), end)
        )
        delays.add(batch.computed, [times[place] for place in places if times[place]])
        at = batch.offsets
    return delays.said()


def _json(spark: SparkSession, rows: int, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of `repeat` times each: `columns` and `texts`, the rows computed as they are and as
    JSON and thrown away; `arrow` and `arrow_texts`, brought to Python; `pieces`, taken apart as the gateway
    does."""
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
    found: dict[str, list[float]] = {"columns": [], "texts": [], "arrow": [], "arrow_texts": [], "pieces": []}

    def timed(name: str, begun: float) -> None:
        found[name].append(time.perf_counter() - begun)

    for _ in range(repeat):
        for name, one in (("columns", frame), ("texts", texts)):
            begun = time.perf_counter()
            one.write.format("noop").mode("overwrite").save()
            timed(name, begun)
        for name, one in (("arrow", frame), ("arrow_texts", texts)):
            begun = time.perf_counter()
            table = one.toArrow()
            timed(name, begun)
            if table.num_rows != rows:
                raise SystemExit(f"{table.num_rows} rows, not {rows}")
        parts = [part.arrow for part in parts_of(table)]
        begun = time.perf_counter()
        taken = sum(len(piece) for part in parts for piece in row_batches(part, 0, 0, 0))
        timed("pieces", begun)
        if taken != rows:
            raise SystemExit(f"{taken} rows, not {rows}")
    frame.unpersist()
    return found


if __name__ == "__main__":
    main()
