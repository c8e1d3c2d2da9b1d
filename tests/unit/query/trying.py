"""Short ways to write trees and to try them, for tests."""

from __future__ import annotations

import msgspec

from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.tree import Column, Constant, FunctionCall, Literal, Node, Path, Query
from kiwi_gw.query.values import Value

ROOTS = frozenset({"key", "value", "offset"})


def call(name: str, *arguments: Node | Constant) -> FunctionCall:
    return FunctionCall(name, tuple(each if _is_node(each) else Literal(each) for each in arguments))  # type: ignore[arg-type, misc]


def _is_node(each: Node | Constant) -> bool:
    return not (each is None or isinstance(each, bool | int | float | str))


def at(*steps: str | int) -> Path:
    return Path("value", steps)


def kept(where: Node, values: list[Value], schema: str | None = None) -> list[int]:
    """The indexes of the values that the filter passes; none may be bad."""
    query = compile_query(Query(where), ROOTS, None if schema is None else Schema.parse(schema))
    found, bad = query.filter({"value": values}, len(values))
    assert not bad
    return found


def bad(where: Node, values: list[Value]) -> int:
    return len(compile_query(Query(where), ROOTS).filter({"value": values}, len(values))[1])


def result(node: Node, value: Value = None, schema: str | None = None) -> Value:
    """The value of an expression for a record, as JSON has it; "bad" for one that has none."""
    query = compile_query(
        Query(select=(Column((), node),)), ROOTS, None if schema is None else Schema.parse(schema)
    )
    (text,) = query.project({"value": [value], "key": [None], "offset": [0]}, [0])
    return msgspec.json.decode(text) if text else "bad"
