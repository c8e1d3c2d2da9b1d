"""A Spark driver for the tests of the bridge: runs queries that read one source each, and keeps every batch
in a file of its own.

Its argument is options of its JVM. Told what to do on stdin, one JSON object a line: `{"options": {...},
"out": DIR, "checkpoint": DIR, ...}` is a query to run, `{"stop": DIR}` one to stop, by its `out`. A query
that has ended writes `over` there: why, or nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kiwi_spark.driver.gateway_source import FORMAT, register


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{sys.argv[1]} -Xss16m")
        .getOrCreate()
    )
    running: dict[str, StreamingQuery] = {}
    for line in sys.stdin:
        wish = json.loads(line)
        if "stop" in wish:
            running[wish["stop"]].stop()
        else:
            running[wish["out"]] = query = start(spark.newSession(), wish)
            threading.Thread(target=wait, args=(query, Path(wish["out"])), daemon=True).start()


def start(spark: SparkSession, wish: dict[str, Any]) -> StreamingQuery:
    """sql: over the view `events`; mode: its output mode. once: whether it ends by itself. die_in: the batch
    in which to be killed, with its JVM: after its rows were kept, before Spark knows of it."""
    out = Path(wish["out"])
    register(spark)

    def keep(frame: DataFrame, batch: int) -> None:
        rows = [json.loads(row) for row in frame.toJSON().collect()]
        attempt = len(list(out.glob(f"{batch}.*.json")))
        written = out / f"{batch}.{attempt}.json"
        written.with_suffix(".part").write_text(json.dumps(rows))
        written.with_suffix(".part").rename(written)
        if batch == wish.get("die_in"):
            os.killpg(0, signal.SIGKILL)

    stream = spark.readStream.format(FORMAT).options(**wish["options"]).load()
    stream.createOrReplaceTempView("events")
    writer = spark.sql(wish["sql"]).writeStream.foreachBatch(keep).outputMode(wish.get("mode", "append"))
    writer = writer.option("checkpointLocation", wish["checkpoint"])
    trigger = {"availableNow": True} if wish.get("once") else {"processingTime": "100 milliseconds"}
    return writer.trigger(**trigger).start()


def wait(query: StreamingQuery, out: Path) -> None:
    why = ""
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001  (told)
        why = str(error)
    (out / "over.part").write_text(why)
    (out / "over.part").rename(out / "over")


if __name__ == "__main__":
    main()
