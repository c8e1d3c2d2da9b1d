"""Reads a statement: `[SET key=value;]* SELECT columns FROM table [WHERE condition] [LIMIT n] [;]`.

Expressions are those of `kiwi_gw.query.sql`, with the names of `names`. What a statement needs more than one
record for is found with its place, and no further read.

A text comes from a client: its length is bounded before it is read, its words, depth and parts while it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kiwi_gw.dialects.lenses.sql.clauses import read_limit, read_settings, read_table
from kiwi_gw.dialects.lenses.sql.columns import read_columns
from kiwi_gw.dialects.lenses.sql.directives import Directives
from kiwi_gw.dialects.lenses.sql.names import MORE_THAN_ONE, RecordNames, misplaced
from kiwi_gw.dialects.lenses.sql.narrowing import narrowed
from kiwi_gw.dialects.lenses.sql.statement import Setting, Statement
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, check_text
from kiwi_gw.query.sql.cursor import Cursor
from kiwi_gw.query.sql.parser import Parser
from kiwi_gw.query.sql.reader import MAX_WORDS
from kiwi_gw.query.sql.tokens import Kind
from kiwi_gw.query.tree import Node, Path, Query, walk
from kiwi_gw.query.weighted_lru import WeightedLru

_JOINS: Final = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", ",")
_GROUPS: Final = ("GROUP", "HAVING", "ORDER", "SORT", "UNION", "INTERSECT", "EXCEPT", "MINUS")


def read(text: str) -> Statement:
    """Read a statement.

    Raises:
        QueryError: it is none, or larger than a query may be; with the position.
    """
    check_text(text)
    try:
        return _known.get(text, len(text), lambda: _Reader(text).statement())
    except RecursionError:
        raise QueryError("it is nested too deep") from None


_known: Final[WeightedLru[Statement]] = WeightedLru(MAX_KEPT)


class _Reader:
    """Read one text."""

    def __init__(self, text: str) -> None:
        self._parser = Parser(text, MAX_WORDS, RecordNames(), semicolons=True)

    def statement(self) -> Statement:
        """Read all of it."""
        cursor = self._parser.cursor
        settings = read_settings(cursor)
        cursor.expect("SELECT", "SELECT must come here")
        _refuse(cursor, "DISTINCT")
        columns = read_columns(self._parser)
        cursor.expect("FROM", "a comma, or FROM and a table, must follow")
        table = read_table(cursor, MORE_THAN_ONE)
        _refuse(cursor, *_JOINS)
        where = self._condition() if cursor.take("WHERE") else None
        _refuse(cursor, *_GROUPS)
        limit = read_limit(cursor) if cursor.take("LIMIT") else None
        if cursor.take(";") and cursor.here.kind is not Kind.END:
            raise QueryError("one statement, and nothing behind its semicolon", cursor.here.start)
        cursor.expect_end()
        return statement_of(table.text, table.start, Query(where, columns), limit, settings)

    def _condition(self) -> Node:
        found = self._parser.one()
        self._parser.nodes.use(found)
        return found


def statement_of(
    table: str, position: int, query: Query, limit: int | None, settings: tuple[Setting, ...]
) -> Statement:
    """Make a statement, with the directives taken out of its condition. position: of the table. Raises
    QueryError, with the position."""
    directives = Directives()
    where = None if query.where is None else directives.taken_out(query.where)
    check_paths([*(column.value for column in query.select or ()), *([] if where is None else [where])])
    return Statement(
        table,
        Query(where, query.select),
        limit,
        settings,
        directives.key_decoder,
        directives.value_decoder,
        directives.sample,
        directives.sample_window_ms,
        narrowed(where),
        position,
        directives.positions.get("_ktype"),
        directives.positions.get("_vtype"),
    )


def _refuse(cursor: Cursor, *words: str) -> None:
    """Raise QueryError if one of them comes: what begins so needs more than one record."""
    if cursor.here.upper in words:
        raise QueryError(MORE_THAN_ONE, cursor.here.start)


def check_paths(nodes: Iterable[Node]) -> None:
    """Raise QueryError, with the position, if any of these has a name where it has no place."""
    for node in nodes:
        for each in walk(node):
            if isinstance(each, Path) and (wrong := misplaced(each)) is not None:
                raise QueryError(wrong, each.position)
