"""What gateway and driver say about a query: plain values in their messages."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Format = Literal["json", "avro", "string", "binary", "raw"]
OutputMode = Literal["append", "update", "complete"]
BadRecord = Literal["drop", "null", "fail"]

RealTime = Literal["no", "auto", "only"]

MICRO_BATCH: Final = "500 milliseconds"
"""How often a query looks for input, where nothing is said."""

EPOCH: Final = "1 minutes"
"""How often a query in real time notes how far it is, as Spark writes it."""

BATCH_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of one batch of results, by default: what a JVM of 1 GB has room to collect."""


class StreamInput(msgspec.Struct, frozen=True, kw_only=True):
    """One stream that a query reads: a Kafka topic. source: what it is called in the gateway.

    kafka: options of Spark's Kafka source (`kafka.bootstrap.servers`, ..., `subscribe`).
    start: `latest`, `earliest` or ms since the epoch; a checkpoint wins.
    schema: DDL of the decoded value; empty: inferred from a sample (json) or not needed.
    avro: an Avro schema as JSON text (format avro); registry: URL of a Schema Registry instead.
    max_offsets: most records of one micro-batch.
    """

    source: str
    format: Format
    schema: str = ""
    start: str | int = "latest"
    kafka: dict[str, str]
    avro: str = ""
    registry: str = ""
    registry_subject: str = ""
    on_bad_record: BadRecord = "drop"
    fail_on_data_loss: bool = True
    max_offsets: int = 100_000


class TableInput(msgspec.Struct, frozen=True, kw_only=True):
    """One table that a query reads, as `spark.read.format(format).options(options).load(path)`.

    stream: read as a stream, by `spark.readStream`: the files that are there, and those that come.
    """

    format: str
    path: str = ""
    schema: str = ""
    options: dict[str, str] = {}
    stream: bool = False


class Watermark(msgspec.Struct, frozen=True):
    """`withWatermark(column, delay)`."""

    column: str
    delay: str


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where results go instead of the gateway: a Kafka topic. options: of Spark's Kafka sink."""

    topic: str
    options: dict[str, str]


class QuerySpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a driver needs to run the query of one source.

    sql, transform: one of the two is set; transform is `module:function`.
    trigger: Spark's processing time, as Spark writes it; empty: whatever there is now, then the end. Only
        then a query may read no stream at all: its result is computed once.
    real_time: whether it runs in real time: `auto` where Spark can, `only` or not at all. epoch: how often it
        notes its progress then.
    key: columns of the result that make an event's key; empty: events have none.
    checkpoint: the folder (any Hadoop file system) below which this query's checkpoints are.
    batch_bytes: most bytes of one batch of results.
    fresh: whether a checkpoint that cannot be kept is left and a new one begun (a reload altered the query);
        else it is refused (`on_other_checkpoint` says otherwise).
    """

    source: str
    streams: dict[str, StreamInput] = {}
    tables: dict[str, TableInput] = {}
    watermarks: dict[str, Watermark] = {}
    sql: str = ""
    transform: str = ""
    output_mode: OutputMode = "append"
    trigger: str = MICRO_BATCH
    real_time: RealTime = "no"
    epoch: str = EPOCH
    key: list[str] = []
    checkpoint: str = ""
    batch_bytes: int = BATCH_BYTES
    fresh: bool = False
    sink: SinkSpec | None = None


class SessionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to make the session: `master` or `remote`, configuration, folders to import user code from.

    real_time_partitions: that all queries in real time may read together."""

    master: str = ""
    real_time_partitions: int = 0
    remote: str = ""
    conf: dict[str, str] = {}
    python_path: list[str] = []


ErrorKind = Literal[
    "query", "user", "data_loss", "bad_record", "checkpoint", "no_space", "unreachable", "gone"
]
"""Why a query ended.

query: SQL or `transform` cannot be analysed: it never works. user: a function of the user raised.
data_loss: records it must read are gone. bad_record: one could not be decoded and `on_bad_record` is fail.
checkpoint: it is another query's or another Spark's. no_space: nothing can be written. unreachable: Kafka
or a Python worker does not answer. gone: anything else that ended it while it ran."""

FINAL: frozenset[ErrorKind] = frozenset({"query", "data_loss", "bad_record", "checkpoint", "no_space"})
"""Trouble that trying again does not mend."""
