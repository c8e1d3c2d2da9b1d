"""The tables of a query over ranges, made of rows as Spark's Kafka source has them, in this process."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from kiwi_gw.dialects.lenses.sql import GroupedStatement, read_any, written
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.range_inputs import table_frame
from kiwi_spark.driver.range_schemas import _no_object, unread
from kiwi_spark.driver.range_thread import check_sql
from kiwi_spark.protocol.range_query import Form, RangeQuery, TopicTable
from tests.integration.spark.test_lenses_sql import pytestmark as pytestmark
from tests.integration.spark.test_lenses_sql import spark as spark

RAW = (
    "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
NUMBERS = StructType([StructField("n", LongType())])
MOMENT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def read(
    spark: SparkSession,
    form: Form,
    *values: bytes | None,
    kind: DataType | None = None,
    sql: str = "SELECT value, offset FROM t0",
) -> list[tuple[Any, ...]]:
    """Read these values of a topic, whose offsets count from 0."""
    rows = [(b"k", value, 0, n, MOMENT, [("h", b"x")]) for n, value in enumerate(values)]
    raw = spark.createDataFrame(rows, RAW)
    table = TopicTable(source="s", topic="t", kafka={}, value=form)
    kinds = {} if kind is None else {"value": kind}
    table_frame(raw, table, sql, kinds).createOrReplaceTempView("t0")
    return [tuple(row) for row in spark.sql(sql).collect()]


@pytest.mark.parametrize(
    ("form", "values", "read_as"),
    [
        ("string", [b"a", b"\xff", None], {0: "a", 2: None}),
        ("binary", [b"\x00\xff", None], {0: "AP8=", 1: None}),
        ("int", [b"\xff\xff\xff\xfe", b"\0\0\0\x07", b"\0", None], {0: -2, 1: 7, 3: None}),
        ("long", [(-5).to_bytes(8, "big", signed=True), b"\0" * 4], {0: -5}),
    ],
)
def test_values_are_decoded_and_those_that_cannot_be_are_left_out(
    spark: SparkSession, form: Form, values: list[bytes | None], read_as: dict[int, Any]
) -> None:
    found = {offset: value for value, offset in read(spark, form, *values)}
    assert {n: tuple(v) if isinstance(v, tuple) else v for n, v in found.items()} == read_as


def test_json_has_members_and_what_is_none_is_left_out(spark: SparkSession) -> None:
    sql = "SELECT t0.value.n AS n, offset FROM t0"
    values = (b'{"n":1}', b"{", b'{"n":"x"}', None, b'{"m":2}')
    assert read(spark, "json", *values, kind=NUMBERS, sql=sql) == [(1, 0), (None, 2), (None, 3), (None, 4)]


def test_json_that_is_no_object(spark: SparkSession) -> None:
    lists = read(spark, "json", b"[1,2]", b"{", kind=ArrayType(LongType()))
    assert lists == [([1, 2], 0)]
    assert read(spark, "json", b"5", b"nope", kind=LongType()) == [(5, 0)]
    assert read(spark, "json", b'"a"', kind=StringType()) == [("a", 0)]


def test_nothing_is_decoded_that_nobody_reads(spark: SparkSession) -> None:
    sql = "SELECT count(1) AS n, max(value_size) AS size, max(timestamp) AS at FROM t0"
    assert read(spark, "json", b"{", b"nope", sql=sql) == [(2, 4, int(MOMENT.timestamp() * 1000))]
    assert read(spark, "string", b"a", sql="SELECT headers['h'] AS h, key FROM t0") == [("x", "k")]


def test_types_of_what_is_no_object(spark: SparkSession) -> None:
    assert _no_object(spark, ["1", "2", None, "{"]) == LongType()
    assert _no_object(spark, [None, "{"]) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a, sum(n) FROM t GROUP BY a",
        "SELECT a.`b c`[0].d, a.e, _value FROM t WHERE n > 5 ORDER BY n",
        "SELECT * FROM t ORDER BY a.b",
        "SELECT flag, count_if(flag), max(n + 1), avg(x) FROM t WHERE flag AND s LIKE 'a%' GROUP BY flag",
        "SELECT upper(s), if(flag, n, 1) FROM t WHERE NOT flag ORDER BY n",
    ],
)
def test_a_topic_without_records_has_no_rows(spark: SparkSession, text: str) -> None:
    statement = read_any(text)
    assert isinstance(statement, GroupedStatement)
    sql = written(statement).sql
    assert read(spark, "json", kind=unread(sql, "value"), sql=sql) == []


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM parquet.`/etc`", "SELECT 1 FROM other", "SELECT * FROM range(3)"]
)
def test_nothing_but_its_own_tables_is_read(spark: SparkSession, sql: str) -> None:
    query = RangeQuery(
        source="q",
        sql=sql,
        tables={"t0": TopicTable(source="s", topic="t", kafka={})},
        result_bytes=1,
        offsets=1,
    )
    with pytest.raises(QueryError, match="which is none of its tables"):
        check_sql(spark, query)
