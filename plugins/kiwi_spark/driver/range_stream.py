"""A query over ranges of topics as a stream over the same ranges: its rows come as soon as there are some,
and again when they change."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from kiwi_spark.driver.checkpoint_files import files_of
from kiwi_spark.driver.json_types import as_json
from kiwi_spark.driver.query_plan import analysed_plan, check_streaming, filters_results
from kiwi_spark.driver.range_inputs import TopicRange, record_stream, table_frame
from kiwi_spark.protocol.range_query import ROWS, RangeQuery

_LIMIT: Final = re.compile(r"\s+LIMIT\s+(\d+)\s*$", re.IGNORECASE)


def streamed(
    spark: SparkSession,
    query: RangeQuery,
    ranges: Mapping[str, TopicRange],
    kinds: Mapping[str, Mapping[str, DataType]],
    cores: int,
) -> DataFrame | None:
    """Make the rows of a query as a stream; None where its last rows would not be its result, or Spark does
    not do it. kinds: by table, as in `table_frame`. cores: as in `records`."""
    for name, table in query.tables.items():
        raw = record_stream(spark, table, ranges[name], cores)
        table_frame(raw, table, query.sql, kinds[name]).createOrReplaceTempView(name)
    try:
        result = spark.sql(without_bound(query.sql))
        if not result.isStreaming or filters_results(analysed_plan(result)):
            return None
        rows = as_json(result, query.key, apart=True)
        check_streaming(rows, "update")
    except AnalysisException:
        return None
    return rows


def without_bound(sql: str) -> str:
    """Take out a LIMIT that is there only to bound the result: Spark knows none of a stream that changes."""
    found = _LIMIT.search(sql)
    return sql[: found.start()] if found is not None and int(found[1]) > ROWS else sql


@contextmanager
def scratch_folder(spark: SparkSession, query: RangeQuery, *, distributed: bool) -> Iterator[str]:
    """Make a folder for the state of a stream, and remove it: one of this machine, or, where others compute,
    too, below that of all checkpoints."""
    if distributed:
        folder = f"{query.checkpoint}/queries/{uuid.uuid4()}"
    else:
        folder = tempfile.mkdtemp(prefix="query-")
    try:
        yield folder
    finally:
        if distributed:
            files_of(spark).remove(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
