"""What a query reads: streams with their values decoded, streams of files, and static tables.

Every stream of a source has, beside the columns of its values, `_key` (BINARY), `_partition` (INT), `_offset`
(BIGINT) and `_timestamp` (TIMESTAMP) of the record. The columns of the value are
- json: the fields of the schema (one column `value` if the schema is no struct);
- avro: the fields of the record (one column `value` if it is none);
- string, binary: `value`;
- raw: `key`, `value`, `partition`, `offset`, `timestamp`, `headers`.

A record without a value (a tombstone) has nulls in the columns of its value: it is not a bad one.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, StructType

from kiwi_spark.driver.bad_records import BadRecordCounter, Explain, checked
from kiwi_spark.driver.error_classification import QueryError, message_of
from kiwi_spark.driver.json_values import BROKEN, json_value, misfit
from kiwi_spark.protocol.query_spec import StreamInput, TableInput

# How soon it is noticed that Kafka is away: 3 tries of 10 s, where the defaults make it 3 minutes.
TIMEOUTS: Final = {"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "9000"}
READER: Final = {**TIMEOUTS, "kafkaConsumer.pollTimeoutMs": "20000"}
_OWN: Final = "kafka."
"""How options of Spark's Kafka source and sink begin that are of Kafka's own clients."""
_LOOKED_AT: Final = 1000  # records from which a schema is inferred
_FRESH_SECONDS: Final = 10.0  # so long what was inferred holds for other queries
_AVRO_HEADER: Final = 5  # a zero byte and the id of the schema, four bytes big-endian
_REGISTRY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class InputFrame:
    """An input ready for the query. schema: DDL inferred for it, empty if none had to be. bad: counts its bad
    records, None where there are none to be counted."""

    frame: DataFrame
    schema: str = ""
    bad: BadRecordCounter | None = None


def table(spark: SparkSession, name: str, item: TableInput) -> DataFrame:
    """Make the static table of a query's input `name`. Raises QueryError, and what Spark raises."""
    reader = spark.read.format(item.format).options(**item.options)
    if item.schema:
        with _schema_of(name):
            reader = reader.schema(item.schema)
    return reader.load(item.path) if item.path else reader.load()


def files(spark: SparkSession, name: str, item: TableInput, known_schema: str = "") -> InputFrame:
    """Make a stream of files. known_schema: as in `stream`."""
    inferred = ""
    if not item.schema:  # as Spark infers it of those that are there: a stream of files must have one
        inferred = known_schema or table(spark, name, item).schema.toDDL()
    options = {"maxFilesPerTrigger": "1000", **item.options}
    reader = spark.readStream.format(item.format).options(**options)
    with _schema_of(name):
        reader = reader.schema(item.schema or inferred)
    return InputFrame(reader.load(item.path), inferred)


def stream(
    spark: SparkSession,
    name: str,
    item: StreamInput,
    known_schema: str = "",
    *,
    tracked: int | None = None,
    real_time: bool = False,
) -> InputFrame:
    """Make the stream of a query's input `name`. known_schema: what was inferred for it once, when none is
    given. tracked: its number, where the rows of the query are to know their places. real_time: whether it is
    read so."""
    raw = _from_kafka(spark, item, tracked, real_time)
    place = [F.col(column) for column in ("_key", "_partition", "_offset", "_timestamp")]
    if item.format == "raw":
        columns = [
            F.col(f"_{one}").alias(one) for one in ("key", "value", "partition", "offset", "timestamp")
        ]
        return InputFrame(raw.select(*columns, F.col("headers"), *place))
    if item.format in ("string", "binary"):
        value = F.col("_value").cast("string") if item.format == "string" else F.col("_value")
        return InputFrame(raw.select(value.alias("value"), *place))
    inferred = ""
    explain: Explain = _unexplained
    if item.format == "avro":
        decoded = avro_value(F.col("_value"), item)
        bad = F.col("_value").isNotNull() & F.col("_decoded").isNull()
    else:
        if not item.schema:
            inferred = known_schema or infer(spark, name, item)
        with _schema_of(name):
            kind = DataType.fromDDL(item.schema or inferred)
        decoded = json_value(F.col("_value"), kind)
        bad = F.col("_value").isNotNull() & F.col("_decoded").isNull()
        if isinstance(kind, StructType):
            explain = partial(misfit, spark, kind)
            bad = bad | F.coalesce(F.col(f"_decoded.{BROKEN}").isNotNull(), F.lit(False))
    raw = raw.withColumn("_decoded", decoded_once(decoded)).withColumn("_bad", bad)
    frame, counter = checked(raw, name, item, explain)
    return InputFrame(frame.select(*_fields(frame, "_decoded"), *place), inferred, counter)


@contextmanager
def _schema_of(name: str) -> Iterator[None]:
    """Say which schema it is that Spark cannot read, and not as if it were the query."""
    try:
        yield
    except ParseException as error:
        said = message_of(error).partition("\n\n== SQL")[0].strip()
        where = ("inputs", name, "schema")
        raise QueryError("query", f"the schema of input {name}: {said}", where) from error


def _unexplained(value: str) -> str:
    return ""


def _from_kafka(spark: SparkSession, item: StreamInput, tracked: int | None, real_time: bool) -> DataFrame:
    options = {
        **READER,
        # In real time a query reads what there is; there are no batches that it could bound.
        **({"maxOffsetsPerTrigger": str(item.max_offsets)} if not real_time else {}),
        "failOnDataLoss": str(item.fail_on_data_loss).lower(),
        "includeHeaders": str(item.format == "raw").lower(),
        **start_options(item.start),
        **item.kafka,
    }
    frame = spark.readStream.format("kafka").options(**options).load()
    if tracked is not None:
        jvm: Any = spark._jvm
        java: Any = frame._jdf
        frame = DataFrame(jvm.kiwigw.spark.InputPlace.tracked(java, tracked), spark)
    # With an underscore before them names hide no column of a value.
    names = ("key", "value", "partition", "offset", "timestamp")
    return frame.withColumnsRenamed({name: f"_{name}" for name in names})


