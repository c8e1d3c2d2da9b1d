"""Functions on arrays and objects."""

from __future__ import annotations

from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Argument, Arguments, Binding, Function
from kiwi_gw.query.functions.cost import FIXED, FunctionCost
from kiwi_gw.query.values import Value, compare
from kiwi_gw.query.values.types import ANY, BOOLEAN, INT, common


def _size(value: Value) -> int | None:
    """Count items or members; -1 for NULL, as Spark does."""
    if value is None:
        return -1
    return len(value) if isinstance(value, list | dict) else None


def _check_kind(name: str, argument: Argument, *kinds: str) -> None:
    if argument.type.kind not in {*kinds, "ANY", "NULL"}:
        raise QueryError(f"{name} takes {' or '.join(kinds)}, and this is {argument.type}", argument.position)


def _bind_size(arguments: Arguments) -> Binding:
    _check_kind("size", arguments[0], "ARRAY", "MAP")
    return Binding(INT, _size, (None,), strict=False)


def _bind_contains(arguments: Arguments) -> Binding:
    """Refuse what can never be an item of the array, as Spark does."""
    array, wanted = arguments
    _check_kind("array_contains", array, "ARRAY")
    item = array.type.item or ANY
    if common((item, wanted.type), promote=False) is None:
        message = f"array_contains looks for {item} in {array.type}, and this is {wanted.type}"
        raise QueryError(message, wanted.position)

    def call(items: Value, wanted: Value) -> bool | None:
        if not isinstance(items, list):
            return None
        there = [item for item in items if item is not None]
        alike = [item for item in there if _kind(item) is _kind(wanted)]
        if type(wanted) is int and float in map(type, alike):
            wanted = float(wanted)  # the array is one of DOUBLE
        if any(compare.eq(item, wanted) for item in alike):
            return True
        return None if len(alike) < len(items) else False

    return Binding(BOOLEAN, call, (None, None))


def _kind(value: Value) -> type:
    """Return the type for a comparison: numbers are of one."""
    return int if type(value) is float else type(value)


def _bind_element(arguments: Arguments) -> Binding:
    holder, at = arguments
    _check_kind("element_at", holder, "ARRAY", "MAP")
    result = holder.type.item or ANY

    def call(value: Value, key: Value) -> Value:
        if isinstance(value, list) and type(key) is int:
            return value[key - 1 if key > 0 else key] if 0 < abs(key) <= len(value) else None
        return value.get(key) if isinstance(value, dict) and isinstance(key, str) else None

    if at.constant == 0 and at.type == INT:
        raise QueryError("items are counted from 1, or from -1 at the end", at.position)
    return Binding(result, call, (None, None))


# A microsecond for each item.
_COMPARES: Final = FunctionCost(pace=32)

FUNCTIONS: Final = (
    Function(
        "size",
        (1, 1),
        "size(x)",
        "the number of items or members; -1 for NULL",
        _bind_size,
        cost=FIXED,
    ),
    Function(
        "array_contains",
        (2, 2),
        "array_contains(array, x)",
        "whether x is an item",
        _bind_contains,
        cost=_COMPARES,
    ),
    Function(
        "element_at",
        (2, 2),
        "element_at(x, at)",
        "an item, from 1 or from -1 at the end, or a member",
        _bind_element,
        cost=FIXED,
    ),
)
