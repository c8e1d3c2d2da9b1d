"""Aggregates: their names, and how they are read. In trees they are calls of `agg.sum` and the like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeGuard

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.unsupported import AGGREGATES, WINDOWS
from kiwi_gw.query.sql.forms import Expressions, Form
from kiwi_gw.query.sql.tokens import SqlToken
from kiwi_gw.query.tree import FunctionCall, Node, walk

_PREFIX: Final = "agg."
_DISTINCT: Final = "agg.distinct."
_MANY: Final = 16
NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "count": (1, _MANY),
    "sum": (1, 1),
    "avg": (1, 1),
    "min": (1, 1),
    "max": (1, 1),
    "count_if": (1, 1),
    "approx_count_distinct": (1, 1),
    "stddev": (1, 1),
    "variance": (1, 1),
    "median": (1, 1),
    "first": (1, 1),
    "last": (1, 1),
    "min_by": (2, 2),
    "max_by": (2, 2),
}
"""All aggregates: how many arguments each takes, fewest and most. `count(*)` has none in a tree."""

_OF_DISTINCT: Final = frozenset(("count", "sum", "avg", "min", "max", "stddev", "variance"))


def aggregate_of(node: Node) -> tuple[str, bool] | None:
    """Return the name of the aggregate that a node is, and whether it is of DISTINCT values; None: none."""
    if not isinstance(node, FunctionCall) or not node.name.startswith(_PREFIX):
        return None
    if node.name.startswith(_DISTINCT):
        return node.name.removeprefix(_DISTINCT), True
    return node.name.removeprefix(_PREFIX), False


def is_aggregate(node: Node) -> TypeGuard[FunctionCall]:
    return isinstance(node, FunctionCall) and node.name.startswith(_PREFIX)


def first_aggregate(nodes: Sequence[Node]) -> Node | None:
    """Find the first aggregate that is in trees."""
    return next((each for node in nodes for each in walk(node) if is_aggregate(each)), None)


def aggregate_form(token: SqlToken) -> Form | None:
    """Return what reads an aggregate of a name. None: it is another function.

    Raises:
        QueryError: it is one of Spark's that is not here.
    """
    name = token.text.lower()
    if name in NUMBERS:
        return _reading(name)
    if name in AGGREGATES:
        raise QueryError(f"there is no {name} here; aggregates are {', '.join(NUMBERS)}", token.start)
    if name in WINDOWS:
        raise QueryError(f"{name} needs a window over records; there are none here", token.start)
    return None


def _reading(name: str) -> Callable[[Expressions, int], Node]:
    def read(reader: Expressions, place: int) -> Node:
        cursor = reader.cursor
        distinct = cursor.take("DISTINCT")
        if distinct is not None and name not in _OF_DISTINCT:
            raise QueryError(f"{name} takes no DISTINCT", distinct.start)
        if name == "count" and distinct is None and cursor.take("*"):
            return reader.nodes.call(f"{_PREFIX}count", place)
        if cursor.here.upper == "*":
            cursor.wrong("only count takes a *, and no DISTINCT with it")
        arguments = [] if cursor.here.upper == ")" else reader.several()
        fewest, most = NUMBERS[name]
        if not fewest <= len(arguments) <= most:
            counted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise QueryError(f"{name} takes {counted} arguments, and here are {len(arguments)}", place)
        if (inner := first_aggregate(arguments)) is not None:
            raise QueryError("an aggregate has no place in another one", inner.position)
        return reader.nodes.call(f"{_DISTINCT if distinct else _PREFIX}{name}", place, *arguments)

    return read
