"""What a statement of SQL v2 becomes: tables, groups, names, what need be read, and how it is written."""
# ruff: noqa: S608

from __future__ import annotations

from typing import Any

import pytest

from kiwi_gw.dialects.lenses.any_queries import checked_any, offloaded_any, parse_any, question_any
from kiwi_gw.dialects.lenses.decoders import decode_of
from kiwi_gw.dialects.lenses.queries import ReadStatement
from kiwi_gw.dialects.lenses.sql import (
    GroupedStatement,
    Narrowed,
    Setting,
    Statement,
    engine_query,
    queried_table,
    read,
    read_any,
    result_columns,
    written,
)
from kiwi_gw.model import Decode, QueriedTable
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.worker_messages import answer


def grouped(text: str) -> GroupedStatement:
    found = read_any(text)
    assert isinstance(found, GroupedStatement)
    return found


def value(text: str, tables: str = "t") -> str:
    """What an expression means that is ordered by."""
    return grouped(f"SELECT x._key AS k FROM {tables} ORDER BY {text}").order_by[0].value.key


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "SET a=b; SELECT a, _key.b AS c, _value.* FROM t WHERE _vtype='INT' AND _offset > 5 LIMIT 3",
        "SELECT `a`, upper(b), count FROM `x y` WHERE _sample=10 AND t.a = 1;",
        "SELECT _meta.*, a['b c'][0] FROM t",
    ],
)
def test_what_looks_at_one_record_at_a_time_is_a_statement_of_v1(text: str) -> None:
    assert read_any(text) == read(text)


def test_a_table_may_have_an_alias() -> None:
    for text in ("SELECT x.a, b FROM t AS x", "SELECT x.a, b FROM t x", "SELECT `x`.a, b FROM t `x`"):
        assert read_any(text) == read("SELECT a, b FROM t")
    found = read_any("SELECT t.a AS b, t, x.a FROM t")
    assert isinstance(found, Statement)
    assert [column.value.key for column in found.query.select or ()] == [
        "value['a']",
        "value['t']",
        "value['x', 'a']",
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", "t0.value['a']"),
        ("x.a.b[0]", "t0.value['a', 'b', 0]"),
        ("x._key.a", "t0.key['a']"),
        ("x._meta.timestamp", "t0.timestamp[]"),
        ("x._headers['h']", "t0.headers['h']"),
        ("x['_offset']", "t0.offset[]"),
        ("_value.x.a", "t0.value['x', 'a']"),
        ("`_key`", "t0.value['_key']"),
        ("t.a", "t0.value['t', 'a']"),
    ],
)
def test_a_name_where_there_is_one_table(text: str, key: str) -> None:
    assert value(text, "t AS x") == key


@pytest.mark.parametrize(
    ("text", "key"),
    [("x.a", "t0.value['a']"), ("`a b`.a", "t1.value['a']"), ("u._key", "t2.key[]"), ("k", "t0.key[]")],
)
def test_a_name_where_there_are_several_tables(text: str, key: str) -> None:
    tables = "t x LEFT JOIN t `a b` ON x.a = `a b`.a JOIN u ON u._key = x.b AND u.c = 1"
    assert value(text, tables) == key


def test_the_name_of_a_column_counts_where_groups_are_looked_at() -> None:
    found = grouped(
        "SELECT upper(a) AS a, sum(b) AS b FROM t GROUP BY a HAVING b > 1 AND sum(b) < 9 "
        "ORDER BY b, -b, max(a)"
    )
    assert [node.key for node in found.group_by] == ["upper(t0.value['a'])"]
    assert found.having is not None
    total = "agg.sum(t0.value['b'])"
    assert found.having.key == f"and(>({total},1),<({total},9))"
    assert [order.value.key for order in found.order_by] == [total, f"neg({total})", "agg.max(t0.value['a'])"]
    inside = grouped("SELECT upper(a) AS a, count(*) FROM t GROUP BY upper(a)")
    assert [node.key for node in inside.group_by] == ["upper(t0.value['a'])"]


def test_numbers_are_columns() -> None:
    found = grouped("SELECT a.b, count(*) FROM t GROUP BY 1 ORDER BY 2 DESC, 1")
    assert [node.key for node in found.group_by] == ["t0.value['a', 'b']"]
    assert [(order.value.key, order.descending, order.nulls_first) for order in found.order_by] == [
        ("agg.count()", True, False),
        ("t0.value['a', 'b']", False, True),
    ]


