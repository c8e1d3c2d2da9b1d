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

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kiwi_spark.driver.turns import turn
from kiwi_spark.spec import Sink

HEADER: Final = "kiwi-batch"
"""The header of every record: `{id of Spark's query}:{batch}`."""

_SLACK_MS: Final = 5 * 60_000
"""How far the clocks of the driver, of executors and of brokers may be apart."""

_NO_TOPIC: Final = "UnknownTopicOrPartition"


class Reads(Protocol):
    """What is used of `checkpoints.Files`."""

    def read(self, path: str) -> str | None:
        """The text of a file, None if there is none."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that Spark has begun before, and may have written rows of; since: ms since the epoch."""

    batch: int
    since: int


def begun(files: Reads, checkpoint: str, next_batch: int) -> Begun | None:
    """Whether the batch that comes next was begun before: it is then in the checkpoint's log of offsets.

    checkpoint: the folder of Spark's own checkpoint; next_batch: behind the last that was committed.
    """
    text = files.read(f"{checkpoint}/offsets/{next_batch}")
    if text is None:
        return None
    lines = text.split("\n")  # the version of the log, then the times of the batch, then offsets
    found = msgspec.json.decode(lines[1], type=_Times) if len(lines) > 1 else _Times()
    return Begun(next_batch, found.batch_timestamp)


class _Times(msgspec.Struct):
    batch_timestamp: int = msgspec.field(default=0, name="batchTimestampMs")


class _Metadata(msgspec.Struct):
    id: str


class ToTopic:
    """The `foreachBatch` of a query with a sink. Frames have the columns `key` and `value`, both text.

    before: the batch that may be in the topic already. failure: what writing raised, for what comes out of
    `foreachBatch` is Spark's account of it. Called in one thread at a time.
    """

    def __init__(self, sink: Sink, files: Reads, checkpoint: str, before: Begun | None) -> None:
        self._sink = sink
        self._files = files
        self._checkpoint = checkpoint
        self._before = before
        self._query = ""
        self.failure: Exception | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write the batch. Raises what Spark raises."""
        try:
            with turn(frame.sparkSession.sparkContext):
                self._take(frame, batch)
        except Exception as error:
            self.failure = error
            raise

    def _take(self, frame: DataFrame, batch: int) -> None:
        mark = f"{self._id()}:{batch}"
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
        """The rows of the batch that the topic has."""
        reader = frame.sparkSession.read.format("kafka").options(**self._sink.options)
        records = reader.options(
            subscribe=self._sink.topic,
            includeHeaders="true",
            startingTimestamp=str(max(0, since - _SLACK_MS)),
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

    def _id(self) -> str:
        """The id that Spark gave the query; it has written it down before the first batch."""
        if not self._query:
            text = self._files.read(f"{self._checkpoint}/metadata")
            if text is None:
                raise FileNotFoundError(f"{self._checkpoint}/metadata")
            self._query = msgspec.json.decode(text, type=_Metadata).id
        return self._query
