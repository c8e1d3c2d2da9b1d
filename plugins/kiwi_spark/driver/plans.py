"""A query as Spark sees it: its inputs as views, its SQL or function applied."""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession, is_remote

from kiwi_spark.driver import inputs, remote_plans
from kiwi_spark.driver.intervals import interval
from kiwi_spark.driver.troubles import TransformFailed
from kiwi_spark.spec import Query

_import_lock = threading.Lock()

_STATEFUL: Final = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "GlobalLimit",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
    }
)


@dataclass(frozen=True, slots=True)
class Built:
    """frame: the result. schemas: what was inferred, by input. stateful: whether Spark keeps state for it."""

    frame: DataFrame
    schemas: dict[str, str] = field(default_factory=dict)
    stateful: bool = False


def build(
    spark: SparkSession,
    query: Query,
    token: str,
    known: Mapping[str, str] | None = None,
    *,
    elsewhere: bool = False,
) -> Built:
    """The result of a query, analysed and not started. spark: a session for this query alone.

    known: schemas inferred before. elsewhere: as in `Engine`. Raises what Spark raises, SchemaUnknown,
    TransformFailed, RegistryAway.
    """
    frames: dict[str, DataFrame] = {}
    schemas: dict[str, str] = {}
    for name, item in query.streams.items():
        ready = inputs.stream(spark, name, item, token, (known or {}).get(name, ""))
        if ready.schema:
            schemas[name] = ready.schema
        frames[name] = ready.frame
    for name, table in query.tables.items():
        if not table.stream:
            frames[name] = inputs.table(spark, table)
            continue
        ready = inputs.files(spark, table, (known or {}).get(name, ""))
        if ready.schema:
            schemas[name] = ready.schema
        frames[name] = ready.frame
    for name, mark in query.watermarks.items():
        frames[name] = frames[name].withWatermark(mark.column, interval(mark.delay))
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"`{name}`" if not name.isidentifier() else name)
    result = spark.sql(query.sql) if query.sql else _transformed(query.transform, frames, elsewhere)
    if not result.isStreaming and query.sink is not None:
        raise TransformFailed("the result is no stream, and only a stream is written to a `sink`")
    if not result.isStreaming and (query.trigger or query.streams):
        raise TransformFailed("the result is no stream: it reads none of the streams among the inputs")
    return Built(result, schemas, is_stateful(result))


def _transformed(name: str, frames: dict[str, DataFrame], elsewhere: bool) -> DataFrame:
    """What `module:function` makes of the inputs. A module that was imported before is read anew, as a reload
    of the configuration may mean that it was edited. elsewhere: its functions are sent to other machines as
    they are, where nobody could import them."""
    module, _, function = name.partition(":")
    try:
        # Several queries start at once, and while one thread reads a module anew, another finds half of it.
        with _import_lock:
            known = sys.modules.get(module)
            importlib.invalidate_caches()
            loaded = importlib.import_module(module) if known is None else importlib.reload(known)
            if elsewhere:
                register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
            transform = getattr(loaded, function)
        result = transform(frames)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise TransformFailed(
            f"{name}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        ) from error
    if not isinstance(result, DataFrame):
        raise TransformFailed(f"{name} returned {type(result).__name__}, not a DataFrame")
    return result


def is_stateful(frame: DataFrame) -> bool:
    """Whether Spark keeps state between the batches of a streaming query."""
    if is_remote():
        return remote_plans.is_stateful(frame, _STATEFUL)
    return _keeps_state(_jvm_frame(frame).queryExecution().analyzed())


def _keeps_state(plan: Any) -> bool:
    if not plan.isStreaming():
        return False
    children = [plan.children().apply(number) for number in range(plan.children().size())]
    streaming = [child for child in children if child.isStreaming()]
    kind = str(plan.nodeName())
    if (kind in _STATEFUL and streaming) or (kind == "Join" and len(streaming) > 1):
        return True
    return any(_keeps_state(child) for child in streaming)


def check_streaming(frame: DataFrame, query: Query) -> None:
    """Raises AnalysisException for what Spark does not do with streams, as its start would."""
    if not frame.isStreaming:
        return
    if is_remote():
        remote_plans.check_streaming(frame, query)
        return
    spark: Any = frame.sparkSession
    sql = spark._jvm.org.apache.spark.sql
    mode = getattr(sql.streaming.OutputMode, query.output_mode.capitalize())()
    sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
        _jvm_frame(frame).queryExecution().analyzed(), mode
    )


def explained(frame: DataFrame) -> str:
    """The analysed and the optimised plan, for people; a stream has a physical one only while it runs. For a
    frame of a session that nothing else uses any longer."""
    if is_remote():
        return remote_plans.explained(frame)
    spark: Any = frame.sparkSession
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")  # else: not without a start
    plans = _jvm_frame(frame).queryExecution()
    analysed, optimised = plans.analyzed().toString(), plans.optimizedPlan().toString()
    return f"== Analyzed Logical Plan ==\n{analysed}\n== Optimized Logical Plan ==\n{optimised}"


def _jvm_frame(frame: Any) -> Any:
    return frame._jdf