def test_each_table_is_read_in_its_way() -> None:
    found = grouped(
        "SET a=b; SELECT x.a FROM t x FULL OUTER JOIN u AS y ON x.a = y.a AND y._offset > 90 WHERE "
        "x._vtype='INT' AND y._ktype='AVRO' AND x._offset > 4 AND y._ts BETWEEN 5 AND 9 AND y._partition = 1 "
        "LIMIT 7"
    )
    first, second = found.tables
    assert (first.name, first.prefix, first.join, first.value_decoder) == ("t", "x", None, "int")
    assert (second.name, second.prefix, second.join, second.key_decoder) == ("u", "y", "FULL", "avro")
    assert first.narrowed == Narrowed(first_offset=5)
    assert second.narrowed == Narrowed(first_time=5, last_time=9, partitions=frozenset((1,)))
    assert (found.limit, found.settings) == (7, (Setting("a", "b"),))
    assert "_vtype" not in written(found).sql
    assert decode_of(first, Decode()) == Decode(value="int")
    with pytest.raises(QueryError, match="does not declare it as AVRO"):
        decode_of(second, Decode())


def test_columns_are_called_as_in_v1_and_aggregates_like_their_function() -> None:
    found = grouped("SELECT Count(*), SUM(DISTINCT a), max(b) + 1, avg(c) AS mean FROM t")
    assert [column.name[0] for column in found.columns or ()] == ["count", "sum", "max(b) + 1", "mean"]


@pytest.mark.parametrize(
    ("text", "sql", "key"),
    [
        (
            "SELECT count(*), currency FROM payments GROUP BY currency",
            "SELECT `__r`.`__c0` AS `count`, `__r`.`__c1` AS `currency`, `__r`.`__key0` FROM (SELECT "
            "count(1) AS `__c0`, t0.`value`['currency'] AS `__c1`, t0.`value`['currency'] AS `__key0` FROM "
            "t0 GROUP BY t0.`value`['currency']) AS `__r` LIMIT 10001",
            ("__key0",),
        ),
        (
            "SELECT a FROM t ORDER BY a DESC, b LIMIT 99999",
            "SELECT `__r`.`__c0` AS `a` FROM (SELECT t0.`value`['a'] AS `__c0`, t0.`value`['b'] AS "
            "`__order1` FROM t0) AS `__r` ORDER BY `__r`.`__c0` DESC NULLS LAST, `__r`.`__order1` ASC NULLS "
            "FIRST LIMIT 10001",
            (),
        ),
        (
            "SELECT DISTINCT a AS __C FROM t ORDER BY upper(a.b) LIMIT 5",
            "SELECT `___r`.`___c0` AS `__C` FROM (SELECT DISTINCT t0.`value`['a'] AS `___c0` FROM t0) AS "
            "`___r` ORDER BY upper(`___r`.`___c0`['b']) ASC NULLS FIRST LIMIT 5",
            (),
        ),
        (
            "SELECT max(x.a) FROM t x LEFT JOIN u ON x.a <=> u._key WHERE x.b IS NOT NULL "
            "HAVING count(*) > 1",
            "SELECT `__r`.`__c0` AS `max`, `__r`.`__key0` FROM (SELECT max(t0.`value`['a']) AS `__c0`, 0 AS "
            "`__key0` FROM t0 LEFT JOIN t1 ON (t0.`value`['a'] <=> t1.`key`) WHERE "
            "(NOT (t0.`value`['b'] IS NULL)) HAVING (count(1) > (1))) AS `__r` LIMIT 10001",
            ("__key0",),
        ),
    ],
)
def test_how_it_is_written(text: str, sql: str, key: tuple[str, ...]) -> None:
    query = written(grouped(text))
    assert (query.sql, query.key) == (sql, key)


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        ("-5", "(-5)"),
        ("-a", "(- t0.`value`['a'])"),
        ("1e300 + 5L", "((1e+300D) + CAST((5) AS BIGINT))"),
        ("'it''s' ", "'its'"),
        (r"'it\'s \\ $ é 😀'", r"'it\u0027s \u005c \u0024 \u00e9 \U0001f600'"),
        ("a LIKE 'x#_%' ESCAPE '#'", "(t0.`value`['a'] LIKE 'x#_%' ESCAPE '#')"),
        ("a NOT IN (1, NULL)", "(NOT (t0.`value`['a'] IN ((1), NULL)))"),
        ("a BETWEEN 1 AND 2", "(t0.`value`['a'] BETWEEN (1) AND (2))"),
        ("a IS NOT TRUE", "(NOT (t0.`value`['a'] IS TRUE))"),
        ("a DIV 2", "(t0.`value`['a'] DIV (2))"),
        ("a || 'b'", "concat(t0.`value`['a'], 'b')"),
        ("CASE a WHEN 1 THEN TRUE ELSE FALSE END",
         "CASE WHEN (t0.`value`['a'] = (1)) THEN TRUE ELSE FALSE END"),
        ("a::date", "CAST(t0.`value`['a'] AS DATE)"),
        ("trim(BOTH 'x' FROM a)", "trim('x', t0.`value`['a'])"),
        ("a[0].b['c d']", "t0.`value`['a'][0]['b']['c d']"),
        ("split(a, ',')[1]", "element_at(split(t0.`value`['a'], ','), (2))"),
    ],
)  # fmt: skip
def test_how_an_expression_is_written(expression: str, sql: str) -> None:
    text = written(grouped(f"SELECT {expression} AS x FROM t ORDER BY a")).sql
    assert text.startswith(f"SELECT `__r`.`__c0` AS `x` FROM (SELECT {sql} AS `__c0`")


