"""Reads the tables of a statement: `FROM a [AS x] [LEFT] JOIN b [AS y] ON condition`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kiwi_gw.dialects.lenses.sql.clauses import read_table
from kiwi_gw.dialects.lenses.sql.grouped import Join
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.cursor import Cursor
from kiwi_gw.query.sql.parser import Parser
from kiwi_gw.query.sql.tokens import Kind
from kiwi_gw.query.sql.vocabulary import CLAUSES
from kiwi_gw.query.tree import Node

MAX_TABLES: Final = 4
"""Of one statement."""

NO_SUBQUERIES: Final = "there are no subqueries here: declare a spark source"

_NO_ALIAS: Final = CLAUSES | {
    *("AS", "SELECT", "SET", "OUTER", "SEMI", "ANTI", "ASOF", "TABLESAMPLE", "CLUSTER", "DISTRIBUTE"),
}
"""Words behind a table that are not its alias."""

_SIDES: Final[dict[str, Join]] = {"INNER": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "FULL": "FULL"}
_JOINS_HERE: Final = "INNER, LEFT, RIGHT and FULL JOIN are here, with ON"


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table as it is written: names in `on` have no meaning yet."""

    name: str
    prefix: str
    position: int
    join: Join | None = None
    on: Node | None = None


def read_tables(parser: Parser) -> list[WrittenTable]:
    """Read from behind FROM on. No two have one prefix.

    Raises:
        QueryError: they are none, or joined in another way; with the position.
    """
    cursor = parser.cursor
    tables = [_read_one(cursor)]
    while (join := _join(cursor, len(tables))) is not None:
        table = _read_one(cursor)
        if any(table.prefix == each.prefix for each in tables):
            raise QueryError(
                f"two tables are called {table.prefix!r}: give one a name with AS", table.position
            )
        if cursor.here.upper == "USING":
            raise QueryError("instead of USING write ON, and what is equal", cursor.here.start)
        cursor.expect("ON", "ON and a condition must follow")
        on = parser.one()
        parser.nodes.use(on)
        tables.append(WrittenTable(table.name, table.prefix, table.position, join, on))
    return tables


def _read_one(cursor: Cursor) -> WrittenTable:
    table = read_table(cursor, NO_SUBQUERIES)
    alias = table.text
    if cursor.take("AS"):
        if cursor.here.kind not in (Kind.WORD, Kind.NAME):
            cursor.wrong("a name must follow, in backquotes if it has more than letters and digits")
        alias = cursor.skip().text
    elif cursor.here.kind is Kind.NAME or (
        cursor.here.kind is Kind.WORD and cursor.here.upper not in _NO_ALIAS
    ):
        alias = cursor.skip().text
    return WrittenTable(table.text, alias, table.start)


def _join(cursor: Cursor, tables: int) -> Join | None:
    """Read how the next table is joined; None: there is no other."""
    first = cursor.here
    if first.upper == ",":
        raise QueryError(f"tables are not joined by a comma: {_JOINS_HERE}", first.start)
    if first.upper in ("CROSS", "NATURAL", "SEMI", "ANTI"):
        raise QueryError(f"{first.upper} JOIN is not here: {_JOINS_HERE}", first.start)
    side: Join = "INNER"
    if (word := cursor.take(*_SIDES)) is not None:
        side = _SIDES[word.upper]
        if side != "INNER":
            cursor.take("OUTER")
        if cursor.here.upper != "JOIN":
            raise QueryError(f"JOIN must follow: {_JOINS_HERE}", cursor.here.start)
    if cursor.take("JOIN") is None:
        return None
    if tables == MAX_TABLES:
        raise QueryError(f"more than {MAX_TABLES} tables", first.start)
    return side
