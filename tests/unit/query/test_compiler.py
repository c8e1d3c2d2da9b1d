"""Filters and projections over the columns of a batch."""

from __future__ import annotations

import json

import pytest

from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH, MAX_NODES, check_text
from kiwi_gw.query.tree import Cast, Column, FunctionCall, Literal, Node, Path, Query
from kiwi_gw.query.values import UNDECODABLE
from tests.unit.query.trying import ROOTS, at, bad, call, kept, result

FLIGHTS: list[object] = [
    {"delay": 31, "carrier": "AA", "at": {"x": [1, 2]}},
    {"delay": 30, "carrier": "UA"},
    {"delay": "45", "carrier": "UA", "at": None},
    {"delay": None, "carrier": 7},
    {},
    None,
    [1, 2],
    "text",
]
N, T, F = None, True, False


def test_a_filter_of_two_terms() -> None:
    where = call("and", call(">", at("delay"), 30), call("in", at("carrier"), "AA", "UA"))
    assert kept(where, FLIGHTS) == [0, 2]


def test_not_is_not_true_of_what_is_null() -> None:
    assert kept(call("not", call(">", at("delay"), 30)), FLIGHTS) == [1]
    assert kept(call("is_null", at("delay")), FLIGHTS) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("one", [T, F, N])
@pytest.mark.parametrize("other", [T, F, N])
def test_three_valued_logic(one: bool | None, other: bool | None) -> None:
    both = F if one is F or other is F else N if one is N or other is N else T
    either = T if one is T or other is T else N if one is N or other is N else F
    record = {"one": one, "other": other}
    for left, right in ((at("one"), at("other")), (Literal(one), at("other")), (at("one"), Literal(other))):
        assert result(call("and", left, right), record) is both
        assert result(call("or", left, right), record) is either
        assert kept(call("and", left, right), [record]) == ([0] if both else [])
        assert kept(call("or", left, right), [record]) == ([0] if either else [])
        assert kept(call("not", call("and", left, right)), [record]) == ([0] if both is F else [])
        assert kept(call("not", call("or", left, right)), [record]) == ([0] if either is F else [])
    assert result(call("not", at("one")), record) is (N if one is N else not one)
    assert result(call("is_true", at("one")), record) is (one is T)
    assert result(call("is_false", at("one")), record) is (one is F)
    assert kept(call("not", call("is_true", at("one"))), [record]) == ([] if one is T else [0])


def test_a_column_that_cannot_be_decoded_makes_its_event_bad() -> None:
    query = compile_query(Query(call(">", at("a"), 1)), ROOTS)
    assert query.roots == ("value",)
    assert query.filter({"value": [{"a": 2}, UNDECODABLE, {"a": 3}]}, 3) == ([0, 2], [1])
    select = compile_query(Query(select=(Column(("a",), at("a")),)), ROOTS)
    assert select.filter({"value": [{"a": 2}, UNDECODABLE]}, 2) == ([0], [1])


def test_without_a_filter_every_event_is_kept() -> None:
    query = compile_query(Query(), ROOTS)
    assert query.roots == ()
    assert query.filter({}, 3) == ([0, 1, 2], [])


def test_one_event_that_cannot_be_evaluated_is_one_bad_event() -> None:
    where = call("=", call("repeat", at("s"), at("n")), "aa")
    values: list[object] = [{"s": "a", "n": 2}, {"s": "a", "n": 1_000_000_000}, {"s": "a", "n": 2}]
    assert compile_query(Query(where), ROOTS).filter({"value": values}, 3) == ([0, 2], [1])


def test_a_projection_nests_and_keeps_its_order() -> None:
    columns = (
        Column(("carrier",), at("carrier")),
        Column(("nest", "seconds"), call("*", at("delay"), 60)),
        Column(("nest", "x"), at("at", "x", 1)),
    )
    query = compile_query(Query(select=columns), ROOTS)
    assert query.project({"value": FLIGHTS}, [0, 4]) == [
        b'{"carrier":"AA","nest":{"seconds":1860,"x":2}}',
        b'{"carrier":null,"nest":{"seconds":null,"x":null}}',
    ]


