"""What is asked about a query on a Spark Connect server, where its plans are text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from pyspark.sql import DataFrame

from kiwi_spark.spec import Query

_NODE: Final = re.compile(r"^([ :|+-]*)(~?)(\w+)")
_ANALYSED: Final = "== Analyzed Logical Plan =="
_OPTIMISED: Final = "== Optimized Logical Plan =="
_PHYSICAL: Final = "== Physical Plan =="
_STEP: Final = 3  # characters by which a child is further in


def is_stateful(frame: DataFrame, stateful: Collection[str]) -> bool:
    """Whether Spark keeps state between the batches of a streaming query. stateful: nodes that do."""
    return keeps_state(_analysed(_plans(frame)), stateful)


def keeps_state(plan: str, stateful: Collection[str]) -> bool:
    """The same, of an analysed plan, where Spark marks what is a stream by `~`.

    ~Join Inner
    :- ~Project [a#1]
    :  +- ~StreamingRelationV2 ...
    +- Relation [b#2] csv
    """
    joins: dict[int, int] = {}  # by depth: the streams right below the join that is open there
    for line in plan.splitlines():
        found = _NODE.match(line)
        if found is None:
            continue
        depth, streaming, kind = len(found[1]), bool(found[2]), found[3]
        joins = {at: count for at, count in joins.items() if at < depth}
        if streaming and depth - _STEP in joins:
            joins[depth - _STEP] += 1
            if joins[depth - _STEP] > 1:
                return True
        if streaming and kind in stateful:
            return True
        if streaming and kind == "Join":
            joins[depth] = 0
    return False


def check_streaming(frame: DataFrame, query: Query) -> None:
    """Raises AnalysisException for what Spark does not do with streams. Only a start tells: the query is
    started with nowhere to write to, and stopped at once."""
    writer = frame.writeStream.format("noop").outputMode(query.output_mode)
    writer.trigger(processingTime="1 day").start().stop()


def explained(frame: DataFrame) -> str:
    """The analysed plan, for people. The optimised one Spark shows over Connect only of what is no SQL."""
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
