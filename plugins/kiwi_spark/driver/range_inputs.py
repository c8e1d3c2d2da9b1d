"""What a query over ranges of topics reads: tables with these columns.

| column | type |
|---|---|
| `key`, `value` | as their bytes are decoded: of JSON and Avro objects a STRUCT |
| `headers` | MAP<STRING, STRING>: of equal names the last, null where it is not UTF-8 |
| `partition`, `offset` | INT, BIGINT |
| `timestamp` | BIGINT: ms since the epoch |
| `key_size`, `value_size` | INT: bytes, 0 of null |

A record whose value (or key) cannot be decoded is left out, where the query reads that; where it does not,
nothing is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from kiwi_spark.driver.inputs import READER, TIMEOUTS, avro_value, client_options, decoded_once
from kiwi_spark.driver.json_values import BROKEN, json_value
from kiwi_spark.driver.topic_offsets import Offsets
from kiwi_spark.protocol.query_spec import StreamInput
from kiwi_spark.protocol.range_query import Form, TopicTable

_TASK_RECORDS: Final = 200_000
"""Records that one task reads on other machines: it is over soon, and then others have the core."""

_STEPS: Final = 8
_STEP_RECORDS: Final = 10_000
"""A result that is told while it is made is told so often, or every so many records of a table."""

_LONGEST: Final = 2**63
_WHOLE: Final = re.compile(r"(\.|SELECT\s+(DISTINCT\s+)?)\*", re.IGNORECASE)
"""Reads every column."""


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The first offset of every partition that has something to read, and the one behind its last."""

    begin: Offsets
    end: Offsets

    @property
    def offsets(self) -> int:
        """Return how many there are."""
        return sum(self.end.values()) - sum(self.begin.values())


def fix_range(spark: SparkSession, table: TopicTable) -> TopicRange:
    """Find what a table is, now. Raises what Kafka's client raises, as Py4JJavaError."""
    jvm: Any = spark._jvm
    start = "earliest" if table.first_time is None else str(table.first_time)
    options = client_options({**TIMEOUTS, **table.kafka})
    found: str = jvm.kiwigw.spark.TopicOffsets.of(options, table.topic, start)
    begin, end = {}, {}
    for row in found.split(","):
        partition, first, behind = map(int, row.split())
        first = max(first, table.first_offset or 0)
        behind = min(behind, (_LONGEST if table.last_offset is None else table.last_offset) + 1)
        if first < behind and (table.partitions is None or partition in table.partitions):
            begin[partition], end[partition] = first, behind
    return TopicRange(begin, end)


def reads(sql: str, column: str) -> bool:
    """Return whether a query may read a column of its tables: where in doubt it may."""
    return re.search(rf"\b{column}\b", sql) is not None or _WHOLE.search(sql) is not None


def records(spark: SparkSession, table: TopicTable, found: TopicRange, cores: int = 0) -> DataFrame:
    """Read the records of a range, as Spark's Kafka source has them. cores: tasks, as in `LocalEngine`: the
    threads that are left are for others."""
    if not found.begin:  # Spark would ask for a topic with all its partitions
        kind = spark.read.format("kafka").options(subscribe=table.topic, includeHeaders=True, **table.kafka)
        return spark.createDataFrame([], kind.load().schema)
    options = {**_options(table, found, cores), "endingOffsets": _as_json(table.topic, found.end)}
    frame = spark.read.format("kafka").options(**options).load()
    return frame.coalesce(cores) if cores else frame