def test_lenient_columns_leave_out_what_is_missing() -> None:
    columns = (Column(("val",), at("val"), True), Column(("nest", "a"), at("nest", "a"), True))
    values: list[object] = [{"val": 1, "nest": {"a": 2}}, {"val": None}, {"nest": {}}, 5]
    assert compile_query(Query(select=columns), ROOTS).project({"value": values}, range(4)) == [
        b'{"val":1,"nest":{"a":2}}',
        b'{"val":null}',
        b"{}",
        b"{}",
    ]


def test_a_column_without_a_name_is_the_whole_result() -> None:
    query = compile_query(Query(select=(Column((), Path("value"), True),)), ROOTS)
    assert query.project({"value": [[1, 2]]}, [0]) == [b"[1,2]"]


def test_members_of_a_column_that_is_spread_are_in_the_result() -> None:
    everything = Column((), Path("value"), spread=True)
    one, inner = Column(("a",), Literal(1)), Column(("b", "c"), Literal(2))
    values: list[object] = [{"a": 0, "x": 5}, [1], None, {"b": {"y": 1}}]
    for columns in ((one, everything, inner), (everything, one, inner), (one, inner, everything)):
        found = compile_query(Query(select=columns), ROOTS).project({"value": values}, range(4))
        assert [json.loads(text) for text in found] == [
            {"a": 1, "b": {"c": 2}, **more} for more in ({"x": 5}, {}, {}, {})
        ]
    assert values[3] == {"b": {"y": 1}}
    alone = Query(select=(everything,))
    assert compile_query(alone, ROOTS).project({"value": values}, [0, 1]) == [b'{"a":0,"x":5}', b"{}"]
    assert alone.key != Query(select=(Column((), Path("value")),)).key


def test_numbers_that_json_does_not_have_are_texts() -> None:
    assert result(call("sqrt", -1)) == "NaN"
    assert result(call("power", 10, 1e6)) == "Infinity"
    assert result(at("a"), {"a": [1, None, float("-inf")]}) == [1, None, "-Infinity"]
    assert result(Cast(Literal("2013-01-05 06:07:08.5"), "TIMESTAMP")) == "2013-01-05T06:07:08.500000Z"
    assert result(Cast(Literal("2013-01-05"), "DATE")) == "2013-01-05"


def test_texts_of_a_query_are_only_ever_constants() -> None:
    evil = "') or __import__('os') or ('"
    record = {evil: 5, "a": evil}
    assert kept(call("=", at(evil), 5), [record]) == [0]
    assert kept(call("=", at("a"), evil), [record]) == [0]
    query = compile_query(Query(select=(Column((evil, 'b"\n'), at("a")),)), ROOTS)
    assert b"__import__" in query.project({"value": [record]}, [0])[0]
    assert kept(call("=", at("a"), "\ud800"), [{"a": "b"}]) == []


@pytest.mark.parametrize(
    ("node", "words", "position"),
    [
        (FunctionCall("sum", (at("a"),), 3), "Spark source", 3),
        (FunctionCall("row_number", (), 3), "Spark source", 3),
        (FunctionCall("current_timestamp", (), 3), "depend on the event", 3),
        (FunctionCall("frobnicate", (), 3), "there is no function frobnicate", 3),
        (FunctionCall("left", (at("a"),), 3), "takes 2 arguments, not 1", 3),
        (FunctionCall("rlike", (at("a"), Literal("(?=a)", 9))), "cannot be used", 9),
        (FunctionCall("rlike", (at("a"), Literal("(a{1000}){9}", 9))), "cannot be used", 9),
        (FunctionCall("like", (at("a"), Literal("a\\", 9))), "after \\ comes", 9),
        (Cast(at("a"), "DECIMAL(10,2)", 5), "DECIMAL", 5),
        (Path("other", (), 7), "there is no other", 7),
        (Literal(1 << 63, 4), "64 bits", 4),
        (FunctionCall("+", (Cast(Literal("2013-01-05"), "TIMESTAMP"), Literal(1)), 2), "intervals", None),
        (Literal(5, 1), "a filter is BOOLEAN", 1),
        (call("=", Cast(at("a"), "DATE"), 5), "cannot be compared", None),
    ],
)
def test_what_cannot_be_is_said_with_its_place(node: Node, words: str, position: int | None) -> None:
    with pytest.raises(QueryError, match=words.replace("(", "\\(").replace("\\ ", "\\\\ ")) as caught:
        compile_query(Query(node), ROOTS)
    if position is not None:
        assert caught.value.position == position


