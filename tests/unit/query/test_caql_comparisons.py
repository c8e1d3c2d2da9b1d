"""What CaQL's conditions mean, beside an evaluator that is plain to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kiwi_gw.query import caql
from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.values import UNDECODABLE
from tests.effort import examples
from tests.unit.query.plain_caql import Tree, holds, written

ROOTS = frozenset(caql.TOPIC_ROOTS)


def columns(records: Sequence[dict[str, Any]]) -> dict[str, list[object]]:
    return {root: [record[root] for record in records] for root in caql.TOPIC_ROOTS}


def record(data: Any) -> dict[str, Any]:
    return {"data": data, "topic": "hub/t/1/s", "timestamp": 1442944840135}


def kept(text: str, *data: Any) -> list[Any]:
    indexes, bad = compile_query(caql.read(text), ROOTS).filter(columns([record(d) for d in data]), len(data))
    assert not bad
    return [data[index] for index in indexes]


ODDS: list[Any] = [5, 5.0, 4, 6, "5", "a", True, 1, None, [5], {"x": 5}, []]


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ("data = 5", [5, 5.0]),
        ("data != 5", [4, 6, "5", "a", True, 1, None, [5], {"x": 5}, []]),
        ("data > 4.5", [5, 5.0, 6]),
        ("4.5 < data", [5, 5.0, 6]),
        ("data >= 5", [5, 5.0, 6]),
        ("data <= 4", [4, 1]),
        ('data = "5"', ["5"]),
        ('data > "5"', ["a"]),
        ('data <= "5"', ["5"]),
        ('data != "a"', [5, 5.0, 4, 6, "5", True, 1, None, [5], {"x": 5}, []]),
        ("data = true", [True]),
        ("data = 1", [1]),
        ("data > false", []),
        ("data = null", [None]),
        ("data != null", [d for d in ODDS if d is not None]),
        ("data >= null", []),
        ("data = data", ODDS),
        ("data.x = 5", [{"x": 5}]),
        ("data.x != 6", [{"x": 5}]),
        ("not data.x = 5", [d for d in ODDS if d != {"x": 5}]),
        ("data.x is missing", [d for d in ODDS if d != {"x": 5}]),
        ("data.x is not missing", [{"x": 5}]),
        ("data is missing", []),
        ('data like "A"', ["a"]),
        ('data not like "A"', [d for d in ODDS if d != "a"]),
        ('data.x not like "A"', [{"x": 5}]),
        ('not data.x like "A"', ODDS),
        ('data contains "^[0-9]$"', ["5"]),
        ('topic = "hub/t/1/s" and timestamp > 1e12', ODDS),
        ("data.x = data.y", []),
        ("data.x != data.y", []),
    ],
)
def test_values_of_many_types(condition: str, passes: list[Any]) -> None:
    found = kept(f"where {condition}", *ODDS)
    assert list(map(repr, found)) == list(map(repr, passes))


@pytest.mark.parametrize(
    ("condition", "text", "passes"),
    [
        ('data like "%"', "", True),
        ('data like "b%d"', "abxyzde", True),
        ('data like "^b%d$"', "abxyzde", False),
        ('data like "a%c"', "a\nc", True),
        ('data like "a_c"', "abc", False),
        ('data like "a_c"', "xA_Cx", True),
        ('data like "ÉTÉ"', "l'été", True),
        ('data contains "a.c"', "xABCx", True),
        ('data contains "a%c"', "abc", False),
        ('data contains ""', "", True),
        ('data contains "(a|b)+$"', "xaab", True),
        (r'data contains "\\d{3}"', "a123", True),
    ],
)
def test_patterns_ignore_case_and_are_not_anchored(condition: str, text: str, passes: bool) -> None:
    assert bool(kept(f"where {condition}", text)) is passes


def test_a_number_is_what_it_is_exactly() -> None:
    assert kept("where data = 9007199254740993", 9007199254740993, 9007199254740992, 9007199254740992.0) == [
        9007199254740993
    ]


def test_what_cannot_be_decoded_is_bad() -> None:
    query = compile_query(caql.read("where data > 1"), ROOTS)
    assert query.filter({"data": [2, UNDECODABLE, 0]}, 3) == ([0], [1])
    assert query.roots == ("data",)


def projected(text: str, *data: Any) -> list[Any]:
    query = compile_query(caql.read(text), ROOTS)
    texts = query.project(columns([record(d) for d in data]), range(len(data)))
    return [msgspec.json.decode(each) for each in texts]


def test_a_projection_leaves_out_what_is_missing() -> None:
    data = {"val": 1, "nest": {"a": 2, "b": 3}, "none": None}
    assert projected("select data.val, data.nest.a", data, {}, 5, {"nest": {"b": 1}, "val": None}) == [
        {"val": 1, "nest": {"a": 2}},
        {},
        {},
        {"val": None},
    ]
    assert projected("select data.val", data) == [{"val": 1}]
    assert projected("select data.none as n, data.nest.b as b, topic, timestamp", data) == [
        {"n": None, "b": 3, "topic": "hub/t/1/s", "timestamp": 1442944840135}
    ]
    assert projected("select data as d, topic", 5) == [{"d": 5, "topic": "hub/t/1/s"}]
    assert projected("select data.nest, data.nest.a", data) == [{"nest": {"a": 2, "b": 3}}]


_atoms = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 1.0, 0.5, 2**60, "", "a", "A", "ab", "1"]),
    st.integers(-3, 3),
    st.floats(-2, 2),
)
_data = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=6,
)
_paths = st.lists(st.sampled_from("ab"), max_size=3).map(lambda steps: ("path", "data", *steps))
_operands = st.one_of(_paths, _paths, _atoms.map(lambda value: ("constant", value)))
_comparisons: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), _operands, _operands),
    st.tuples(
        st.sampled_from(["like", "contains"]),
        st.booleans(),
        _paths,
        st.sampled_from(["a", "^A$", "b?", "[ab]+$", "_", "."]),
    ),
    st.tuples(st.just("missing"), st.booleans(), _paths),
)


def _conditions(depth: int) -> st.SearchStrategy[Tree]:
    """Those that need no parentheses, where they may stand: in `or`, in `and`, behind `not`."""
    if not depth:
        return _comparisons
    inner = _conditions(depth - 1)
    one = st.one_of(_comparisons, st.tuples(st.just("("), inner), st.tuples(st.just("not"), _comparisons))
    negated = st.one_of(one, st.tuples(st.just("not"), one))
    both = st.one_of(negated, st.tuples(st.just("and"), st.lists(negated, min_size=2, max_size=4)))
    return st.one_of(both, st.tuples(st.just("or"), st.lists(both, min_size=2, max_size=4)))


@settings(max_examples=examples(600), deadline=None)
@given(_conditions(2), st.lists(_data, min_size=1, max_size=8), st.integers(0, 5))
@example(("compare", "!=", ("path", "data"), ("path", "data")), [[True], [1], {"a": True}], 0)
def test_conditions_mean_what_the_plain_evaluator_says(tree: Tree, data: list[Any], spelling: int) -> None:
    text = f"where {written(tree, spelling)}"
    records = [record(each) for each in data]
    indexes, bad = compile_query(caql.read(text), ROOTS).filter(columns(records), len(records))
    assert not bad, text
    assert indexes == [index for index, each in enumerate(records) if holds(tree, each)], text