def record_stream(spark: SparkSession, table: TopicTable, found: TopicRange, cores: int = 0) -> DataFrame:
    """Read the same as a stream that ends, a part of it after the other."""
    most = max(_STEP_RECORDS, -(-found.offsets // _STEPS))
    options = {**_options(table, found, cores), "maxOffsetsPerTrigger": str(most)}
    frame = spark.readStream.format("kafka").options(**options).load()
    # A stream has no ending offsets: it ends where its topic does when it is started, or later.
    end = F.create_map(*(F.lit(one).cast("long") for pair in found.end.items() for one in pair))
    frame = frame.filter(F.col("offset") < end[F.col("partition").cast("long")])
    return frame.coalesce(cores) if cores else frame


def _options(table: TopicTable, found: TopicRange, cores: int) -> dict[str, str]:
    return {
        **READER,
        **table.kafka,
        "includeHeaders": "true",
        **({"minPartitions": str(cores)} if cores else {"maxRecordsPerPartition": str(_TASK_RECORDS)}),
        "assign": _as_json(table.topic, sorted(found.begin)),
        "startingOffsets": _as_json(table.topic, found.begin),
    }


def _as_json(topic: str, what: object) -> str:
    return json.dumps({topic: what})


def table_frame(raw: DataFrame, table: TopicTable, sql: str, kinds: Mapping[str, DataType]) -> DataFrame:
    """Make the table of `records`. kinds: the types of `value` and `key` where they are JSON."""
    forms: dict[str, Form] = {"key": table.key, "value": table.value}
    names = {name: f"_{name}" for name in (*forms, "headers", "timestamp")}
    raw = raw.withColumnsRenamed(names)
    for name, form in forms.items():
        if not reads(sql, name):
            raw = raw.withColumn(name, F.lit(None).cast("string"))
            continue
        given = F.col(f"_{name}")
        decoded = _decoded(given, form, _avro_input(table, name), kinds.get(name, StringType()))
        raw = raw.withColumn(name, decoded_once(decoded))
        raw = raw.filter(~_is_bad(given, F.col(name), form, kinds.get(name, StringType())))
        if form == "json" and isinstance(kinds.get(name), StructType):
            raw = raw.withColumn(name, F.col(name).dropFields(BROKEN))
    size = {f"{name}_size": F.coalesce(F.octet_length(f"_{name}"), F.lit(0)) for name in forms}
    return raw.select(
        "key",
        "value",
        _headers(F.col("_headers")).alias("headers"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis(F.col("_timestamp")).alias("timestamp"),
        *(column.alias(name) for name, column in size.items()),
    )


def _headers(given: Column) -> Column:
    def pair(one: Column) -> Column:
        value = one.getField("value")
        text = F.when(F.is_valid_utf8(value.cast("string")), value.cast("string"))
        return F.struct(one.getField("key").alias("key"), text.alias("value"))

    return F.map_from_entries(F.transform(given, pair))


def _avro_input(table: TopicTable, name: str) -> StreamInput:
    """Say by which schemas the keys or values of a table are read, where they are Avro."""
    subject = f"{table.topic}-{name}"
    return StreamInput(
        source=table.source,
        format="avro",
        kafka={},
        avro=table.avro,
        registry=table.registry,
        registry_subject=subject,
    )


def _decoded(given: Column, form: Form, avro: StreamInput, kind: DataType) -> Column:
    if form == "json" and isinstance(kind, StructType | ArrayType | MapType):
        return json_value(given, kind)
    if form == "json":
        return F.try_variant_get(F.try_parse_json(given.cast("string")), "$", kind.simpleString())
    if form == "avro":
        return avro_value(given, avro, without_logical_types)
    if form == "binary":
        return F.base64(given)
    if form == "string":
        text = given.cast("string")
        return F.when(F.is_valid_utf8(text), text)
    if form == "int":
        number = F.conv(F.hex(given), 16, 10).cast("long")
        signed = F.when(number >= 2**31, number - 2**32).otherwise(number).cast("int")
        return F.when(F.octet_length(given) == 4, signed)
    return F.when(F.octet_length(given) == 8, F.conv(F.hex(given), 16, -10).cast("long"))


def _is_bad(given: Column, decoded: Column, form: Form, kind: DataType) -> Column:
    """Tell whether bytes could not be decoded. A member of JSON that is of another type than the others only
    is null; where one is, it is looked again whether this is JSON."""
    none = given.isNotNull() & decoded.isNull()
    if form != "json":
        return none
    if isinstance(kind, StructType):
        none = none | F.coalesce(decoded.getField(BROKEN).isNotNull(), F.lit(False))
    text = given.cast("string")
    return F.when(none, F.try_parse_json(text).isNull()).otherwise(F.lit(False))


def without_logical_types(schema: str) -> str:
    """Take the logical types out of an Avro schema: a timestamp is a number, as in queries without Spark."""

    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: plain(one) for name, one in part.items() if name != "logicalType"}
        return [plain(one) for one in part] if isinstance(part, list) else part

    return json.dumps(plain(json.loads(schema)))
