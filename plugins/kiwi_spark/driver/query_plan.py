"""A query as Spark sees it: its inputs as views, its SQL or function applied."""

from __future__ import annotations

import importlib
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession, is_remote

from kiwi_spark.driver import inputs
from kiwi_spark.driver.bad_records import BadRecordCounter
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.protocol.query_spec import OutputMode, QuerySpec

_import_lock = threading.Lock()

_ANALYSED: Final = "== Analyzed Logical Plan =="
_OPTIMISED: Final = "== Optimized Logical Plan =="
_PHYSICAL: Final = "== Physical Plan =="
"""Where the parts of a plan begin on a Spark Connect server, where plans are text."""

_NODE: Final = re.compile(r"^([ :|+-]*)(~?)(\w+)")
_STEP: Final = 3
"""Characters by which a child is further in."""

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
class BuiltQuery:
    """frame: the result. schemas: what was inferred, by input. stateful: whether Spark keeps state for it.
    bad: what counts bad records, by input."""

    frame: DataFrame
    schemas: dict[str, str]
    stateful: bool
    bad: dict[str, BadRecordCounter]


def build(
    spark: SparkSession,
    query: QuerySpec,
    known: Mapping[str, str],
    *,
    distributed: bool,
    tracked: bool = False,
    real_time: bool = False,
) -> BuiltQuery:
    """Build the result of a query, analysed and not started. spark: a session for this query alone.

    known: schemas inferred before. distributed: as in `Engine`. tracked: whether its rows are to know their
    places (`InputPlace.java`). real_time: whether it will run so. Raises what Spark raises, and QueryError.
    """
    ready = {
        name: inputs.stream(
            spark,
            name,
            item,
            known.get(name, ""),
            tracked=number if tracked else None,
            real_time=real_time,
        )
        for number, (name, item) in enumerate(query.streams.items())
    }
    for name, table in query.tables.items():
        if table.stream:
            ready[name] = inputs.files(spark, name, table, known.get(name, ""))
        else:
            ready[name] = inputs.InputFrame(inputs.table(spark, name, table))
    frames = {name: one.frame for name, one in ready.items()}
    schemas = {name: one.schema for name, one in ready.items() if one.schema}
    for name, mark in query.watermarks.items():
        frames[name] = frames[name].withWatermark(mark.column, mark.delay)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"`{name}`" if not name.isidentifier() else name)
    result = spark.sql(query.sql) if query.sql else _transformed(query.transform, frames, distributed)
    if not result.isStreaming and query.sink is not None:
        raise QueryError("query", "the result is no stream, and only a stream is written to a `sink`")
    if not result.isStreaming and (query.trigger or query.streams):
        raise QueryError("query", "the result is no stream: it reads none of the streams among the inputs")
    bad = {name: one.bad for name, one in ready.items() if one.bad is not None}
    return BuiltQuery(result, schemas, keeps_state(analysed_plan(result)), bad)


def _transformed(name: str, frames: dict[str, DataFrame], distributed: bool) -> DataFrame:
    """Return what `module:function` makes of the inputs. A module that was imported before is read anew, as a
    reload of the configuration may mean that it was edited. distributed: its functions are sent to other
    machines as they are, where they cannot be imported."""
    module, _, function = name.partition(":")
    try:
        # Several queries start at once, and while one thread reads a module anew, another finds half of it.
        with _import_lock:
            known = sys.modules.get(module)
            importlib.invalidate_caches()
            loaded = importlib.import_module(module) if known is None else importlib.reload(known)
            if distributed:
                register_pickle_by_value(loaded)  # type: ignore[no-untyped-call]
            transform = getattr(loaded, function)
        result = transform(frames)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise QueryError(
            "query", f"{name}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        ) from error
    if not isinstance(result, DataFrame):
        raise QueryError("query", f"{name} returned {type(result).__name__}, not a DataFrame")
    return result


def analysed_plan(frame: DataFrame) -> str:
    """Return the analysed plan of a result, as text."""
    if is_remote():
        return _between(_remote_plans(frame), _ANALYSED, _OPTIMISED)
    return str(_jvm_frame(frame).queryExecution().analyzed().toString())


def keeps_state(plan: str) -> bool:
    """Find whether Spark keeps state between the batches of a query. plan: analysed; `~` marks a stream.

    ~Join Inner
    :- ~Project [a#1]
    :  +- ~StreamingRelationV2 ...
    +- Relation [b#2] csv
    """
    joins: dict[int, int] = {}  # by depth: the streams right below the join that is open there
    for depth, streaming, kind in _nodes(plan):
        joins = {at: count for at, count in joins.items() if at < depth}
        if streaming and depth - _STEP in joins:
            joins[depth - _STEP] += 1
            if joins[depth - _STEP] > 1:
                return True
        if streaming and kind in _STATEFUL:
            return True
        if streaming and kind == "Join":
            joins[depth] = 0
    return False


def _nodes(plan: str) -> Iterator[tuple[int, bool, str]]:
    """Yield the depth of each node, whether it is a stream, and what it is called."""
    for found in map(_NODE.match, plan.splitlines()):
        if found is not None:
            yield len(found[1]), bool(found[2]), found[3]


def filters_results(plan: str) -> bool:
    """Find whether a stream has a filter above its aggregates, such as HAVING: of a row that no longer passes
    nothing would be told. plan: as in `keeps_state`."""
    filters: list[int] = []  # depths of those that are open
    for depth, streaming, kind in _nodes(plan):
        filters = [at for at in filters if at < depth]
        if streaming and kind == "Aggregate" and filters:
            return True
        if streaming and kind == "Filter":
            filters.append(depth)
    return False


def check_streaming(frame: DataFrame, output_mode: OutputMode) -> None:
    """Raise AnalysisException for what Spark does not do with streams, as its start would."""
    if not frame.isStreaming:
        return
    if is_remote():  # where only a start tells: with nowhere to write to, and stopped at once
        writer = frame.writeStream.format("noop").outputMode(output_mode)
        writer.trigger(processingTime="1 day").start().stop()
        return
    spark: Any = frame.sparkSession
    sql = spark._jvm.org.apache.spark.sql
    mode = getattr(sql.streaming.OutputMode, output_mode.capitalize())()
    sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
        _jvm_frame(frame).queryExecution().analyzed(), mode
    )


def explained(frame: DataFrame) -> str:
    """Return the analysed and the optimised plan, for people; a stream has a physical one only while it runs.
    Over Connect Spark shows the optimised one only of what is no SQL. For a frame of a session that nothing
    else uses any longer."""
    if is_remote():
        plans = _remote_plans(frame)
        analysed = _between(plans, _ANALYSED, _OPTIMISED)
        optimised = _between(plans, _OPTIMISED, _PHYSICAL)
        return f"{_ANALYSED}\n{analysed}" + (
            f"\n{_OPTIMISED}\n{optimised}" if "AnalysisException" not in optimised else ""
        )
    spark: Any = frame.sparkSession
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")  # else: not without a start
    plan = _jvm_frame(frame).queryExecution()
    return f"{_ANALYSED}\n{plan.analyzed().toString()}\n{_OPTIMISED}\n{plan.optimizedPlan().toString()}"


def _jvm_frame(frame: Any) -> Any:
    return frame._jdf


def _remote_plans(frame: Any) -> str:
    return str(frame._explain_string(extended=True))


def _between(plans: str, begin: str, end: str) -> str:
    return plans.partition(begin)[2].partition(end)[0].strip()
