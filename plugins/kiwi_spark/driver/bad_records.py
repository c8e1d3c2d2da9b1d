"""The records of an input that could not be decoded: what becomes of them, and how many there were.

In a JVM of ours they are counted by an accumulator (`BadRecords.java`), over Spark Connect by what Spark
offers there, `observe`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, is_remote
from pyspark.sql import functions as F  # noqa: N812

from kiwi_spark.driver.error_classification import BAD_MARK
from kiwi_spark.protocol.query_spec import StreamInput

_SHOWN: Final = 200  # characters of a bad record
_EXPLAINED_SECONDS: Final = 10.0
"""How often Spark may be asked what is wrong with a record of an input: batches may come faster."""

Counted = tuple[int, str, str]
"""How many there were, one of them with its place, and what of it does not fit (empty where unknown)."""

Explain = Callable[[str], str]
"""Finds what of a record (its value as text) does not fit the schema; empty if that is not found."""


class BadRecordCounter:
    """Counts those of one input."""

    def __init__(self, java: Any, explain: Explain) -> None:
        self._java = java
        self._explain = explain
        self._explained = -_EXPLAINED_SECONDS

    def take(self) -> Counted:
        """Return what was counted since the last call."""
        count, _, sample = str(self._java.take()).partition(" ")
        place, _, value = sample.partition(": ")
        because = ""
        if value and time.monotonic() - self._explained >= _EXPLAINED_SECONDS:
            because = self._explain(value)
            self._explained = time.monotonic()
        return int(count), f"{place}: {value[:_SHOWN]}" if sample else "", because


def checked(
    frame: DataFrame, name: str, item: StreamInput, explain: Explain
) -> tuple[DataFrame, BadRecordCounter | None]:
    """Drop the records whose column `_bad` is true, make their `_decoded` null, or have them end the query;
    and count them. The counter is None where none are counted, or by `observe`, which explains nothing."""
    if item.on_bad_record == "fail":
        # Where it is, and not what it is: subscribers of the query may not be allowed to see the input.
        message = F.concat(F.lit(f"{BAD_MARK}: input {name}, "), _place())
        refused = F.when(F.col("_bad"), F.raise_error(message).cast("boolean")).otherwise(F.lit(True))
        return frame.filter(refused), None
    drop = item.on_bad_record == "drop"
    counter = None
    if is_remote():
        frame = _observed(frame, name, item)
        frame = frame.filter(~F.col("_bad")) if drop else frame
    else:
        spark: Any = frame.sparkSession
        records = spark._jvm.kiwigw.spark.BadRecords.open(name)
        java: Any = frame._jdf
        frame = DataFrame(records.counted(java, drop, item.format != "avro"), spark)
        counter = BadRecordCounter(records, explain)
    if not drop:
        frame = frame.withColumn("_decoded", F.when(~F.col("_bad"), F.col("_decoded")))
    return frame, counter


def _place() -> Column:
    return F.concat(F.lit("partition "), F.col("_partition"), F.lit(" offset "), F.col("_offset"))


def _observed(frame: DataFrame, name: str, item: StreamInput) -> DataFrame:
    value = F.col("_value")
    text = F.hex(value) if item.format == "avro" else value.cast("string")
    shown = F.concat(_place(), F.lit(": "), F.coalesce(F.substring(text, 1, _SHOWN), F.lit("")))
    return frame.observe(
        _observed_as(name),
        F.count_if(F.col("_bad")).alias("bad"),
        # The first of them; of partitions that are equally far, any. Of good records no text is made.
        F.min_by(F.when(F.col("_bad"), shown), F.when(F.col("_bad"), F.col("_offset"))).alias("sample"),
    )


def _observed_as(name: str) -> str:
    return f"kiwi_bad_{name}"


def observed(said: Any, streams: Iterable[str]) -> Counted:
    """Return what was observed over Connect in a batch. said: Spark's StreamingQueryProgress."""
    rows = {name: _row(row) for name, row in (said.observedMetrics or {}).items()}
    counted = {name: rows[_observed_as(name)] for name in streams if _observed_as(name) in rows}
    return added_up({name: (row["bad"], row["sample"] or "", "") for name, row in counted.items()})


def _row(row: Any) -> Any:
    """Return what was observed, by name: a row comes as its values and its schema."""
    return dict(zip((one["name"] for one in row["schema"]["fields"]), row["values"], strict=True))


def added_up(counted: Mapping[str, Counted]) -> Counted:
    """Count the bad records of all inputs. Returns one of them, too, with its place."""
    shown = [(f"input {name}, {sample}", why) for name, (count, sample, why) in counted.items() if count]
    return (sum(one[0] for one in counted.values()), *(shown[0] if shown else ("", "")))
