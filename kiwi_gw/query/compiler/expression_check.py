"""Finds what is wrong with expressions that others evaluate: written as for a query, they are not kept."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.query import cpu_budget, patterns
from kiwi_gw.query.compiler.code_fragments import Namespace
from kiwi_gw.query.compiler.expression_codegen import ExpressionCodegen
from kiwi_gw.query.compiler.paths import Paths
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import check_size
from kiwi_gw.query.tree import Column, Node, Query
from kiwi_gw.query.values.types import ANY, BOOLEAN, NULL


def check_expressions(conditions: Sequence[Node], values: Sequence[Node], roots: frozenset[str]) -> None:
    """Check expressions as those of one query. roots: the names of columns that there are.

    Raises:
        QueryError: one names what is not there, is too large, or asks for what cannot be; with the position.
    """
    check_size(Query(None, tuple(Column((), node) for node in (*conditions, *values))))
    variables = {root: f"r{index}" for index, root in enumerate(sorted(roots))}
    namespace = Namespace()
    codegen = ExpressionCodegen(namespace, Paths([], variables, namespace, None))
    try:
        with cpu_budget.limited(), patterns.one_query():  # constants are evaluated here
            for node in values:
                codegen.value(node)
            for node in conditions:
                found = codegen.value(node).type
                if found not in (BOOLEAN, NULL, ANY):
                    raise QueryError(f"a condition is BOOLEAN, and this is {found}", node.position)
    except (RecursionError, MemoryError):
        raise QueryError("the query is too large") from None
