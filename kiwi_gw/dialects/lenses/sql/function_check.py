"""Finds mistakes in the expressions of a statement of many records, before any source is looked at: functions
that there are not, arguments that fit no function, patterns that are wrong or would take for ever.

They are compiled as a query on one record would be, and thrown away. What an aggregate gives is any value.
"""

from __future__ import annotations

from typing import Final

from kiwi_gw.dialects.lenses.sql.aggregates import is_aggregate
from kiwi_gw.dialects.lenses.sql.backtracking import check_patterns
from kiwi_gw.dialects.lenses.sql.from_clause import MAX_TABLES
from kiwi_gw.dialects.lenses.sql.grouped import GroupedStatement, root_of
from kiwi_gw.dialects.lenses.sql.names import ROOTS
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Cast, Column, FunctionCall, Literal, Node, Path, Query

_AGGREGATE: Final = "aggregate"
_ROOTS: Final = frozenset(root_of(table, root) for table in range(MAX_TABLES) for root in ROOTS) | {
    _AGGREGATE
}


def check_functions(statement: GroupedStatement) -> None:
    """Raise QueryError, with the position, for an expression that cannot be evaluated."""
    from kiwi_gw.query.compiler import compile_bytecode

    checked = _Apart()
    conditions = [table.on for table in statement.tables] + [statement.where, statement.having]
    for condition in conditions:
        if condition is not None:
            checked.add(FunctionCall("is_true", (condition,), condition.position))
    for node in (*statement.group_by, *(order.value for order in statement.order_by)):
        checked.add(node)
    for column in statement.columns or ():
        checked.add(column.value)
    columns = tuple(Column((str(index),), node) for index, node in enumerate(checked.found.values()))
    try:
        compile_bytecode(Query(None, columns or None), _ROOTS)
    except QueryError as error:
        raise QueryError(error.words, error.position) from None
    check_patterns(checked.found.values())


class _Apart:
    """Gather trees, each once. Aggregates are taken out of them, and their arguments are trees, too."""

    def __init__(self) -> None:
        self.found: dict[str, Node] = {}

    def add(self, node: Node) -> None:
        without = self._without(node)
        self.found.setdefault(without.key, without)

    def _without(self, node: Node) -> Node:
        match node:
            case Literal() | Path():
                return node
            case Cast(value, to, position):
                return Cast(self._without(value), to, position)
            case FunctionCall(name, arguments, position):
                if not is_aggregate(node):
                    return FunctionCall(name, tuple(map(self._without, arguments)), position)
                for argument in arguments:
                    self.add(argument)
                return Path(_AGGREGATE, (node.key,), position)
