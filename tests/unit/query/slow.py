"""Evaluates a tree for one record by walking it: slow, and with nothing of the compiler in it.

It shares the functions and the rules of types with the compiler, so what it checks is what the compiler makes
of them: the short ways, constants, the order of evaluation, paths that are read ahead.
"""

from __future__ import annotations

from collections.abc import Mapping

from kiwi_gw.query.functions import function
from kiwi_gw.query.functions.base import VARIABLE, Argument
from kiwi_gw.query.functions.cost import capped
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path
from kiwi_gw.query.values import MISSING, Value, compare, convert
from kiwi_gw.query.values.implicit_casts import conversion, settler
from kiwi_gw.query.values.types import (
    ANY,
    BIGINT,
    BOOLEAN,
    CASTS,
    DOUBLE,
    INT,
    NULL,
    STRING,
    Type,
    common,
)  # fmt: skip

Record = Mapping[str, Value]
_CHOICES = {"coalesce", "ifnull", "nvl"}


def type_of(node: Node) -> Type:
    if isinstance(node, Literal):
        return literal_type(node.value)
    if isinstance(node, Path):
        return ANY
    if isinstance(node, Cast):
        return CASTS[node.to]
    if node.name in {"and", "or", "not", "is_null", "is_true", "is_false", "between"}:
        return BOOLEAN
    if node.name in {"case", "if", *_CHOICES}:
        met = common(tuple(type_of(each) for each in branches(node)))
        assert met is not None
        return met
    bind = function(node.name).bind
    assert bind is not None
    return bind(arguments(node)).result


def literal_type(value: Value) -> Type:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return INT if -(1 << 31) <= value < 1 << 31 else BIGINT
    return NULL if value is None else DOUBLE if isinstance(value, float) else STRING


def branches(node: FunctionCall) -> list[Node]:
    if node.name in {"case", "if"}:
        last = [node.arguments[-1]] if len(node.arguments) % 2 else []
        return [*node.arguments[1::2], *last]
    return list(node.arguments)


def arguments(node: FunctionCall) -> tuple[Argument, ...]:
    return tuple(
        Argument(type_of(each), each.value if isinstance(each, Literal) else VARIABLE)
        for each in node.arguments
    )


def evaluate(node: Node, record: Record) -> Value:
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Path):
        found = read(node, record)
        return None if found is MISSING else found
    if isinstance(node, Cast):
        value, given = evaluate(node.value, record), type_of(node.value)
        if given == CASTS[node.to]:
            return value
        return (
            convert.CONVERSIONS[node.to](value) if given == ANY else conversion(given, CASTS[node.to])(value)
        )
    match node.name:
        case "and" | "or":
            return logic(node, record)
        case "not":
            found = condition(node.arguments[0], record)
            return None if found is None else not found
        case "is_null":
            return evaluate(node.arguments[0], record) is None
        case "is_true" | "is_false":
            (argument,), wanted = node.arguments, node.name == "is_true"
            if isinstance(argument, Path):
                return compare.same(evaluate(argument, record), wanted) is True
            return condition(argument, record) is wanted
        case "between":
            subject, low, high = node.arguments
            return logic(
                FunctionCall(
                    "and", (FunctionCall(">=", (subject, low)), FunctionCall("<=", (subject, high)))
                ),
                record,
            )
        case "case" | "if":
            return case(node, record)
    if node.name in _CHOICES:
        for each in node.arguments:
            value = turned(evaluate(each, record), type_of(each), type_of(node))
            if value is not None:
                return settled(node, value, record)
        return None
    return applied(node, record)


def read(path: Path, record: Record) -> Value:
    value = record[path.root]
    for step in path.steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, MISSING)
        elif isinstance(step, int) and isinstance(value, list) and 0 <= step < len(value):
            value = value[step]
        else:
            return MISSING
    return value


def logic(node: FunctionCall, record: Record) -> bool | None:
    decides = node.name == "or"
    found: list[bool | None] = []
    for each in node.arguments:
        found.append(condition(each, record))
        if found[-1] is decides:
            return decides
    return None if None in found else not decides


def condition(node: Node, record: Record) -> bool | None:
    found = turned(evaluate(node, record), type_of(node), BOOLEAN)
    assert found is None or isinstance(found, bool)
    return found


def turned(value: Value, given: Type, wanted: Type | None) -> Value:
    if value is None or wanted in (None, ANY, NULL) or given == wanted or wanted is None:
        return value
    return conversion(given, wanted)(value)


def case(node: FunctionCall, record: Record) -> Value:
    met = type_of(node)
    pairs = list(node.arguments)
    if len(pairs) % 2 == 0:
        pairs.append(Literal(None))
    for test, value in zip(pairs[:-1:2], pairs[1::2], strict=True):
        if condition(test, record):
            return settled(node, turned(evaluate(value, record), type_of(value), met), record)
    return settled(node, turned(evaluate(pairs[-1], record), type_of(pairs[-1]), met), record)


def settled(node: FunctionCall, chosen: Value, record: Record) -> Value:
    """The value of a choice, in the type that all of them have in this record."""
    every = branches(node)
    static = common(tuple(type_of(each) for each in every if type_of(each) != ANY))
    assert static is not None
    if type_of(node) != ANY or sum(type_of(each) != NULL for each in every) < 2:
        return chosen
    return settler(static)(chosen, *(evaluate(each, record) for each in every if type_of(each) == ANY))


def applied(node: FunctionCall, record: Record) -> Value:
    called = function(node.name)
    assert called.bind is not None
    binding = called.bind(arguments(node))
    values = []
    for each, want in zip(node.arguments, binding.wants, strict=True):
        if binding.missing and isinstance(each, Path):
            values.append(read(each, record))
            continue
        value = turned(evaluate(each, record), type_of(each), want)
        if value is None and binding.strict:
            return None
        values.append(value)
    return capped(binding.call, called.cost)(*values)
