"""A query with state over files, for tests of checkpoints: run as a program it reads what is new, and ends.

Arguments: the folder with `in` and `checkpoint`, Hadoop's local file system, how the jar with ours is handed
over (an option of Spark's), the jar. Prints a line of JSON for every batch: its number, and key to sum.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Every second version is a snapshot, and old versions go: all kinds of files are written, read, deleted.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    "spark.sql.streaming.minBatchesToRetain": "3",
}


def main(folder: str, file_system: str, option: str, jar: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    ours = {"spark.hadoop.fs.AbstractFileSystem.file.impl": file_system, option: jar}
    for name, value in {**_CONF, **ours}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    stream = spark.readStream.schema("k STRING, x LONG").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    writer = stream.groupBy("k").agg({"x": "sum"}).writeStream.outputMode("update").foreachBatch(_show)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


def _show(frame: DataFrame, number: int) -> None:
    print(json.dumps([number, {row[0]: row[1] for row in frame.collect()}]), flush=True)


def write_input(folder: Path, number: int) -> dict[str, int]:
    """One file; what it adds to the sums."""
    rows = {f"key {(number + n) % 5}": number * 10 + n for n in range(3)}
    (folder / "in").mkdir(exist_ok=True)
    lines = "\n".join(json.dumps({"k": key, "x": x}) for key, x in rows.items())
    file = folder / "in" / f"{number:03}.json"
    file.write_text(lines)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads them in this order
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
