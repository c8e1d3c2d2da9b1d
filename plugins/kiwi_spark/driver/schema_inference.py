"""The schema of JSON records that have none given, from the first of them in the topic."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StructType

from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.protocol.query_spec import StreamInput

SAMPLE: Final = 1000
"""Records that are looked at."""

_FRESH_SECONDS: Final = 10.0
"""How long what was inferred holds for other queries."""

_TIMEOUTS: Final = {"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "9000"}


@dataclass(slots=True)
class _InferredTopic:
    """What was inferred of a topic, and until when that holds for other queries."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ddl: str = ""
    fresh_until: float = 0.0


_topics_lock: Final = threading.Lock()
_topics: Final[dict[frozenset[tuple[str, str]], _InferredTopic]] = {}


def infer(spark: SparkSession, name: str, item: StreamInput) -> str:
    """Return DDL of the columns that the records have. Raises QueryError, and what Spark raises.

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
    options = {**_TIMEOUTS, **item.kafka, "startingOffsets": "earliest", "endingOffsets": "latest"}
    records = spark.read.format("kafka").options(**options).load().select(F.col("value").cast("string"))
    found = ddl_of(spark, [row[0] for row in records.limit(SAMPLE).collect()])
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
