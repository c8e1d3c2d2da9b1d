"""Says what a statement of SQL v2 means: what its names stand for, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kiwi_gw.dialects.lenses.sql.any_reader import WrittenStatement, read_written
from kiwi_gw.dialects.lenses.sql.directives import Directives, terms_of
from kiwi_gw.dialects.lenses.sql.from_clause import WrittenTable
from kiwi_gw.dialects.lenses.sql.grouped import (
    GroupedStatement,
    Order,
    Table,
    root_of,
    table_of_root,
    trees_of,
)
from kiwi_gw.dialects.lenses.sql.grouping import check_grouping
from kiwi_gw.dialects.lenses.sql.narrowing import narrowed
from kiwi_gw.dialects.lenses.sql.reader import check_paths, statement_of
from kiwi_gw.dialects.lenses.sql.scope import Scope, written_name
from kiwi_gw.dialects.lenses.sql.statement import Statement
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, check_text
from kiwi_gw.query.tree import Column, FunctionCall, Literal, Node, Path, Query, walk
from kiwi_gw.query.weighted_lru import WeightedLru


def read_any(text: str) -> Statement | GroupedStatement:
    """Read a statement of SQL v2. One that looks at one record at a time is a `Statement`.

    Raises:
        QueryError: it is none, or larger than a query may be; with the position.
    """
    check_text(text)
    try:
        return _known.get(text, len(text), lambda: _read(text))
    except RecursionError:
        raise QueryError("it is nested too deep") from None


_known: Final[WeightedLru[Statement | GroupedStatement]] = WeightedLru(MAX_KEPT)


def _read(text: str) -> Statement | GroupedStatement:
    written = read_written(text)
    return _plain(written) if written.plain else _Grouped(written).statement()


def _plain(written: WrittenStatement) -> Statement:
    (table,) = written.tables
    scope = Scope([table.prefix], qualified=False)
    columns = _meant(scope, written.columns)
    where = None if written.where is None else scope.meant(written.where)
    query = Query(where, columns)
    return statement_of(table.name, table.position, query, written.limit, written.settings)


class _Grouped:
    """Find the meaning of one statement."""

    def __init__(self, written: WrittenStatement) -> None:
        self._written = written
        self._scope = Scope([table.prefix for table in written.tables], qualified=True)

    def statement(self) -> GroupedStatement:
        """Return the statement, checked."""
        written = self._written
        self._check_stars()
        columns = _meant(self._scope, written.columns)
        by_name = {} if columns is None else {column.name[0]: column.value for column in columns}
        where = None if written.where is None else self._scope.meant(written.where)
        where, tables = self._tables(where)
        having = None if written.having is None else self._scope.meant(written.having, by_name)
        found = GroupedStatement(
            tables,
            columns,
            written.distinct,
            where,
            bool(written.group_by) or written.aggregates or having is not None,
            tuple(self._group(node, columns, by_name) for node in written.group_by),
            having,
            tuple(self._order(order, columns, by_name) for order in written.order_by),
            written.limit,
            written.settings,
        )
        check_paths(trees_of(found))
        check_grouping(found, written.star)
        return found

    def _check_stars(self) -> None:
        """Refuse members that no tree has a place for: which they are, only each record says."""
        written = self._written
        for column in written.columns or ():
            if column.spread:
                root = {"value": "_value", "key": "_key"}[_root(column.value)]
                raise QueryError(f"{root}.* goes only with one record at a time", column.value.position)
        if written.columns is None and len(written.tables) > 1:
            raise QueryError("* goes only with one table: name the columns", written.star)

    def _tables(self, where: Node | None) -> tuple[Node | None, tuple[Table, ...]]:
        """Find how the tables are joined and read; the condition comes back without what says that."""
        found: list[Table] = []
        ways: list[Directives] = []
        for index in range(len(self._written.tables)):
            ways.append(Directives(root_of(index, "")))
            where = None if where is None else ways[-1].taken_out(where)
            if (place := ways[-1].positions.get("_sample")) is not None:
                raise QueryError("_sample goes only with one record at a time", place)
        for index, (table, way) in enumerate(zip(self._written.tables, ways, strict=True)):
            found.append(
                Table(
                    table.name,
                    table.prefix,
                    table.join,
                    self._on(table, index),
                    way.key_decoder,
                    way.value_decoder,
                    narrowed(where, root_of(index, "")),
                    table.position,
                    way.positions.get("_ktype"),
                    way.positions.get("_vtype"),
                )
            )
        return where, tuple(found)

    def _on(self, table: WrittenTable, index: int) -> Node | None:
        if table.on is None:
            return None
        on = self._scope.meant(table.on, tables=index + 1)
        for term in terms_of(on):
            if isinstance(term, FunctionCall) and term.name in ("=", "<=>"):
                left, right = map(_tables_in, term.arguments)
                if {index} in (left, right) and left and right and left.isdisjoint(right):
                    return on
        wanted = f"what of {table.prefix} equals what of a table before"
        raise QueryError(f"ON must have, joined by AND, {wanted}", on.position)

    def _group(self, node: Node, columns: tuple[Column, ...] | None, by_name: Mapping[str, Node]) -> Node:
        """Find what to group by. The name of a column counts only where it stands alone: in `upper(a) AS a`
        grouped by `upper(a)` it is the member."""
        if (column := _numbered(node, columns)) is not None:
            return column
        alone = written_name(node) in by_name
        return self._scope.meant(node, by_name if alone else {})

    def _order(self, order: Order, columns: tuple[Column, ...] | None, by_name: Mapping[str, Node]) -> Order:
        column = _numbered(order.value, columns)
        if column is None:
            if isinstance(order.value, Literal):
                raise QueryError("a constant orders nothing", order.value.position)
            column = self._scope.meant(order.value, by_name)
        return replace(order, value=column)


def _meant(scope: Scope, columns: tuple[Column, ...] | None) -> tuple[Column, ...] | None:
    if columns is None:
        return None
    return tuple(replace(column, value=scope.meant(column.value)) for column in columns)


def _root(node: Node) -> str:
    assert isinstance(node, Path)  # noqa: S101  (a facet is one)
    return node.root


def _tables_in(node: Node) -> set[int]:
    return {table_of_root(each.root) for each in walk(node) if isinstance(each, Path)}


def _numbered(node: Node, columns: tuple[Column, ...] | None) -> Node | None:
    """Return the column that a number means, from 1. None: it is no number."""
    if not isinstance(node, Literal) or type(node.value) is not int:
        return None
    if columns is None or not 1 <= node.value <= len(columns):
        raise QueryError(f"there is no column {node.value}", node.position)
    return columns[node.value - 1].value
