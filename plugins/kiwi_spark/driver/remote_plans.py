"""What is asked about a query on a Spark Connect server, where its plans are text."""

from __future__ import annotations

import re
from typing import Any, Final

from pyspark.sql import DataFrame

from kiwi_spark.spec import Query

_KEEPS_STATE: Final = re.compile(
    r"StateStoreSave|StateStoreRestore|StreamingSymmetricHashJoin|StreamingDeduplicate|StreamingGlobalLimit"
    r"|FlatMapGroupsWithState|FlatMapGroupsInPandasWithState|TransformWithState"
)
_CHECK: Final = "spark.sql.streaming.unsupportedOperationCheck"


def is_stateful(frame: DataFrame) -> bool:
    """Whether Spark keeps state between the batches of a streaming query."""
    return keeps_state(_plans(frame))


def keeps_state(plans: str) -> bool:
    """The same, by what `explain` says of it."""
    return _KEEPS_STATE.search(plans) is not None


def check_streaming(frame: DataFrame, query: Query) -> None:
    """Raises AnalysisException for what Spark does not do with streams. Only a start tells: the query is
    started with nowhere to write to, and stopped at once."""
    writer = frame.writeStream.format("noop").outputMode(query.output_mode)
    writer.trigger(processingTime="1 day").start().stop()


def explained(frame: DataFrame) -> str:
    """The analysed and the optimised plan, for people."""
    plans = _plans(frame)
    _, _, analysed = plans.partition("== Analyzed Logical Plan ==")
    logical, _, _ = analysed.partition("== Physical Plan ==")
    return f"== Analyzed Logical Plan =={logical}".rstrip()


def _plans(frame: DataFrame) -> str:
    spark: Any = frame.sparkSession
    before = spark.conf.get(_CHECK)
    spark.conf.set(_CHECK, "false")  # else there is no plan of a stream that does not run
    try:
        plans: Any = frame
        return str(plans._explain_string(extended=True))
    finally:
        spark.conf.set(_CHECK, str(before))
