"""What a driver reads out of the SQL of a query over ranges, of Spark's plans and of Spark's messages."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DecimalType,
    FloatType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from kiwi_gw.dialects.lenses.sql import GroupedStatement, read_any, written
from kiwi_spark.driver.query_plan import filters_results
from kiwi_spark.driver.range_errors import classify_range_error, said_plainly
from kiwi_spark.driver.range_inputs import TopicRange, reads, without_logical_types
from kiwi_spark.driver.range_schemas import plain, unread
from kiwi_spark.driver.range_stream import without_bound
from kiwi_spark.protocol.range_query import RangeQuery


@pytest.mark.parametrize(
    ("sql", "column", "read"),
    [
        ("SELECT t0.value.a AS x FROM t0", "value", True),
        ("SELECT `t0`.`value`.`a` AS x FROM t0", "value", True),
        ("SELECT sum(t0.value_size) AS x FROM t0", "value", False),
        ("SELECT count(*) AS x FROM t0", "value", False),
        ("SELECT * FROM t0", "value", True),
        ("SELECT DISTINCT * FROM t0", "key", True),
        ("SELECT t0.* FROM t0", "key", True),
        ("SELECT t0.value.key AS x FROM t0", "key", True),  # who knows
    ],
)
def test_which_columns_a_query_may_read(sql: str, column: str, read: bool) -> None:
    assert reads(sql, column) is read


@pytest.mark.parametrize(
    ("sql", "rest"),
    [
        ("SELECT a FROM t0 LIMIT 10001", "SELECT a FROM t0"),
        ("SELECT a FROM t0\n limit 10001 ", "SELECT a FROM t0"),
        ("SELECT a FROM t0 LIMIT 10000", "SELECT a FROM t0 LIMIT 10000"),
        (
            "SELECT a FROM (SELECT a FROM t0 LIMIT 20000) AS b",
            "SELECT a FROM (SELECT a FROM t0 LIMIT 20000) AS b",
        ),
        ("SELECT 'LIMIT 10001' AS a FROM t0", "SELECT 'LIMIT 10001' AS a FROM t0"),
    ],
)
def test_a_limit_that_only_bounds_the_result_is_none_of_a_stream(sql: str, rest: str) -> None:
    assert without_bound(sql) == rest


def test_the_members_that_a_query_reads_of_what_is_nowhere() -> None:
    sql = "SELECT t0.value.a.`b c` AS x, `t0`.`value`.`a`.d AS y, t1.value.e AS z, t0.value_size AS s FROM t0"
    kind = unread(sql, "value")
    assert kind.simpleString() == "struct<a:struct<b c:void,d:void>,e:void>"
    assert unread("SELECT t0.value AS v FROM t0", "value").simpleString() == "string"


def test_types_that_queries_without_spark_do_not_have() -> None:
    kind = (
        StructType()
        .add("a", DecimalType(20, 0))
        .add("b", ArrayType(FloatType()))
        .add("c", StructType().add("d", ShortType()))
        .add("e", LongType())
        .add("f", MapType(StringType(), ByteType()))
    )
    expected = "struct<a:double,b:array<double>,c:struct<d:int>,e:bigint,f:map<string,int>>"
    assert plain(kind).simpleString() == expected


@pytest.mark.parametrize(
    ("said", "plainly"),
    [
        (
            '[DATATYPE_MISMATCH.X] Cannot resolve "sum(t0.value.o)" so. SQLSTATE: 42K09; line 1 pos 7',
            'Cannot resolve "sum(value.o)" so.',
        ),
        ('[A_B] One. If necessary set "spark.sql.x" to "false".', "One."),
        ("[A] `t0`.`value` is none\n== SQL (line 1) ==\nSELECT", "`value` is none"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)
def test_what_spark_says_without_what_is_spark_s(said: str, plainly: str) -> None:
    assert said_plainly(said) == plainly


class NoField(AnalysisException):
    """What Spark raises of a member that there is not: it names all that there are."""

    fields = ", ".join(f"`member{number}`" for number in range(100_000))

    def getCondition(self) -> str:  # noqa: N802  (Spark calls it so)
        return "FIELD_NOT_FOUND"

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return {"fieldName": "`x`", "fields": self.fields}


def test_what_a_client_is_told_is_not_longer_than_it_reads() -> None:
    asked = RangeQuery(source="q", sql="", tables={}, key=[], result_bytes=1, offsets=1)
    error_kind, words = classify_range_error(NoField("[FIELD_NOT_FOUND] No such struct field"), asked)
    assert (error_kind, len(words)) == ("query", 2000)
    assert words.startswith("there is no member `x` (there are: `member0`, `member1`, ")


def test_an_avro_schema_without_logical_types() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}],
    }
    plain_schema = json.loads(without_logical_types(json.dumps(schema)))
    assert plain_schema["fields"] == [{"name": "at", "type": ["null", {"type": "long"}]}]


HAVING = """\
~Project [c#1]
+- ~Filter (n#2L > 1)
   +- ~Aggregate [c#1], [c#1, count(1) AS n#2L]
      +- ~SubqueryAlias t0
"""
WHERE = """\
~Aggregate [c#1], [c#1, count(1) AS n#2L]
+- ~Filter (c#1 > 1)
   +- ~SubqueryAlias t0
"""
BESIDE = """\
~Join Inner
:- ~Filter (c#1 > 1)
:  +- ~SubqueryAlias t0
+- ~Aggregate [c#1], [c#1, count(1) AS n#2L]
   +- ~SubqueryAlias t1
"""


@pytest.mark.parametrize(("plan", "filters"), [(HAVING, True), (WHERE, False), (BESIDE, False)])
def test_whether_a_result_is_filtered_that_changes(plan: str, filters: bool) -> None:
    assert filters_results(plan) is filters


def test_a_range_counts_its_offsets() -> None:
    assert TopicRange({0: 5, 2: 0}, {0: 7, 2: 10}).offsets == 12


def test_what_is_nowhere_has_the_members_that_a_client_s_statement_reads() -> None:
    """As it is written anew for Spark."""
    text = "SELECT a.`b c`[0].d, a.`b c`[1].`\u00e9'`, sum(n) FROM t GROUP BY 1, 2"
    statement = read_any(text)
    assert isinstance(statement, GroupedStatement)
    kind = unread(written(statement).sql, "value")
    assert kind.simpleString() == "struct<a:struct<b c:array<struct<d:void,\u00e9':void>>>,n:void>"
