"""Has Spark analyse a query without running it."""

from __future__ import annotations

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kiwi_spark.driver.checkpoint_files import files_of
from kiwi_spark.driver.checkpoints import Checkpoints
from kiwi_spark.driver.error_classification import QueryError, causes_of, classify_error, message_of
from kiwi_spark.driver.json_types import as_json
from kiwi_spark.driver.query_plan import build, check_streaming, explained
from kiwi_spark.driver.real_time import why_batches
from kiwi_spark.driver.session import Engine
from kiwi_spark.driver.topic_offsets import look
from kiwi_spark.protocol.messages import QueryAnalysed
from kiwi_spark.protocol.query_spec import QuerySpec

_LINE: Final = re.compile(
    r"== SQL(?: of [^\n]*)? \(line (\d+)|\(line (\d+), pos \d+\)|; line (\d+),? pos \d+"
)

_POSITION: Final = re.compile(r"\bline (\d+),? pos (\d+)\b")


def analyse(engine: Engine, run: int, query: QuerySpec, *, explain: bool) -> QueryAnalysed:
    """Ask Spark what it says of a query. Schemas that are neither given nor in the query's checkpoint, with
    which it would run, are inferred, for which Kafka is asked."""
    try:
        with engine.temporary_session() as spark:
            known = Checkpoints(files_of(spark), query.checkpoint, query.source, spark.version).schemas()
            built = build(spark, query, known, distributed=engine.distributed)
            rows = as_json(built.frame, query.key)
            check_streaming(rows, query.output_mode)
            threads = engine.real_time_partitions
            why = why_batches(query, built, distributed=engine.distributed, threads=threads)
            real_time = query.real_time != "no" and not why
            partitions = _partitions(spark, query) if real_time else 0
            plan = explained(built.frame) if explain else ""
            columns = [(field.name, field.dataType.simpleString()) for field in built.frame.schema.fields]
    except Exception as error:  # noqa: BLE001  (whatever it is, the user sees it)
        message = _message(error)
        error_kind, _ = classify_error(error)
        where = list(error.where) if isinstance(error, QueryError) else []
        return QueryAnalysed(
            run=run,
            error=whose_lines(message, where[-1] if where else "query"),
            error_kind=error_kind,
            line=line_of(error, message, query.sql),
            where=where,
        )
    notes = []
    if built.stateful and not query.watermarks:
        notes.append("Spark keeps state for this query, and without a watermark the state grows for ever")
    return QueryAnalysed(
        run=run,
        columns=columns,
        schemas=built.schemas,
        notes=notes,
        plan=plan,
        real_time=real_time,
        partitions=partitions,
        batches_because=why,
    )


def whose_lines(message: str, what: str) -> str:
    """Say what Spark counts lines of: beside it stands a line of the configuration."""
    return _POSITION.sub(rf"line \1 of the {what}, position \2", message)


def _partitions(spark: SparkSession, query: QuerySpec) -> int:
    """Count the partitions that a query reads; 0 if Kafka does not say."""
    try:
        return sum(len(one.end) for one in look(spark, query).values())
    except Py4JJavaError as error:
        if classify_error(error)[0] != "unreachable":
            raise
        return 0


def _message(error: Exception) -> str:
    if isinstance(error, PySparkException):
        return message_of(error)
    if isinstance(error, QueryError) and error.where:
        return str(error)
    for cause in causes_of(error):
        if cause.kind.endswith(("AnalysisException", "ParseException")):
            return cause.message.strip()
    return classify_error(error)[1]


def line_of(error: Any, message: str, sql: str) -> int:
    """Return the line of the SQL, from 1, that Spark's error is about; 0 if it does not say."""
    found = _LINE.search(message)
    if found is not None:
        return int(next(group for group in found.groups() if group))
    if isinstance(error, PySparkException):
        for context in error.getQueryContext() or []:
            at = context.startIndex()
            if 0 <= at < len(sql):
                return sql.count("\n", 0, at) + 1
    return 0
