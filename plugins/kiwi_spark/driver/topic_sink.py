"""Writes the batches of a query to a Kafka topic, each row of a batch that Spark repeats only once.

Spark's own Kafka sink writes a batch that is repeated once more, whatever was written of it before the driver
died. Here every record carries the batch that it belongs to, in a header. When a query starts, only the batch
behind the last committed one can have been begun before: that one, and no other, is compared with what the
topic has of it, and what is missing is written. Rows are compared by key and value as a multiset, for Spark
repeats a batch in another order, and equal rows are legal.

This is as exact as the query: one whose rows come out different when a batch is repeated (`rand()`,
`current_timestamp()`) has rows of both tries in the topic. On a cluster, where an executor's task is tried
again within the batch, the rows that the first try had written are there twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kiwi_spark.driver.jvm_rows import scheduler_pool
from kiwi_spark.protocol.query_spec import SinkSpec

HEADER: Final = "kiwi-batch"
"""The header of every record: `{id of Spark's query}:{batch}`."""

SLACK_MS: Final = 5 * 60_000
"""How far the clocks of the driver, of executors and of brokers may be apart."""

_NO_TOPIC: Final = "UnknownTopicOrPartition"


ReadFile = Callable[[str], str | None]
"""Reads the text of a file, as `CheckpointFiles.read`."""


@dataclass(frozen=True, slots=True)
class BegunBatch:
    """A batch that Spark has begun before, and may have written rows of; since: ms since the epoch."""

    batch: int
    since: int


def find_begun_batch(read: ReadFile, checkpoint: str, batch: int) -> BegunBatch | None:
    """Find whether a batch was begun before: it is then in the checkpoint's log of offsets.

    checkpoint: the folder of Spark's own checkpoint.
    """
    text = read(f"{checkpoint}/offsets/{batch}")
    if text is None:
        return None
    lines = text.split("\n")  # the version of the log, then the times of the batch, then offsets
    found = msgspec.json.decode(lines[1], type=_Times) if len(lines) > 1 else _Times()
    return BegunBatch(batch, found.batch_timestamp)


class _Times(msgspec.Struct):
    batch_timestamp: int = msgspec.field(default=0, name="batchTimestampMs")


class TopicSink:
    """A function for `foreachBatch` that writes every batch to the topic, called in one thread at a time.
    Frames have the columns `key` and `value`, both text.

    before: the batch that may be in the topic already. failure: what it raised, for what comes out of
    `foreachBatch` is Spark's account of it.
    """

    def __init__(self, sink: SinkSpec, before: BegunBatch | None) -> None:
        self.failure: BaseException | None = None
        self._sink = sink
        self._before = before

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            spark = frame.sparkSession.sparkContext
            query: Any = spark.getLocalProperty("sql.streaming.queryId")
            with scheduler_pool(spark):
                self._take(frame, query, batch)
        except BaseException as error:
            self.failure = error
            raise

    def _take(self, frame: DataFrame, query: str, batch: int) -> None:
        mark = f"{query}:{batch}"
        rows = frame.select(F.col("key").cast("binary"), F.col("value").cast("binary"))
        before, self._before = self._before, None
        if before is None or before.batch != batch:
            self._write(rows, mark)
            return
        try:
            self._write(rows.exceptAll(self._written(frame, mark, before.since)), mark)
        except Exception as error:
            if _NO_TOPIC not in str(error):
                raise
            self._write(rows, mark)  # there is no topic yet, so nothing is in it

    def _written(self, frame: DataFrame, mark: str, since: int) -> DataFrame:
        """Read the rows of the batch that the topic has."""
        reader = frame.sparkSession.read.format("kafka").options(**self._sink.options)
        records = reader.options(
            subscribe=self._sink.topic,
            includeHeaders="true",
            startingTimestamp=str(max(0, since - SLACK_MS)),
            startingOffsetsByTimestampStrategy="latest",
            failOnDataLoss="false",
        ).load()
        marked = F.exists(
            "headers", lambda one: (one["key"] == HEADER) & (one["value"] == F.lit(mark).cast("binary"))
        )
        return records.filter(marked).select("key", "value")

    def _write(self, rows: DataFrame, mark: str) -> None:
        header = F.struct(F.lit(HEADER).alias("key"), F.lit(mark).cast("binary").alias("value"))
        writer = rows.withColumn("headers", F.array(header)).write.format("kafka")
        writer.options(**self._sink.options).option("topic", self._sink.topic).save()