def start_options(start: str | int) -> dict[str, str]:
    """Return where Spark's Kafka source begins without a checkpoint. start: as in `StreamInput`, or offsets
    as Spark writes them."""
    if isinstance(start, int):  # partitions without a record so young begin at their ends
        return {"startingTimestamp": str(start), "startingOffsetsByTimestampStrategy": "latest"}
    return {"startingOffsets": start}


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those of the options of Spark's source or sink that are for Kafka's own clients."""
    return {name.removeprefix(_OWN): value for name, value in options.items() if name.startswith(_OWN)}


def decoded_once(decoded: Column) -> Column:
    """Have each record decoded once. Spark moves filters to before the columns that they read, and would
    decode anew for each; but not past a column that it takes for one that differs from time to time."""
    return F.when(F.spark_partition_id() >= 0, decoded)


def _fields(frame: DataFrame, column: str) -> list[Column]:
    kind = frame.schema[column].dataType
    if not isinstance(kind, StructType):
        return [F.col(column).alias("value")]
    return [F.col(column).getField(one).alias(one) for one in kind.names if one != BROKEN]


@dataclass(slots=True)
class _InferredTopic:
    """What was inferred of a topic, and until when that holds for other queries."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ddl: str = ""
    fresh_until: float = 0.0


_topics_lock: Final = threading.Lock()
_topics: Final[dict[frozenset[tuple[str, str]], _InferredTopic]] = {}


def infer(spark: SparkSession, name: str, item: StreamInput) -> str:
    """Return DDL of the columns that JSON records have, from the first of them in the topic. Raises
    QueryError, and what Spark raises.

    Queries that begin together often read the same topic: it is looked at once for all of them.
    """
    with _topics_lock:
        topic = _topics.setdefault(frozenset(item.kafka.items()), _InferredTopic())
    with topic.lock:
        if time.monotonic() >= topic.fresh_until:
            topic.ddl = _infer(spark, name, item)
            topic.fresh_until = time.monotonic() + _FRESH_SECONDS
        return topic.ddl


def _infer(spark: SparkSession, name: str, item: StreamInput) -> str:
    options = {**TIMEOUTS, **item.kafka, "startingOffsets": "earliest", "endingOffsets": "latest"}
    records = spark.read.format("kafka").options(**options).load().select(F.col("value").cast("string"))
    found = ddl_of(spark, [row[0] for row in records.limit(_LOOKED_AT).collect()])
    if not found:
        raise QueryError(
            "unreachable",
            f"input {name} has no schema, and {item.source!r} no JSON object yet to infer it from",
        )
    return found


def ddl_of(spark: SparkSession, values: list[str | None]) -> str:
    """Return DDL that fits the JSON objects among the values, in the words of Spark; empty if there is
    none."""
    objects = [value for value in values if value is not None and _is_object(value)]
    if not objects:
        return ""
    text = F.schema_of_json(F.lit("[" + ",".join(objects) + "]"))
    kind = spark.range(1).select(F.from_json(F.lit("[]"), text)).schema[0].dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return ""
    return ", ".join(
        f"`{one.name.replace('`', '``')}` {one.dataType.simpleString()}" for one in kind.elementType
    )


def _is_object(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def avro_value(value: Column, item: StreamInput, read_as: Callable[[str], str] = str) -> Column:
    """Return the decoded value, null where it cannot be decoded. read_as: makes of a schema the one by which
    it is read. Raises QueryError.

    With a registry each record is decoded by the schema it names, into the newest one of the subject; a
    record of a schema that was registered after the query began is a bad one until the query begins anew.
    """
    if not item.registry:
        return from_avro(value, read_as(item.avro), {"mode": "PERMISSIVE"})
    known = schemas_of(item.registry, item.registry_subject)
    versions = {number: read_as(schema) for number, schema in known.items()}
    newest = versions[max(versions)]
    named = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("int")
    plain = F.substring(value, _AVRO_HEADER + 1, 2**31 - 1)
    magic = F.hex(F.substring(value, 1, 1)) == "00"
    decoded = F.lit(None)
    for number, schema in versions.items():
        one = from_avro(plain, schema, {"mode": "PERMISSIVE", "avroSchema": newest})
        decoded = F.when(magic & (named == number), one).otherwise(decoded)
    return decoded


def schemas_of(registry: str, subject: str) -> dict[int, str]:
    """Return the schemas of a subject by their ids, oldest first."""
    base = f"{registry.rstrip('/')}/subjects/{quote(subject, safe='')}/versions"
    found = {}
    for version in sorted(json.loads(_get(base))):
        one = json.loads(_get(f"{base}/{version}"))
        found[int(one["id"])] = str(one["schema"])
    return found


def _get(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise QueryError("query", f"{url} is no URL of a Schema Registry")
    try:
        with urllib.request.urlopen(url, timeout=_REGISTRY_SECONDS) as answer:  # noqa: S310  (checked above)
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise QueryError("query", f"{url}: not found") from error
        raise QueryError("unreachable", f"the Schema Registry does not answer at {url}: {error}") from error
    except OSError as error:
        raise QueryError("unreachable", f"the Schema Registry does not answer at {url}: {error}") from error
