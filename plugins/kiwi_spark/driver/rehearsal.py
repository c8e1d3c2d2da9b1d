"""Starts Spark, runs a small stream and ends: the JVM keeps the classes that it took (`class_sharing`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from kiwi_spark.driver.session import open_session
from kiwi_spark.protocol.query_spec import SessionSpec


def main() -> None:
    """Rehearse what most queries do: JSON, SQL, an aggregation with state. Takes `spark.jars` as its
    argument. Raises what PySpark raises."""
    conf = {"spark.jars": sys.argv[1], "spark.sql.shuffle.partitions": "1"}
    spark = open_session(SessionSpec(master="local[1]", conf=conf))
    with tempfile.TemporaryDirectory() as work:
        (folder := Path(work) / "in").mkdir()
        (folder / "one.json").write_text('{"key": "a", "value": 1.5}\n')
        rows = spark.readStream.schema("key string, value double").json(str(folder))
        rows.createOrReplaceTempView("rows")
        result = spark.sql("select key, to_json(struct(sum(value) total)) value from rows group by key")
        query = (
            result.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(Path(work) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        spark.stop()


if __name__ == "__main__":
    main()
