"""What is compiled gives what walking the tree gives, for any tree and any record; nothing gets out of it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.compiler.result_json import encode_result
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Column, FunctionCall, Literal, Node, Path, Query
from kiwi_gw.query.values import UNDECODABLE, Value
from tests.effort import examples
from tests.unit.query import slow, trees

ROOTS = frozenset({"key", "value"})
BAD = b""
EFFORT = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
Record = dict[str, Value]


def columns(records: list[Record]) -> dict[str, list[Value]]:
    return {root: [record[root] for record in records] for root in ROOTS}


def slowly(node: Node, record: Record) -> bytes:
    try:
        value = slow.evaluate(node, record)
        return encode_result(value)
    except Exception:  # noqa: BLE001 (as the compiled loops do)
        return BAD


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(trees.trees, st.lists(trees.records, min_size=1, max_size=4))
def test_a_column_is_what_walking_the_tree_gives(node: Node, records: list[Record]) -> None:
    try:
        query = compile_query(Query(select=(Column((), node),)), ROOTS)
    except QueryError:
        return
    found = query.project(columns(records), range(len(records)))
    for text, record in zip(found, records, strict=True):
        expected = slowly(node, record)
        # The compiler evaluates no more than the walk; with constants and NULLs, less.
        assert text == expected or expected == BAD


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(trees.trees, st.lists(trees.records, min_size=1, max_size=4))
def test_a_filter_keeps_what_walking_the_tree_finds_true(node: Node, records: list[Record]) -> None:
    node = FunctionCall("and", (node, Literal(True)))
    try:
        query = compile_query(Query(where=node), ROOTS)
    except QueryError:
        return
    kept, bad = query.filter(columns(records), len(records))
    expected = [slowly(node, record) for record in records]
    assert [index for index in kept if expected[index] != BAD] == [
        index for index, text in enumerate(expected) if text == b"true"
    ]
    assert len(bad) <= expected.count(BAD)


@EFFORT
@given(trees.trees, st.lists(trees.records, min_size=1, max_size=3), st.integers(0, 2))
def test_an_undecodable_value_makes_one_event_bad(node: Node, records: list[Record], which: int) -> None:
    try:
        where = FunctionCall("is_null", (FunctionCall("coalesce", (node, Path("value"))),))
        query = compile_query(Query(where=where), ROOTS)
    except QueryError:
        return
    whole = columns(records)
    kept, bad = query.filter(whole, len(records))
    which %= len(records)
    whole["value"][which] = UNDECODABLE
    kept_now, bad_now = query.filter(whole, len(records))
    assert kept_now == [index for index in kept if index != which]
    assert len(bad) <= len(bad_now) <= len(bad) + 1
