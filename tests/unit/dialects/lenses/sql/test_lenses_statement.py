"""What a statement of Lenses becomes: its table, columns, condition, and what need be read."""
# ruff: noqa: S608

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialects.lenses.sql import Narrowed, Setting, Statement, read
from kiwi_gw.dialects.lenses.sql.directives import DECODERS
from kiwi_gw.query.tree import Node, Query
from tests.effort import examples
from tests.unit.dialects.lenses.sql.printed import conditions, printed


def columns(text: str) -> list[tuple[str, str]]:
    found = read(f"SELECT {text} FROM t").query.select
    assert found is not None
    return [(".".join(column.name) or "*", column.value.key) for column in found]


def narrowing(condition: str) -> Narrowed:
    return read(f"SELECT * FROM t WHERE {condition}").narrowed


@pytest.mark.parametrize(
    ("written", "name", "key"),
    [
        ("carrier", "carrier", "value['carrier']"),
        ("a.b[0]", "b", "value['a', 'b', 0]"),
        ("a['b c']", "b c", "value['a', 'b c']"),
        ("_value.a", "a", "value['a']"),
        ("_value", "_value", "value[]"),
        ("_key", "_key", "key[]"),
        ("_key.a", "a", "key['a']"),
        ("_headers.h", "h", "headers['h']"),
        ("_meta.offset", "offset", "offset[]"),
        ("_meta.partition", "partition", "partition[]"),
        ("_meta.timestamp", "timestamp", "timestamp[]"),
        ("_meta.__keysize", "__keysize", "key_size[]"),
        ("_meta.__valuesize", "__valuesize", "value_size[]"),
        ("(_meta).offset", "offset", "offset[]"),
        ("_offset", "_offset", "offset[]"),
        ("_partition", "_partition", "partition[]"),
        ("_ts", "_ts", "timestamp[]"),
        ("_value.*", "*", "value[]"),
        ("_key.*", "*", "key[]"),
        ("`_key`", "_key", "value['_key']"),
        ("offset", "offset", "value['offset']"),
        ("`a b`.c", "c", "value['a b', 'c']"),
        ("upper(a)", "upper", "upper(value['a'])"),
        ("SUBSTR(a FROM 2)", "substr", "substring(value['a'],2)"),
        ("CAST(a AS INT)", "cast", "cast(value['a'] as INT)"),
        ("a + 1", "a + 1", "+(value['a'],1)"),
        ("lower(a) || lower(b)", "lower(a) || lower(b)", "concat(lower(value['a']),lower(value['b']))"),
        ("_meta.offset AS o", "o", "offset[]"),
        ("count AS `how many`", "how many", "value['count']"),
    ],
)
def test_a_column(written: str, name: str, key: str) -> None:
    assert columns(written) == [(name, key)]


def test_all_of_a_record_is_no_projection() -> None:
    assert read("SELECT * FROM t") == Statement("t")
    assert read("select * from t").plain


def test_the_members_of_the_place_are_columns() -> None:
    assert columns("_meta.*") == [
        ("offset", "offset[]"),
        ("partition", "partition[]"),
        ("timestamp", "timestamp[]"),
        ("__keysize", "key_size[]"),
        ("__valuesize", "value_size[]"),
    ]


@pytest.mark.parametrize(
    ("written", "table"),
    [
        ("t", "t"),
        ("flights.v1-x_2", "flights.v1-x_2"),
        ("2024.flights", "2024.flights"),
        ("1e5x", "1e5x"),
        ("a--b", "a--b"),
        ("-x", "-x"),
        ("where", "where"),
        ("`a b`", "a b"),
        ("`it``s`", "it`s"),
        ("`é`", "é"),
        ("/* this */ t -- or that\n", "t"),
    ],
)
def test_a_table(written: str, table: str) -> None:
    found = read(f"SELECT * FROM {written} WHERE a = 1 LIMIT 2;")
    assert (found.table, found.limit, found.query.key) == (table, 2, "*|=(value['a'],1)")


def test_settings_are_told_in_their_order() -> None:
    found = read("SET max.size=200m; set `a b` = 'x y';SET n=-5;\nSELECT * FROM t").settings
    assert found == (Setting("max.size", "200m"), Setting("a b", "x y"), Setting("n", "-5"))
    assert [setting.position for setting in found] == [4, 23, 41]


@pytest.mark.parametrize("name", [*DECODERS, *map(str.lower, DECODERS)])
def test_decoders_are_no_filter(name: str) -> None:
    found = read(f"SELECT * FROM t WHERE _ktype='{name}' AND a = 1 AND '{name}' = _vtype")
    assert found.key_decoder == found.value_decoder == DECODERS[name.upper()]
    assert found.query.key == "*|=(value['a'],1)"


def test_a_condition_of_decoders_alone_is_none() -> None:
    assert read("SELECT * FROM t WHERE (_ktype='INT' AND _vtype='JSON')").query == Query()


def test_a_sample() -> None:
    found = read("SELECT * FROM t WHERE _sample=10 AND _sampleWindow=500")
    assert (found.sample, found.sample_window_ms, found.plain) == (10, 500, True)
    assert read("SELECT * FROM t WHERE _sample=10").sample_window_ms == 1000


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("_meta.offset = 5", Narrowed(5, 5)),
        ("_offset >= 5 AND _offset < 9", Narrowed(5, 8)),
        ("5 < _offset AND 9 >= _offset", Narrowed(6, 9)),
        ("_meta.offset BETWEEN 3 AND 7 AND _offset > 4", Narrowed(5, 7)),
        ("_offset IN (7, 3)", Narrowed(3, 7)),
        ("_meta.timestamp > 1000 AND _ts <= 2000", Narrowed(first_time=1001, last_time=2000)),
        ("_meta.partition IN (1, 2, 3) AND _partition = 2", Narrowed(partitions=frozenset((2,)))),
        ("_partition IN (1, 5) AND _partition < 3", Narrowed(partitions=frozenset((1,)))),
        ("(_offset > 1 AND (a = 1 AND _ts > 5))", Narrowed(2, first_time=6)),
        # They say nothing of what must be read, or not enough.
        ("_offset > 1 OR a = 1", Narrowed()),
        ("NOT _offset > 1", Narrowed()),
        ("_offset <> 1", Narrowed()),
        ("_offset > a", Narrowed()),
        ("_offset IN (1, a)", Narrowed()),
        ("_offset + 1 > 5", Narrowed()),
        ("_ts > '2024-01-01'", Narrowed()),
        ("_offset > 1.5", Narrowed()),
        ("offset > 1", Narrowed()),
    ],
)
def test_what_need_be_read(condition: str, expected: Narrowed) -> None:
    assert narrowing(condition) == expected
    assert not narrowing(condition).nothing


@pytest.mark.parametrize(
    "condition",
    [
        "_offset > 5 AND _offset < 5",
        "_offset < 0",
        "_offset > 9223372036854775807",
        "_ts = 1 AND _ts = 2",
        "_partition = 1 AND _partition = 2",
        "_partition IN (-1)",
        "_offset BETWEEN 5 AND 4",
    ],
)
def test_nothing_need_be_read(condition: str) -> None:
    assert narrowing(condition).nothing


@given(conditions, st.sampled_from(("t", "a-b.c", "x y", "it`s")), st.none() | st.integers(1, 10**9))
@settings(max_examples=examples(100), deadline=None)
def test_a_printed_statement_is_read_as_the_same(condition: Node, table: str, limit: int | None) -> None:
    found = read(printed(condition, table, limit))
    assert found.query.key == Query(condition).key
    assert (found.table, found.limit) == (table, limit)
