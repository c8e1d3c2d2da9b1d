"""A query whose batches fail and are repeated, as a process: `repeating_writer.py BOOTSTRAP FROM TO FOLDER
JVM`; the last one is options of its JVM.

It prints what is in the topic TO at the end: rows as [key, value], and how many of them each batch marked.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from kiwi_spark.driver.topic_sink import HEADER, TopicSink, find_begun_batch
from kiwi_spark.java.classes import jars_conf
from kiwi_spark.java.home import java_home
from kiwi_spark.protocol.query_spec import SinkSpec

os.environ["JAVA_HOME"] = str(java_home())

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

FAILURES = ((0, 30), (0, None), (1, 70))
"""Which batch fails, one run after the other, after how many of its 100 rows; None: after all of them."""


def read(path: str) -> str | None:
    file = Path(path)
    return file.read_text() if file.exists() else None


class FailingError(Exception):
    pass


def main(bootstrap: str, source: str, topic: str, folder: str, jvm: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap}
    spark = _session(jvm)
    for number, (fails_at, rows) in enumerate((*FAILURES, (None, None))):
        stream = spark.readStream.format("kafka").options(**options)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100)
        frame = stream.option("subscribe", source).load()
        # Every try has the rows in another order.
        frame = frame.select(frame.key.cast("string"), frame.value.cast("string")).repartition(1 + number % 3)
        commits = [int(name) for name in _names(f"{folder}/commits") if name.isdigit()]
        before = find_begun_batch(read, folder, max(commits, default=-1) + 1)
        assert (before is not None) == (number > 0), before
        write = TopicSink(SinkSpec(topic=topic, options=options), before)

        def each(
            frame: DataFrame,
            batch: int,
            write: TopicSink = write,
            at: int | None = fails_at,
            n: int | None = rows,
        ) -> None:
            if batch != at:
                write(frame, batch)
                return
            write(frame if n is None else frame.limit(n), batch)
            raise FailingError

        query = frame.writeStream.foreachBatch(each).option("checkpointLocation", folder)
        running = query.trigger(availableNow=True).start()
        try:
            running.awaitTermination()
        except StreamingQueryException:
            assert fails_at is not None
        else:
            assert fails_at is None
    records = spark.read.format("kafka").options(**options).option("subscribe", topic)
    written = records.option("includeHeaders", "true").load().collect()
    headers = [
        bytes(header.value).decode().partition(":")
        for row in written
        for header in row.headers
        if header.key == HEADER
    ]
    assert {query for query, _, _ in headers} == {json.loads(Path(folder, "metadata").read_text())["id"]}
    marks = Counter(batch for _, _, batch in headers)
    found = [[row.key and bytes(row.key).decode(), bytes(row.value).decode()] for row in written]
    print(json.dumps({"rows": found, "marks": marks}))
    spark.stop()


def _names(folder: str) -> list[str]:
    path = Path(folder)
    return [item.name for item in path.iterdir()] if path.exists() else []


def _session(jvm: str) -> SparkSession:
    conf = jars_conf() | {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": jvm,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main(*sys.argv[1:])
