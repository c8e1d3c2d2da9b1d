"""What is asked about a query on a Spark Connect server, where its plans are text."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from kiwi_spark.protocol.query_spec import QuerySpec

_ANALYSED: Final = "== Analyzed Logical Plan =="
_OPTIMISED: Final = "== Optimized Logical Plan =="
_PHYSICAL: Final = "== Physical Plan =="


def analysed_plan(frame: DataFrame) -> str:
    """Return the analysed plan of a result."""
    return _analysed(_plans(frame))


def check_streaming(frame: DataFrame, query: QuerySpec) -> None:
    """Raise AnalysisException for what Spark does not do with streams. Only a start tells: the query is
    started with nowhere to write to, and stopped at once."""
    writer = frame.writeStream.format("noop").outputMode(query.output_mode)
    writer.trigger(processingTime="1 day").start().stop()


def explained(frame: DataFrame) -> str:
    """Return the analysed plan, for people. The optimised one Spark shows over Connect only of what is no
    SQL."""
    plans = _plans(frame)
    _, _, optimised = plans.partition(_OPTIMISED)
    optimised, _, _ = optimised.partition(_PHYSICAL)
    more = f"\n{_OPTIMISED}\n{optimised.strip()}" if "AnalysisException" not in optimised else ""
    return f"{_ANALYSED}\n{_analysed(plans)}{more}"


def _analysed(plans: str) -> str:
    _, _, plan = plans.partition(_ANALYSED)
    plan, _, _ = plan.partition(_OPTIMISED)
    return plan.strip()


def _plans(frame: DataFrame) -> str:
    remote: Any = frame
    return str(remote._explain_string(extended=True))
