"""Reads a statement: `[SET key=value;]* SELECT columns FROM table [WHERE condition] [LIMIT n] [;]`.

Expressions are those of `kiwi_gw.query.sql`, with the names of `names`. What a statement needs more than one
record for is found with its place, and no further read.

A text comes from a client: its length is bounded before it is read, its words, depth and parts while it is.
"""

from __future__ import annotations

import re
from typing import Final

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

MAX_SETTINGS: Final = 32
"""Of one statement."""

_TABLE: Final = re.compile(r"[A-Za-z0-9._-]+")
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
        settings = _settings(cursor)
        cursor.expect("SELECT", "SELECT must come here")
        _refuse(cursor, "DISTINCT")
        columns = read_columns(self._parser)
        cursor.expect("FROM", "a comma, or FROM and a table, must follow")
        table, position = _table(cursor)
        _refuse(cursor, *_JOINS)
        where = self._condition() if cursor.take("WHERE") else None
        _refuse(cursor, *_GROUPS)
        limit = _limit(cursor) if cursor.take("LIMIT") else None
        if cursor.take(";") and cursor.here.kind is not Kind.END:
            raise QueryError("one statement, and nothing behind its semicolon", cursor.here.start)
        cursor.expect_end()
        directives = Directives()
        if where is not None:
            where = directives.taken_out(where)
        for node in [column.value for column in columns or ()] + ([] if where is None else [where]):
            _check_paths(node)
        return Statement(
            table,
            Query(where, columns),
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

    def _condition(self) -> Node:
        found = self._parser.one()
        self._parser.nodes.use(found)
        return found


def _settings(cursor: Cursor) -> tuple[Setting, ...]:
    found: list[Setting] = []
    while cursor.take("SET"):
        if len(found) == MAX_SETTINGS:
            cursor.wrong(f"more than {MAX_SETTINGS} settings")
        first = cursor.here
        name = _word(cursor, "the name of a setting must follow")
        while cursor.take("."):
            name += f".{_word(cursor, 'the rest of its name must follow')}"
        _expect(cursor, "=", "= and a value must follow")
        found.append(Setting(name, _setting(cursor), first.start))
        _expect(cursor, ";", "a ; must follow")
    return tuple(found)


def _expect(cursor: Cursor, sign: str, message: str) -> None:
    """Go behind a sign. Where SELECT comes in its place, that is not what is wrong, see `Cursor.wrong`."""
    if cursor.take(sign) is None:
        raise QueryError(message, cursor.here.start)


def _setting(cursor: Cursor) -> str:
    sign = "-" if cursor.take("-") else ""
    if cursor.here.kind not in (Kind.WORD, Kind.NAME, Kind.NUMBER, Kind.STRING):
        cursor.wrong("a value must follow")
    return sign + cursor.skip().text


def _word(cursor: Cursor, message: str) -> str:
    if cursor.here.kind not in (Kind.WORD, Kind.NAME):
        cursor.wrong(message)
    return cursor.skip().text


def _table(cursor: Cursor) -> tuple[str, int]:
    if cursor.here.kind is Kind.NAME:
        found = cursor.skip()
    elif (read := cursor.skip_matching(_TABLE)) is not None:
        found = read
    elif cursor.here.upper == "(":
        raise QueryError(MORE_THAN_ONE, cursor.here.start)
    else:
        cursor.wrong("a table must follow: letters, digits, ., _ and -, or anything in backquotes")
    return found.text, found.start


def _refuse(cursor: Cursor, *words: str) -> None:
    """Raise QueryError if one of them comes: what begins so needs more than one record."""
    if cursor.here.upper in words:
        raise QueryError(MORE_THAN_ONE, cursor.here.start)


def _limit(cursor: Cursor) -> int:
    token = cursor.here
    if token.kind is not Kind.NUMBER or not token.text.isdecimal() or not 0 < int(token.text) < 1 << 63:
        cursor.wrong("a whole number from 1 must follow LIMIT")
    return int(cursor.skip().text)


def _check_paths(node: Node) -> None:
    for each in walk(node):
        if isinstance(each, Path) and (wrong := misplaced(each)) is not None:
            raise QueryError(wrong, each.position)
