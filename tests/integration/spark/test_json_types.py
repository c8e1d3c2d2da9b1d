"""The JSON form of every Spark SQL type, made by a real Spark, against what the module documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.json_types import OPTIONS, as_json
from kiwi_spark.driver.session import open_session
from kiwi_spark.protocol.query_spec import SessionSpec
from tests.integration.spark.shared_classes import small_jvm

pytestmark = [
    pytest.mark.integration,
    # PySpark leaves the sockets by which it collects to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# SQL of a value -> the JSON text of its form; `same` says that Spark's own to_json, with the options that
# make its times whole and its nulls seen, writes the same.
FORMS: list[tuple[str, str, bool]] = [
    ("true", "true", True),
    ("1Y", "1", True),
    ("-2S", "-2", True),
    ("3", "3", True),
    ("9223372036854775807L", "9223372036854775807", True),
    ("float('1.5')", "1.5", True),
    ("double('0.1')", "0.1", True),
    ("double('NaN')", '"NaN"', True),
    ("double('Infinity')", '"Infinity"', True),
    ("float('-Infinity')", '"-Infinity"', True),
    ("1.50BD", '"1.50"', False),
    ("cast(0 as decimal(38,18))", '"0.000000000000000000"', False),
    (
        "cast('12345678901234567890123456789012345678' as decimal(38,0))",
        f'"{"1234567890" * 3}12345678"',
        False,
    ),
    ("'x\"\\u00e9'", '"x\\"é"', True),
    ("cast('ab' as char(3))", '"ab"', True),
    ("X'00ff'", '"AP8="', True),
    (f"unhex('{'00' * 100}')", f'"{"A" * 134}=="', True),
    ("date'2020-01-02'", '"2020-01-02"', True),
    ("timestamp'2020-01-02 03:04:05.123456'", '"2020-01-02T03:04:05.123456Z"', True),
    ("timestamp'1969-12-31 23:59:59.999999'", '"1969-12-31T23:59:59.999999Z"', True),
    ("timestamp_ntz'2020-01-02 03:04:05.1'", '"2020-01-02T03:04:05.100000"', True),
    ("interval '1 2:3:4.5' day to second", "\"INTERVAL '1 02:03:04.5' DAY TO SECOND\"", True),
    ("interval '1-2' year to month", "\"INTERVAL '1-2' YEAR TO MONTH\"", True),
    ("make_interval(1,2,3,4)", '"1 years 2 months 25 days"', True),
    ("parse_json('{\"a\":[1,2.5,null]}')", '{"a":[1,2.5,null]}', True),
    ("null", "null", True),
    ("cast(null as decimal(5,2))", "null", True),
    ("cast(null as struct<a:decimal(5,2)>)", "null", True),
    ("cast(null as map<int,decimal(5,2)>)", "null", True),
    ("struct(1.10BD as `x.y`, null as z)", '{"x.y":"1.10","z":null}', False),
    ("struct(1 as x, cast(null as string) as z)", '{"x":1,"z":null}', True),
    ("array(1.10BD, null)", '["1.10",null]', False),
    ("array(array(struct(2.5BD as d)))", '[[{"d":"2.5"}]]', False),
    ("map('a', 1)", '{"a":1}', True),
    ("map(1, 2.20BD)", '{"1":"2.20"}', False),
    ("map(true, 1)", '{"true":1}', True),
    ("map(1.50BD, 1)", '{"1.50":1}', True),
    ("map(double('NaN'), 1)", '{"NaN":1}', True),
    ("map(date'2020-01-02', 1)", '{"2020-01-02":1}', False),
    ("map(timestamp'2020-01-02 03:04:05', 1)", '{"2020-01-02T03:04:05.000000Z":1}', False),
    ("map(timestamp_ntz'2020-01-02 03:04:05', 1)", '{"2020-01-02T03:04:05.000000":1}', False),
    ("map(X'00ff', 1)", '{"AP8=":1}', False),
    ("map(struct(1.50BD as d), 1)", '{"{\\"d\\":\\"1.50\\"}":1}', False),
    ("map(array(1, 2), 1)", '{"[1,2]":1}', True),
    ("map('a', map(date'2020-01-02', array(0.10BD)))", '{"a":{"2020-01-02":["0.10"]}}', False),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        SessionSpec(master="local[1]", conf={"spark.driver.extraJavaOptions": small_jvm()})
    )
    yield session
    session.stop()


@pytest.mark.parametrize("mode", [("true", "UTC"), ("false", "Asia/Tokyo")], ids=["ansi", "not-ansi-tokyo"])
def test_every_type_has_its_documented_form(spark: SparkSession, mode: tuple[str, str]) -> None:
    session: Any = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", mode[0])
    select = ", ".join(f"{sql} AS c{number}" for number, (sql, _, _) in enumerate(FORMS))
    frame = session.sql(f"SELECT {select}")
    if mode[1] != "UTC":  # the values were made in UTC, and are shown in another zone
        session.conf.set("spark.sql.session.timeZone", mode[1])
    value = as_json(frame, []).collect()[0].value
    expected = ",".join(f'"c{number}":{form}' for number, (_, form, _) in enumerate(FORMS))
    assert json.loads(value) == json.loads("{" + expected + "}")
    assert value == "{" + expected + "}"
    assert session.conf.get("spark.sql.ansi.enabled") == mode[0]


def test_sparks_own_to_json_writes_the_same_where_the_table_says_so(spark: SparkSession) -> None:
    names = [f"c{number}" for number in range(len(FORMS))]
    frame = spark.sql(
        "SELECT " + ", ".join(f"{sql} AS {name}" for name, (sql, _, _) in zip(names, FORMS, strict=True))
    )
    own = frame.select(*(F.to_json(F.struct(name), OPTIONS).alias(name) for name in names)).collect()[0]
    ours = {
        sql: own[name] == f'{{"{name}":{form}}}' for name, (sql, form, _) in zip(names, FORMS, strict=True)
    }
    assert ours == {sql: same for sql, _, same in FORMS}


def test_a_key_is_an_object_of_its_columns(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1.5BD AS `a.b`, 'x' AS c, 2 AS d")
    assert as_json(frame, ["c", "a.b"]).collect()[0].key == '{"c":"x","a.b":"1.5"}'
    assert as_json(frame, []).collect()[0].key is None


@pytest.mark.parametrize(
    ("sql", "key", "message"),
    [("SELECT 1 AS a, 2 AS a", [], "more than one column: a"), ("SELECT 1 AS a", ["b"], "b is no column")],
)
def test_columns_that_make_no_object_are_refused(
    spark: SparkSession, sql: str, key: list[str], message: str
) -> None:
    with pytest.raises(QueryError, match=message, check=lambda error: error.error_kind == "query"):
        as_json(spark.sql(sql), key)
