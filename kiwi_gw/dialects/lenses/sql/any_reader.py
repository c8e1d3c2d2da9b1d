"""Reads any statement of SQL v2:

    [SET key=value;]* SELECT [DISTINCT] columns FROM table [[AS] alias] [joins] [WHERE condition]
    [GROUP BY expressions] [HAVING condition] [ORDER BY expressions] [LIMIT n] [;]

This reads what is written; `meaning` says what it means, and what is wrong with that. Bounds are those of
`reader`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from kiwi_gw.dialects.lenses.sql.clauses import read_limit, read_settings
from kiwi_gw.dialects.lenses.sql.columns import read_columns
from kiwi_gw.dialects.lenses.sql.from_clause import NO_SUBQUERIES, WrittenTable, read_tables
from kiwi_gw.dialects.lenses.sql.grouped import Order
from kiwi_gw.dialects.lenses.sql.scope import WrittenNames
from kiwi_gw.dialects.lenses.sql.statement import Setting
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.parser import Parser
from kiwi_gw.query.sql.reader import MAX_WORDS
from kiwi_gw.query.sql.tokens import Kind
from kiwi_gw.query.sql.vocabulary import IN_SPARK
from kiwi_gw.query.sql.vocabulary import NO_SUBQUERIES as OF_ONE_EVENT
from kiwi_gw.query.tree import Column, Node

T = TypeVar("T")

_NOT_HERE: Final = {
    "OVER": "there are no windows over records here",
    "WINDOW": "there are no windows over records here",
    "FILTER": "there is no FILTER here: count_if(...), or sum(if(...))",
    "WITHIN": "there is no WITHIN GROUP here",
    "SORT": "there is ORDER BY",
    "OFFSET": "there is no OFFSET here",
    "WITH": "a statement is one SELECT",
    "UNION": "a statement is one SELECT",
    "INTERSECT": "a statement is one SELECT",
    "EXCEPT": "a statement is one SELECT",
    "MINUS": "a statement is one SELECT",
}


@dataclass(frozen=True, slots=True)
class WrittenStatement:
    """A statement as it is written: names in its trees have no meaning yet. star: where the columns begin."""

    settings: tuple[Setting, ...]
    distinct: bool
    columns: tuple[Column, ...] | None
    star: int
    tables: list[WrittenTable]
    where: Node | None
    group_by: list[Node]
    having: Node | None
    order_by: list[Order]
    limit: int | None
    aggregates: bool

    @property
    def plain(self) -> bool:
        """Whether it looks at one record at a time."""
        more = self.distinct or self.group_by or self.having is not None or self.order_by or self.aggregates
        return len(self.tables) == 1 and not more


def read_written(text: str) -> WrittenStatement:
    """Read what is written. Raises QueryError, with the position."""
    try:
        return _WrittenReader(text).statement()
    except QueryError as error:
        raise QueryError(_of_many_records(error.words), error.position) from None


def _of_many_records(words: str) -> str:
    """Return the words for what expressions have no place for: they take queries for those of one event."""
    if words == OF_ONE_EVENT:
        return NO_SUBQUERIES
    if words.endswith(IN_SPARK):
        word = words.partition(" ")[0]
        return _NOT_HERE.get(word, f"{word} has no place here")
    return words


class _WrittenReader:
    """Read one text."""

    def __init__(self, text: str) -> None:
        self._names = WrittenNames()
        self._parser = Parser(text, MAX_WORDS, self._names, semicolons=True)

    def statement(self) -> WrittenStatement:
        """Read all of it."""
        cursor = self._parser.cursor
        settings = read_settings(cursor)
        cursor.expect("SELECT", "SELECT must come here")
        distinct = cursor.take("DISTINCT") is not None
        star = cursor.here.start
        columns = read_columns(self._parser)
        cursor.expect("FROM", "a comma, or FROM and a table, must follow")
        tables = read_tables(self._parser)
        where = self._one() if cursor.take("WHERE") else None
        group_by = self._by("GROUP", self._one)
        having = self._one() if cursor.take("HAVING") else None
        order_by = self._by("ORDER", self._order)
        limit = read_limit(cursor) if cursor.take("LIMIT") else None
        if cursor.take(";") and cursor.here.kind is not Kind.END:
            raise QueryError("one statement, and nothing behind its semicolon", cursor.here.start)
        cursor.expect_end()
        return WrittenStatement(
            settings,
            distinct,
            columns,
            star,
            tables,
            where,
            group_by,
            having,
            order_by,
            limit,
            self._names.aggregates,
        )

    def _one(self) -> Node:
        found = self._parser.one()
        self._parser.nodes.use(found)
        return found

    def _by(self, word: str, read: Callable[[], T]) -> list[T]:
        cursor = self._parser.cursor
        if cursor.take(word) is None:
            return []
        cursor.expect("BY", "BY must follow")
        found = [read()]
        while cursor.take(","):
            found.append(read())
        return found

    def _order(self) -> Order:
        cursor, value = self._parser.cursor, self._one()
        way = cursor.take("ASC", "DESC")
        descending = way is not None and way.upper == "DESC"
        nulls_first = not descending
        if cursor.take("NULLS"):
            if cursor.here.upper not in ("FIRST", "LAST"):
                cursor.wrong("FIRST or LAST must follow")
            nulls_first = cursor.skip().upper == "FIRST"
        return Order(value, descending, nulls_first)
