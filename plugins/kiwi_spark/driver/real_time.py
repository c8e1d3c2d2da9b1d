"""Which queries run in real time, and how many partitions they may read together.

Theory of operation. In real time a query has one stage whose tasks run on and on: each holds a thread of the
driver for one partition, and what Spark has no operator for in that mode (aggregates, joins of streams,
anything in Python) it refuses when the query starts. Whether it will can be seen in its physical plan.
Threads are counted here, since a query that waits for one would wait for ever.
"""

from __future__ import annotations

import re
import threading
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, is_remote

from kiwi_spark.driver.error_classification import QueryError, causes_of
from kiwi_spark.driver.query_plan import BuiltQuery
from kiwi_spark.protocol.query_spec import QuerySpec

_OPERATOR: Final = re.compile(r"^[ :|+-]*(?:\*\(\d+\) )?(\w+)", re.MULTILINE)

_TOPIC: Final = re.compile(r"StreamingRelation kafka, \[\w+#(\d+)")

_SENT_STREAM: Final = re.compile(
    r"^([ :|]*)[+:]- BroadcastExchange.*\n(?:\1[ :|].*\n)*?\1[ :|].*StreamingRelation", re.M
)
"""A stream below a BroadcastExchange: what is deeper has more before it."""

_ALLOWED: Final = frozenset(
    {
        "AdaptiveSparkPlan",
        "BroadcastExchange",
        "BroadcastHashJoin",
        "CollectMetrics",
        "ColumnarToRow",
        "Expand",
        "FileScan",
        "Filter",
        "Generate",
        "LocalTableScan",
        "Project",
        "Range",
        "ReusedExchange",
        "Scan",
        "StreamingRelation",
        "Union",
    }
)
"""What Spark runs in real time and works on one record at a time (`RealTimeModeAllowlist`)."""

_WORDS: Final = (
    (re.compile(r"Python|Pandas|Arrow"), "it has functions in Python"),
    (re.compile(r"State|Aggregate|Dedup|Limit|EventTimeWatermark"), "it keeps state"),
    (re.compile(r"Exchange|Sort|Window"), "it needs a shuffle"),
    (re.compile(r"Join"), "a table is too large to be sent to every task (`/*+ BROADCAST(t) */` does so)"),
)


def why_batches(query: QuerySpec, built: BuiltQuery, *, distributed: bool, threads: int) -> str:
    """Return why a query runs in micro-batches; empty if it runs in real time, or says itself that it does
    not want to. threads: that there are for partitions. Raises QueryError where it wants nothing else and
    cannot."""
    if query.real_time == "no":
        return ""
    why = _refusal(query, built, distributed=distributed, threads=threads)
    if why and query.real_time == "only":
        raise QueryError("query", f"the query cannot run in real time: {why}", ["trigger"])
    return why


def _refusal(query: QuerySpec, built: BuiltQuery, *, distributed: bool, threads: int) -> str:
    if is_remote() or distributed:
        return "Spark is not on this machine"
    if not threads:
        return "there are no threads for it (`spark.real_time_partitions`)"
    if not query.streams or any(one.stream for one in query.tables.values()):
        return "it reads files as a stream"
    if not all(one.fail_on_data_loss for one in query.streams.values()):
        return "it is to go on without records that are gone (`fail_on_data_loss: false`)"
    if built.stateful:
        return "it keeps state"
    return _refused_by_rules(built.frame) or refused_by_plan(_physical_plan(built.frame))


def _refused_by_rules(frame: Any) -> str:
    """Ask Spark's own rules for analysed plans."""
    sql = frame.sparkSession._jvm.org.apache.spark.sql
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkAdditionalRealTimeModeConstraints(
            frame._jdf.queryExecution().analyzed(), sql.streaming.OutputMode.Update()
        )
    except (AnalysisException, Py4JJavaError) as error:
        return causes_of(error)[0].message
    return ""


def refused_by_plan(plan: str) -> str:
    """Return why a query with this physical plan cannot run in real time; empty if it can."""
    for name in operators(plan):
        if name not in _ALLOWED:
            return next((words for pattern, words in _WORDS if pattern.search(name)), f"it needs {name}")
    topics = _TOPIC.findall(plan)
    if len(topics) < operators(plan).count("StreamingRelation"):
        return "it reads a stream that is none of its inputs"
    if _SENT_STREAM.search(plan):
        return "it sends a stream to every task"
    if len(set(topics)) < len(topics):  # rows of two branches would have one place
        return "it reads an input twice"
    return ""


def _physical_plan(frame: DataFrame) -> str:
    # Spark plans a stream for show, if it sees that it is one: in text of SQL that reads a view it does not.
    shown: Any = frame.select("*")
    modes = shown.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode
    return str(shown._jdf.queryExecution().explainString(modes.fromString("simple")))


def operators(plan: str) -> list[str]:
    """Return the names of the operators of a physical plan, as Spark shows it.

    == Physical Plan ==
    *(2) Project [a#1]
    +- *(2) BroadcastHashJoin [a#1], [b#2], Inner, BuildRight, false
       :- *(2) Filter isnotnull(a#1)
    """
    lines = plan.partition("== Physical Plan ==")[2].strip("\n").split("\n\n")[0]
    return [found[1] for found in map(_OPERATOR.match, lines.splitlines()) if found is not None]


class RealTimePlaces:
    """Threads of the driver that queries in real time hold, one for each partition. total: that there are."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, run: int, partitions: int) -> None:
        """Take one for every partition that a run reads. QueryError: so many are not free."""
        with self._lock:
            held = sum(self._held.values())
            if held + partitions > self.total:
                raise QueryError("query", too_many(partitions, held, self.total))
            self._held[run] = partitions

    def give_back(self, run: int) -> None:
        """Let go of those that a run holds, if it does."""
        with self._lock:
            self._held.pop(run, None)


def too_many(partitions: int, held: int, total: int) -> str:
    """Say that so many partitions cannot be read in real time."""
    return (
        f"the query would read {partitions} partitions in real time, others read {held}, and there are"
        f" threads for {total}: raise `spark.real_time_partitions`, or give a query a `trigger` with"
        " `processing_time`"
    )
