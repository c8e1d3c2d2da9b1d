"""CaQL: what its texts say, and where they are wrong."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.query import caql
from kiwi_gw.query.caql.patterns import like
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH, MAX_NODES, MAX_TEXT
from kiwi_gw.query.tree import Column, FunctionCall, Literal, Node, Path, Query
from tests.effort import examples

A, B, C = (FunctionCall("caql.=", (Path("data", (name,)), Literal(1))) for name in "abc")


def where(text: str) -> Node | None:
    return caql.read(f"where {text}").where


def test_all_of_it_may_be_left_out() -> None:
    for text in (
        "",
        "  \n",
        "select *",
        "select data",
        "SELECT data, data",
    ):
        assert caql.read(text) == Query()


def test_a_projection_drops_the_wrapper_and_keeps_nesting() -> None:
    assert caql.read("select data.val, data.nest.a").select == (
        Column(("val",), Path("data", ("val",)), lenient=True),
        Column(("nest", "a"), Path("data", ("nest", "a")), lenient=True),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select data.a as x, topic", [("x",), ("topic",)]),
        ("select topic, timestamp, data", [("topic",), ("timestamp",), ("data",)]),
        ("select data as d", [("d",)]),
        ("select data.a.b as as", [("as",)]),
        ("select data.a, data.a.b", [("a",)]),
        ("select data.a.b, data.a", [("a",)]),
        ("select data.a,data.a , data.b", [("a",), ("b",)]),
        ("select data.where.order.by, data.not", [("where", "order", "by"), ("not",)]),
        ("select data.my-field, data.ünï.1st", [("my-field",), ("ünï", "1st")]),
    ],
)
def test_names_of_columns(text: str, names: list[tuple[str, ...]]) -> None:
    select = caql.read(text).select
    assert select is not None
    assert [column.name for column in select] == names
    assert all(column.lenient for column in select)


@pytest.mark.parametrize(
    ("text", "says", "position"),
    [
        ("select data.a as x, data.b as x", "selected twice", 20),
        ("select topic, data.topic", "selected twice", 14),
        ("select data.a.b, data.c as a", "lies in", 7),
        ("select data, data.a as data", "selected twice", 13),
        ("select", "ends too early", 6),
        ("select data.a,", "ends too early", 14),
        ("select *, data.a", "','", 8),
        ("select a", "no 'a'", 7),
        ("select Data", "no 'Data'", 7),
        ("where", "ends too early", 5),
        ("where data.a", "ends too early", 12),
        ("where data.a =", "ends too early", 14),
        ("where data.a = 'x'", "double quotes", 15),
        ('where data.a = "x', "no end", 15),
        ('where data.a = "\\x"', "as in JSON", 15),
        ('where data.a = "\\ud800"', "as in JSON", 15),
        ('where data.a = "a\nb"', "as in JSON", 15),
        ("where data.a == 1", "cannot stand", 14),
        ("where data.a = 1 and", "ends too early", 20),
        ("where data.a = 1 data.b = 2", "cannot stand", 17),
        ("where data.a = = 1", "cannot stand", 15),
        ("where (data.a = 1", "ends too early", 17),
        ("where data.a = 1)", "cannot stand", 16),
        ("where data.a = 1e400", "too large a number", 15),
        ("where data.a = 1x", "cannot stand", 15),
        ("where data.a eqx 1", "cannot stand", 13),
        ("where foo.a = 1", "data, topic or timestamp", 6),
        ("where data.a = b", "no 'b'", 15),
        ('where data.a contains "("', "cannot be used", 22),
        ('where data.a like "(?=b)"', "cannot be used", 18),
        ('where data.a like "(x{1000}){1000}"', "cannot be used", 18),
        ("where data.a like 5", "cannot stand", 18),
        ("where data.a is null", "cannot stand", 16),
        ("where true", "ends too early", 10),
        ("data.a = 1", "cannot stand", 0),
        ("where data.a = 1 select *", "cannot stand", 17),
        ("order data.a", "cannot stand", 6),
        ("order by foo", "no 'foo'", 9),
        ("order by data.a", "`order by` cannot be had", 0),
        ("select * where data.a = 1 ORDER  BY data.a desc, topic", "`order by` cannot be had", 26),
        ("order by", "ends too early", 8),
        ("where data.a. = 1", "cannot stand", 12),
        ("where data.a[0] = 1", "cannot stand", 12),
        ("where topic = \ud800", "surrogate", 14),
        ("where data.a \0= 1", "cannot stand", 13),
    ],
)
def test_errors_say_where(text: str, says: str, position: int) -> None:
    with pytest.raises(QueryError) as caught:
        caql.read(text)
    assert says in str(caught.value)
    assert caught.value.position == position


def test_and_binds_tighter_than_or_and_not_tightest() -> None:
    a, b, c = "data.a = 1", "data.b = 1", "data.c = 1"
    assert where(f"{a} or {b} and {c}") == FunctionCall("or", (A, FunctionCall("and", (B, C))))
    assert where(f"{a} and {b} or {c}") == FunctionCall("or", (FunctionCall("and", (A, B)), C))
    assert where(f"{a} && ({b} || {c})") == FunctionCall("and", (A, FunctionCall("or", (B, C))))
    assert where(f"not {a} and {b}") == FunctionCall("and", (FunctionCall("not", (A,)), B))
    assert where(f"NOT ({a} AND {b})") == FunctionCall("not", (FunctionCall("and", (A, B)),))
    assert where(f"((({a})))") == A
    assert where("((data.a)) = (1)") == A


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("5.0", 5.0),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        (".5", 0.5),
        ("5.", 5.0),
        ("007", 7),
        ('"a b"', "a b"),
        ('""', ""),
        ('"\\u00e9\\ud83e\\udd5d\\n\\"\\\\/"', 'é🥝\n"\\/'),
        ('"don\'t ? / { and"', "don't ? / { and"),
        ("true", True),
        ("FALSE", False),
        ("Null", None),
    ],
)
def test_constants(text: str, value: object) -> None:
    found = where(f"data.a={text}")
    assert isinstance(found, FunctionCall)
    constant = found.arguments[1]
    assert isinstance(constant, Literal)
    assert (constant.value, type(constant.value)) == (value, type(value))
    assert constant.position == 13


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("=", "="), ("EQ", "="), ("!=", "<>"), ("neq", "<>"), (">", ">"), ("gt", ">"), ("<", "<"),
        ("lT", "<"), (">=", ">="), ("gte", ">="), ("<=", "<="), ("lte", "<="),
    ],
)  # fmt: skip
def test_comparisons(text: str, name: str) -> None:
    assert where(f"data.eq {text} topic") == FunctionCall(
        f"caql.{name}", (Path("data", ("eq",)), Path("topic"))
    )


def test_patterns_and_missing() -> None:
    like_a = (Path("data", ("like",)), Literal("a"))
    assert where('data.like like "a"') == FunctionCall("caql.like", like_a)
    assert where('data.like NOT LIKE "a"') == FunctionCall("caql.not_like", like_a)
    assert where('data.like contains "a"') == FunctionCall("caql.contains", like_a)
    missing = FunctionCall("caql.missing", (Path("data", ("missing",)),))
    assert where("data.missing is missing") == missing
    assert where("data.missing IS NOT Missing") == FunctionCall("not", (missing,))


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        ("a%b_", "a(?s:.*)b_"),
        (r"100\%", r"100\%"),
        ("[%a]%", "[%a](?s:.*)"),
        ("[]%]%", "[]%](?s:.*)"),
        ("[^]%]%", "[^]%](?s:.*)"),
        (r"[\]%]%", r"[\]%](?s:.*)"),
        (r"\\%", r"\\(?s:.*)"),
        ("\\", "\\"),
    ],
)
def test_percent_is_any_run_where_it_is_no_character(pattern: str, means: str) -> None:
    assert like(pattern) == means


def test_the_roots_are_those_of_the_reader() -> None:
    roots = ("device", "id", "type")
    query = caql.read('where type = "lamp"', roots)
    assert query.where == FunctionCall("caql.=", (Path("type"), Literal("lamp")))
    with pytest.raises(QueryError, match="begins with device, id or type"):
        caql.read("where data = 1", roots)


def test_equal_queries_have_equal_keys() -> None:
    texts = [
        "select data.a where data.b>5",
        "SELECT  data.a\nWHERE (data.b gt 5)",
    ]
    assert len({caql.read(text).key for text in texts}) == 1
    assert (
        caql.read("where data=1").key != caql.read("where data=1.0").key != caql.read("where data=true").key
    )


def depth(node: Node) -> int:
    return 1 + max(map(depth, node.arguments)) if isinstance(node, FunctionCall) else 1


@pytest.mark.parametrize("word", ["and", "or", "&&", "||"])
def test_long_chains_are_flat_trees(word: str) -> None:
    chain = f" {word} ".join(["data=1"] * 70)
    found = where(chain)
    assert found is not None
    assert depth(found) == 9
    nested = "data=1"
    for _ in range(69):
        nested = f"data=1 {word} ({nested})"
    found = where(nested)
    assert found is not None
    assert depth(found) == 9


def test_parentheses_are_nested_at_will() -> None:
    assert where("(" * 2000 + "data.a=1" + ")" * 2000) == A


@pytest.mark.parametrize(
    "text",
    [
        "where " + "not " * MAX_DEPTH + "data=1",
        "where " + "not " * 1000 + "data=1",
        "where " + "data=1 or (data=2 and (" * 40 + "data=3" + "))" * 40,
        "where " + " and ".join(["data=1"] * (MAX_NODES // 4 + 1)),
        "select " + ",".join(["data.a"] * (MAX_NODES + 1)),
        "where data" + ".a" * 1000 + " = 1",
        "where data=" + "1" * 3000,
        "x" * (MAX_TEXT + 1),
        "é" * MAX_TEXT,
        " " * 1_000_000,
        "(" * 4000,
        "where " + "(" * 4000,
        'where data contains "' + "[" * 4000 + '"',
        "where " + " or ".join(f'data like "(x{i}){{300}}"' for i in range(100)),
        'where data like "' + "(%" * 1500 + '"',
        'where data contains "' + "(" * 4000 + '"',
        "where " + '"' * 4000,
        'where data = "' + "\\" * 4001,
    ],
)
def test_what_is_too_large_is_refused_at_once(text: str) -> None:
    caql.read("where data = 1")  # the grammar is loaded
    before = time.process_time()
    with pytest.raises(QueryError) as caught:
        caql.read(text)
    assert time.process_time() - before < 0.5
    assert caught.value.position is not None
    assert len(str(caught.value)) < 300


def test_a_tree_within_the_limits_is_read() -> None:
    nested = "data=1"
    for index in range(46):
        nested = f"data=1 {('and', 'or')[index % 2]} ({nested})"
    found = where(nested)
    assert found is not None
    assert depth(found) <= MAX_DEPTH


_WORDS = [
    *("select", "where", "order", "by", "as", "and", "or", "not", "is", "missing", "like", "contains", "eq"),
    *("data", "data.a", "topic", "*", ",", "(", ")", "=", "!=", "<=", "&&", "||", '"a"', '"%"', '"("', "'"),
    *('"', "\\", "5", "-1e3", "1e999", "true", "null", ".", "-", "\n", "\ud800", "é", "\0"),
]


@settings(max_examples=examples(1500), deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(_WORDS), max_size=30).map(" ".join)))
def test_any_text_is_a_query_or_a_query_error(text: str) -> None:
    for full in (text, f"where {text}", f"select {text}"):
        try:
            assert isinstance(caql.read(full).key, str)
        except QueryError as error:
            position = error.position
        else:
            continue
        assert position is not None
        assert 0 <= position <= len(full)