def test_all_of_a_record_has_its_place_beside_it() -> None:
    names = ["value", "key", "offset", "partition", "timestamp", "key_size", "value_size"]
    assert [column.name[0] for column in result_columns(grouped("SELECT * FROM t ORDER BY a"))] == names
    assert [column.name[0] for column in result_columns(grouped("SELECT DISTINCT * FROM t"))] == ["value"]


def test_a_query_for_an_engine() -> None:
    statement = grouped("SELECT a, count(*) FROM t WHERE _offset >= 5 AND _ts > 9 GROUP BY a")
    table = queried_table(statement.tables[0], "orders", Decode())
    assert table == QueriedTable("orders", Decode(), first_offset=5, first_time=10)
    query = engine_query(statement, [table], live=True)
    assert (query.tables, query.key, query.live) == ({"t0": table}, ("__key0",), True)


@pytest.mark.parametrize(
    ("condition", "narrowed"),
    [
        ("_ts >= -1", {}),
        ("_ts BETWEEN -5 AND 9", {}),
        ("_ts > 9223372036854775807", {"first_time": 2**63 - 1}),
        ("_offset >= -9223372036854775808", {"first_offset": 0}),
        ("_offset > 9223372036854775807", {"first_offset": 2**63 - 1}),
        ("_offset < -9223372036854775808", {"last_offset": -1}),
        ("_offset <= 9223372036854775807", {"last_offset": 2**63 - 1}),
    ],
)
def test_bounds_are_what_places_and_times_can_be(condition: str, narrowed: dict[str, Any]) -> None:
    """No engine is asked for the records since a time before all times, and no message has numbers of more
    than 64 bits."""
    statement = grouped(f"SELECT count(*) FROM t WHERE {condition}")
    assert queried_table(statement.tables[0], "t", Decode()) == QueriedTable("t", Decode(), **narrowed)


@pytest.mark.parametrize(
    "text", ["SELECT a FROM t x WHERE x.b = 1", "SELECT x.a, count(*) FROM t x GROUP BY 1", "SELECT * FROM t"]
)
def test_a_worker_reads_the_same(text: str) -> None:
    asked = checked_any(text)
    here, there = parse_any(asked), offloaded_any(asked, answer(question_any(asked)))
    if isinstance(here, ReadStatement):
        assert isinstance(there, ReadStatement)
        assert (here.statement, here.held) == (there.statement, there.held)
    else:
        assert here == there


def test_a_worker_finds_the_same_mistakes() -> None:
    asked = checked_any("SELECT a, max(sum(b)) FROM t")
    with pytest.raises(QueryError, match="no place in another one") as caught:
        offloaded_any(asked, answer(question_any(asked)))
    assert caught.value.position == 14
