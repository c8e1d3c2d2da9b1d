"""The schema of JSON records that have none given, from the first of them in the topic."""

from __future__ import annotations

import json
import math
import threading
import time
from concurrent.futures import Future
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StructType

from kiwi_spark.spec import StreamInput

SAMPLE: Final = 1000
"""Records that are looked at."""

_FRESH_SECONDS: Final = 10.0
"""So long other queries are told the same."""

_TIMEOUTS: Final = {"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "9000"}


class SchemaUnknown(Exception):  # noqa: N818  (it says what is missing)
    """No schema is given, and none can be inferred (yet)."""

    def __init__(self, message: str, *, later: bool) -> None:
        """later: whether it may be inferred when there are records."""
        super().__init__(message)
        self.later = later


_shared: Final[dict[frozenset[tuple[str, str]], tuple[float, Future[str]]]] = {}
_shared_lock = threading.Lock()


def infer(spark: SparkSession, name: str, item: StreamInput) -> str:
    """DDL of the columns that the records have. Raises SchemaUnknown, and what Spark raises.

    Queries that begin together often read the same topic: it is looked at once for all of them.
    """
    if item.kafka is None:
        raise SchemaUnknown(
            f"input {name} needs a schema: it can be inferred of a Kafka topic only", later=False
        )
    topic = frozenset(item.kafka.items())
    with _shared_lock:
        for other in [one for one, (until, _) in _shared.items() if until < time.monotonic()]:
            del _shared[other]
        _, found = _shared.get(topic, (0.0, None))
        if found is not None:
            mine = None
        else:
            mine = found = Future[str]()
            _shared[topic] = math.inf, found
    if mine is not None:
        try:
            mine.set_result(_infer(spark, name, item))
            until = time.monotonic() + _FRESH_SECONDS
        except BaseException as error:  # noqa: BLE001  (raised below, by whoever waits for it)
            mine.set_exception(error)
            until = 0.0
        with _shared_lock:
            _shared[topic] = until, mine
    return found.result()


def _infer(spark: SparkSession, name: str, item: StreamInput) -> str:
    options = {**_TIMEOUTS, **(item.kafka or {}), "startingOffsets": "earliest", "endingOffsets": "latest"}
    records = spark.read.format("kafka").options(**options).load().select(F.col("value").cast("string"))
    found = ddl_of(spark, [row[0] for row in records.limit(SAMPLE).collect()])
    if not found:
        raise SchemaUnknown(
            f"input {name} has no schema, and {item.source!r} no JSON object yet to infer it from", later=True
        )
    return found


def ddl_of(spark: SparkSession, values: list[str | None]) -> str:
    """DDL that fits the JSON objects among the values, in the words of Spark; empty if there is none."""
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
