"""Checks what stands where: aggregates, and what is neither in one nor in GROUP BY."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kiwi_gw.dialects.lenses.sql.aggregates import first_aggregate, is_aggregate
from kiwi_gw.dialects.lenses.sql.grouped import WHOLE_VALUE, GroupedStatement
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path, walk


def check_grouping(statement: GroupedStatement, star: int) -> None:
    """Raise QueryError for what Spark would refuse, too. star: where the columns are."""
    _check_aggregates(statement)
    for node in statement.group_by:
        if not any(isinstance(each, Path) for each in walk(node)):
            raise QueryError("a constant groups nothing", node.position)
    if statement.aggregated:
        if statement.columns is None:
            raise QueryError("* is all of a record, and a group has many: name the columns", star)
        grouped = {node.key for node in statement.group_by}
        for node in _of_groups(statement):
            if (wrong := uncovered(node, grouped, aggregates=True)) is not None:
                raise QueryError("this is neither in GROUP BY nor in an aggregate", wrong.position)
    if statement.distinct:
        _check_order_of_distinct(statement)


def _check_aggregates(statement: GroupedStatement) -> None:
    places = {
        "WHERE": [] if statement.where is None else [statement.where],
        "ON": [table.on for table in statement.tables if table.on is not None],
        "GROUP BY": list(statement.group_by),
    }
    for place, nodes in places.items():
        if (wrong := first_aggregate(nodes)) is not None:
            hint = ": HAVING is for groups" if place == "WHERE" else ""
            raise QueryError(f"an aggregate has no place in {place}{hint}", wrong.position)


def _of_groups(statement: GroupedStatement) -> Iterator[Node]:
    for column in statement.columns or ():
        yield column.value
    if statement.having is not None:
        yield statement.having
    for order in statement.order_by:
        yield order.value


def _check_order_of_distinct(statement: GroupedStatement) -> None:
    columns = {column.value.key for column in statement.columns or (WHOLE_VALUE,)}
    for order in statement.order_by:
        if (wrong := uncovered(order.value, columns)) is not None:
            raise QueryError("ORDER BY has only columns where there is DISTINCT", wrong.position)


def uncovered(node: Node, known: Collection[str], *, aggregates: bool = False) -> Node | None:
    """Find what is not made of known values alone. known: the keys of trees. aggregates: they are known,
    too."""
    if isinstance(node, Literal) or node.key in known or (aggregates and is_aggregate(node)):
        return None
    match node:
        case Path(root, steps):
            inside = any(Path(root, steps[:count]).key in known for count in range(len(steps)))
            return None if inside else node
        case Cast(value):
            return uncovered(value, known, aggregates=aggregates)
        case FunctionCall(_, arguments):
            if is_aggregate(node):
                return node
            found = (uncovered(each, known, aggregates=aggregates) for each in arguments)
            return next((each for each in found if each is not None), None)
    raise AssertionError(node)