@pytest.mark.parametrize("constant", [1e308, -(2**62), 2**60, 0.5])
def test_python_has_nothing_to_say_about_the_source(constant: float) -> None:
    """What it warns of goes to stderr, and warnings are errors in here."""
    for sign in ("=", "<>", "<", ">="):
        kept(call(sign, at("a"), constant), [{"a": 1}])
        kept(call(sign, constant, at("a")), [{"a": 1}])
        kept(call("not", call(sign, at("a"), constant)), [{"a": 1}])


def test_two_columns_of_one_name() -> None:
    for names in ((("a",), ("a",)), (("a",), ("a", "b")), (("a", "b"), ("a",)), ((), ("a",))):
        with pytest.raises(QueryError, match="two columns"):
            compile_query(Query(select=tuple(Column(name, at("a")) for name in names)), ROOTS)


def test_a_tree_is_only_so_deep_and_so_large() -> None:
    deep: Node = at("a")
    for _ in range(MAX_DEPTH - 2):
        deep = call("+", deep, 1)
    assert kept(call(">", deep, 1), [{"a": 1}]) == [0]
    with pytest.raises(QueryError, match="deep"):
        compile_query(Query(call(">", call("+", deep, 1), 1)), ROOTS)
    wide = call("in", at("a"), *range(MAX_NODES // 2))
    assert kept(wide, [{"a": 1}]) == [0]
    with pytest.raises(QueryError, match="terms"):
        compile_query(Query(call("in", at("a"), *range(MAX_NODES))), ROOTS)
    with pytest.raises(QueryError, match="longer"):
        check_text("é" * 3000)


@pytest.mark.parametrize(
    "name", ["not", "case", "coalesce", "between", "is_true", "concat", "in", "=", "and", "if", "greatest"]
)
def test_deep_trees_of_any_form_compile_in_time(name: str) -> None:
    """No form writes an operand twice: the source grows with the tree, and not with two to its depth."""
    node: Node = call("=", at("a"), "x")
    shapes = {"not": 1, "is_true": 1, "between": 3, "case": 3, "if": 3}
    for _ in range(MAX_DEPTH - 2):
        rest: list[Node] = [call("=", at("b"), "y")] * (shapes.get(name, 2) - 1)
        node = FunctionCall(name, (node, *rest))
    try:
        query = compile_query(Query(select=(Column((), node),)), ROOTS)
    except QueryError as error:
        assert "more than" in str(error)  # noqa: PT017
        return
    assert query.project({"value": [{"a": "x"}, None]}, [0, 1])


def test_texts_that_are_too_long_are_not_made() -> None:
    for node in (
        call("repeat", at("a"), 10**9),
        call("repeat", " ", 10**9),
        call("replace", at("long"), "x", "y" * 100),
        call("regexp_replace", at("long"), "x", "y" * 100),
        call("regexp_replace", at("long"), "x.*y|x", "z"),
        call("concat", at("long"), at("long")),
    ):
        assert result(node, {"a": "x", "long": "x" * 60_000}) == "bad"
        assert bad(call("=", node, "x"), [{"a": "x", "long": "x" * 60_000}, {}]) >= 1


def test_equal_constants_of_other_types_are_other_queries() -> None:
    one, real, true = (compile_query(Query(select=(Column((), Literal(c)),)), ROOTS) for c in (1, 1.0, True))
    texts = [query.project({}, [0]) for query in (one, real, true)]
    assert texts == [[b"1"], [b"1.0"], [b"true"]]
    assert compile_query(Query(call("=", at("a"), 1)), ROOTS) is compile_query(
        Query(call("=", at("a"), 1)), ROOTS
    )
