"""Statements of SQL v2 as they are written for Spark, by a real one: each is one SELECT over its tables, and
gives what Python computes."""
# ruff: noqa: S608

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession

from kiwi_gw.dialects.lenses.sql import GroupedStatement, check_functions, read_any, written
from kiwi_gw.query.errors import QueryError
from kiwi_spark.driver.session import open_session
from kiwi_spark.protocol.query_spec import SessionSpec
from tests.effort import examples
from tests.integration.spark.shared_classes import small_jvm
from tests.unit.dialects.lenses.sql.grouped_texts import grouped_texts

pytestmark = [
    pytest.mark.integration,
    pytest.mark.extended,
    # PySpark leaves the sockets by which it collects to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

Row = dict[str, Any]

FLIGHTS: Sequence[Row] = [
    {
        "carrier": ("AA", "UA", "DL", None)[n % 4],
        "delay": None if n % 7 == 0 else n * 3 % 50 - 5,
        "dist": n * 1.5,
        "dest": ("JFK", "LAX", "ORD")[n % 3],
        "leg": {"no": n % 3},
        "odd name": f"it's {n % 2}",
    }
    for n in range(40)
]
CARRIERS: Sequence[Row] = [
    {"code": "AA", "name": "American"},
    {"code": "UA", "name": "United"},
    {"code": "XX"},
]
_FLIGHT = "carrier STRING, delay BIGINT, dist DOUBLE, dest STRING, leg STRUCT<no: BIGINT>, `odd name` STRING"
_VIEW = """
SELECT CAST(n AS STRING) AS key, from_json(json, '{schema}') AS value, map('h', CAST(n AS STRING)) AS headers,
CAST(n % 2 AS INT) AS partition, CAST(n AS BIGINT) AS offset, CAST(1000 + n AS BIGINT) AS timestamp,
CAST(length(n) AS INT) AS key_size, CAST(length(json) AS INT) AS value_size
FROM VALUES {rows} AS given(n, json)"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        SessionSpec(
            master="local[1]",
            conf={
                "spark.driver.extraJavaOptions": small_jvm(),
                "spark.sql.ansi.enabled": "false",
                "spark.sql.caseSensitive": "true",
                "spark.sql.shuffle.partitions": "1",
            },
        )
    )
    session.sql(_view(FLIGHTS, _FLIGHT)).cache().createOrReplaceTempView("flights")
    session.sql(_view(CARRIERS, "code STRING, name STRING")).cache().createOrReplaceTempView("carriers")
    yield session
    session.stop()


def _view(rows: Sequence[Row], schema: str) -> str:
    literals = [json.dumps(row).replace("'", "\\'") for row in rows]
    listed = ", ".join(f"({n}, '{text}')" for n, text in enumerate(literals))
    return _VIEW.format(schema=schema, rows=listed)


def rows_of(spark: SparkSession, text: str) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """The values of the rows of a statement, and their keys."""
    statement = read_any(text)
    assert isinstance(statement, GroupedStatement)
    check_functions(statement)
    query = written(statement)
    for index, table in enumerate(statement.tables):
        spark.table(table.name).createOrReplaceTempView(f"t{index}")
    found = [row.asDict(recursive=True) for row in spark.sql(query.sql).collect()]
    keys = [tuple(row.pop(name) for name in query.key) for row in found]
    return found, keys


def _groups(member: str) -> dict[Any, list[Row]]:
    made: dict[Any, list[Row]] = {}
    for row in FLIGHTS:
        made.setdefault(row[member], []).append(row)
    return made


def _some(rows: Sequence[Row], member: str) -> list[Any]:
    return [row[member] for row in rows if row[member] is not None]


def _aggregates() -> list[Row]:
    return [
        {
            "dest": dest,
            "count": len(rows),
            "n": len(_some(rows, "delay")),
            "d": len(set(_some(rows, "delay"))),
            "sum": sum(_some(rows, "delay")),
            "avg": pytest.approx(statistics.mean(_some(rows, "delay"))),
            "min": min(_some(rows, "delay")),
            "max": max(_some(rows, "delay")),
            "late": sum(delay > 10 for delay in _some(rows, "delay")),
            "stddev": pytest.approx(statistics.stdev(_some(rows, "delay"))),
            "variance": pytest.approx(statistics.variance(_some(rows, "delay"))),
            "median": statistics.median(_some(rows, "delay")),
            "max_by": max(rows, key=lambda row: row["dist"])["carrier"],
            "min_by": min(rows, key=lambda row: row["dist"])["carrier"],
        }
        for dest, rows in sorted(_groups("dest").items())
    ]


def _joined() -> list[Row]:
    names = {row["code"]: row.get("name") for row in CARRIERS}
    made = [{"carrier": row["carrier"], "name": names.get(row["carrier"])} for row in FLIGHTS]
    return sorted(made, key=lambda row: (row["carrier"] is not None, row["carrier"] or ""))


STATEMENTS: list[tuple[str, Callable[[], list[Row]]]] = [
    (
        "SELECT dest, count(*), count(delay) AS n, count(DISTINCT delay) AS d, sum(delay), avg(delay), "
        "min(delay), max(delay), count_if(delay > 10) AS late, stddev(delay), variance(delay), "
        "median(delay), max_by(carrier, dist), min_by(carrier, dist) "
        "FROM flights GROUP BY dest ORDER BY dest",
        _aggregates,
    ),
    (
        "SELECT carrier, count(*) FROM flights GROUP BY carrier HAVING count(*) > 9 AND carrier IS NOT NULL "
        "ORDER BY count DESC, carrier DESC LIMIT 2",
        lambda: [{"carrier": "UA", "count": 10}, {"carrier": "DL", "count": 10}],
    ),
    (
        "SELECT DISTINCT dest, leg.no FROM flights ORDER BY upper(dest) DESC",
        lambda: [{"dest": "ORD", "no": 2}, {"dest": "LAX", "no": 1}, {"dest": "JFK", "no": 0}],
    ),
    (
        "SELECT DISTINCT leg FROM flights ORDER BY leg.no",
        lambda: [{"leg": {"no": 0}}, {"leg": {"no": 1}}, {"leg": {"no": 2}}],
    ),
    (
        "SELECT _offset AS o, delay FROM flights WHERE _offset BETWEEN 5 AND 8 ORDER BY delay NULLS LAST, 1",
        lambda: [
            {"o": 5, "delay": 10},
            {"o": 6, "delay": 13},
            {"o": 8, "delay": 19},
            {"o": 7, "delay": None},
        ],
    ),
    (
        "SELECT count(*) FROM flights WHERE `odd name` = 'it\\'s 1' AND _headers.h LIKE '1%'",
        lambda: [{"count": sum(n % 2 and str(n).startswith("1") for n in range(40))}],
    ),
    ("SELECT count(*), sum(delay) FROM flights WHERE FALSE", lambda: [{"count": 0, "sum": None}]),
    ("SELECT 1 AS one FROM flights HAVING count(*) > 39", lambda: [{"one": 1}]),
    ("SELECT 1 AS one FROM flights HAVING count(*) > 40", list),
    (
        "SELECT f.carrier, c.name FROM flights AS f LEFT JOIN carriers c ON f.carrier = c.code "
        "ORDER BY f.carrier, f._offset",
        _joined,
    ),
    (
        "SELECT carriers.name, count(flights.delay) AS n FROM flights RIGHT OUTER JOIN carriers "
        "ON flights.carrier = carriers.code AND flights.delay > 0 GROUP BY 1 ORDER BY n, carriers.name",
        lambda: [
            {"name": None, "n": 0},
            *sorted(
                (
                    {"name": name, "n": sum((row["delay"] or 0) > 0 for row in _groups("carrier")[code])}
                    for code, name in (("AA", "American"), ("UA", "United"))
                ),
                key=lambda row: (row["n"], row["name"]),
            ),
        ],
    ),
    (
        "SELECT a.dest, count(*) AS pairs FROM flights a "
        "JOIN flights b ON a.dest = b.dest AND a._offset < b._offset GROUP BY a.dest ORDER BY a.dest",
        lambda: [
            {"dest": dest, "pairs": len(rows) * (len(rows) - 1) // 2}
            for dest, rows in sorted(_groups("dest").items())
        ],
    ),
    (
        "SELECT count(*) AS `a``b; --`, '${env:HOME} \\' \" \\\\ é😀' AS x FROM flights",
        lambda: [{"a`b; --": 40, "x": "${env:HOME} ' \" \\ é😀"}],
    ),
    (
        "SELECT upper(dest) AS dest, count(*) AS __c0 FROM flights GROUP BY upper(dest) "
        "ORDER BY -__c0, dest LIMIT 1",
        lambda: [{"dest": "JFK", "__c0": 14}],
    ),
    (
        "SELECT dest FROM flights GROUP BY dest, carrier ORDER BY max(dist) DESC LIMIT 2",
        lambda: [{"dest": "JFK"}, {"dest": "ORD"}],
    ),
    ("SELECT DISTINCT count(*) FROM flights GROUP BY carrier", lambda: [{"count": 10}]),
    (
        "SELECT _key, _partition FROM flights WHERE _ts = 1003 ORDER BY 1",
        lambda: [{"_key": "3", "_partition": 1}],
    ),
    (
        "SELECT * FROM carriers ORDER BY _offset DESC LIMIT 1",
        lambda: [
            {
                "value": {"code": "XX", "name": None},
                "key": "2",
                "offset": 2,
                "partition": 0,
                "timestamp": 1002,
                "key_size": 1,
                "value_size": 14,
            }
        ],
    ),
    (
        "SELECT DISTINCT * FROM carriers ORDER BY code LIMIT 1",
        lambda: [{"value": {"code": "AA", "name": "American"}}],
    ),
    (
        "SELECT first(dest), last(dest), approx_count_distinct(dest) AS n FROM flights",
        lambda: [{"first": "JFK", "last": "JFK", "n": 3}],
    ),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_a_statement_gives_what_python_computes(
    spark: SparkSession, text: str, expected: Callable[[], list[Row]]
) -> None:
    assert rows_of(spark, text)[0] == expected()


def test_the_key_of_a_row_is_that_of_its_group(spark: SparkSession) -> None:
    text = "SELECT count(*) FROM flights GROUP BY carrier, _partition"
    rows, keys = rows_of(spark, text)
    assert Counter(keys) == Counter({(("AA", "UA", "DL", None)[n % 4], n % 2) for n in range(40)})
    assert [list(row) for row in rows] == [["count"]] * 4
    assert rows_of(spark, "SELECT count(*) FROM flights")[1] == [(0,)]
    assert rows_of(spark, "SELECT DISTINCT dest FROM flights")[1] == [()] * 3


def test_one_row_more_than_may_be_is_asked_for(spark: SparkSession) -> None:
    twice = "flights a JOIN flights b ON a.leg.no * 0 = b.leg.no * 0"
    thrice = f"SELECT a._offset FROM {twice} JOIN flights c ON a.leg.no * 0 = c.leg.no * 0 ORDER BY a._offset"
    assert len(rows_of(spark, thrice)[0]) == 10_001
    assert len(rows_of(spark, f"SELECT a.dest FROM {twice} LIMIT 20000")[0]) == 1_600


def relations(spark: SparkSession, sql: str) -> list[str]:
    """The tables of a text, as Spark's own parser reads it."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    plan = parser.parsePlan(sql)
    assert plan.getClass().getSimpleName() == "GlobalLimit"
    leaves = plan.collectLeaves()
    found = []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        assert leaf.getClass().getSimpleName() == "UnresolvedRelation"
        found.append(leaf.tableName())
    return found


@pytest.mark.timeout(600)
def test_what_is_written_is_one_select_over_its_tables(spark: SparkSession) -> None:
    tried = 0

    @given(grouped_texts)
    @settings(max_examples=examples(200), deadline=None)
    def check(text: str) -> None:
        nonlocal tried
        try:
            statement = read_any(text)
            if not isinstance(statement, GroupedStatement):
                return
            check_functions(statement)
            sql = written(statement).sql
        except QueryError:
            return
        assert relations(spark, sql) == [f"t{index}" for index in range(len(statement.tables))]
        tried += 1

    check()
    assert tried
