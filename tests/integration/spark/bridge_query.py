"""A Spark driver for the tests of the bridge: reads one source, keeps every batch in a file of its own.

python bridge_query.py '{"options": {...}, "out": DIR, "checkpoint": DIR, ...}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kiwi_spark.driver.gateway_source import FORMAT, register


def main(wish: dict[str, Any]) -> None:
    """sql: over the view `events`; mode: its output mode. die_in: the batch in which to be killed, with its
    JVM: after its rows were kept, before Spark knows of it."""
    out = Path(wish["out"])
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -Xss16m")
        .getOrCreate()
    )
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
    writer.trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
