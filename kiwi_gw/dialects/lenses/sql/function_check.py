"""Finds mistakes in the expressions of a statement of many records, before any source is looked at: functions
that there are not, arguments that fit no function, patterns that are wrong or would take for ever, texts that
grow without a bound, or that are too long when they are written for an engine.

They are checked as those of a query on one record. What an aggregate gives is any value.
"""

from __future__ import annotations

from typing import Final

from kiwi_gw.dialects.lenses.sql.aggregates import is_aggregate
from kiwi_gw.dialects.lenses.sql.backtracking import check_patterns
from kiwi_gw.dialects.lenses.sql.from_clause import MAX_TABLES
from kiwi_gw.dialects.lenses.sql.grouped import GroupedStatement, root_of, trees_of
from kiwi_gw.dialects.lenses.sql.growth import check_growth
from kiwi_gw.dialects.lenses.sql.length import check_length
from kiwi_gw.dialects.lenses.sql.names import ROOTS
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path

_AGGREGATE: Final = "aggregate"
_ROOTS: Final = frozenset(root_of(table, root) for table in range(MAX_TABLES) for root in ROOTS) | {
    _AGGREGATE
}


def check_functions(statement: GroupedStatement) -> None:
    """Raise QueryError, with the position, for an expression that cannot be evaluated."""
    from kiwi_gw.query.compiler import check_expressions

    conditions, values = _Apart(), _Apart()
    for condition in (*(table.on for table in statement.tables), statement.where, statement.having):
        if condition is not None:
            conditions.add(condition, values)
    for node in (*statement.group_by, *(order.value for order in statement.order_by)):
        values.add(node, values)
    for column in statement.columns or ():
        values.add(column.value, values)
    check_expressions(conditions.nodes, values.nodes, _ROOTS)
    trees = tuple(trees_of(statement))
    check_patterns(trees)
    check_growth(trees)
    check_length(trees)


class _Apart:
    """Gather trees, each once."""

    def __init__(self) -> None:
        self._found: dict[str, Node] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._found.values())

    def add(self, node: Node, arguments: _Apart) -> None:
        """Add a tree without its aggregates, and what is in those to the arguments."""
        without = _without(node, arguments)
        self._found.setdefault(without.key, without)


def _without(node: Node, arguments: _Apart) -> Node:
    match node:
        case Literal() | Path():
            return node
        case Cast(value, to, position):
            return Cast(_without(value, arguments), to, position)
        case FunctionCall(name, inside, position):
            if not is_aggregate(node):
                return FunctionCall(name, tuple(_without(each, arguments) for each in inside), position)
            for each in inside:
                arguments.add(each, arguments)
            return Path(_AGGREGATE, (), position)
