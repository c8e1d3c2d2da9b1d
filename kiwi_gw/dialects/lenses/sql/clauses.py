"""The clauses of a statement that are no expressions: settings, the name of a table, LIMIT."""

from __future__ import annotations

import re
from typing import Final

from kiwi_gw.dialects.lenses.sql.statement import Setting
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.cursor import Cursor
from kiwi_gw.query.sql.tokens import Kind, SqlToken

MAX_SETTINGS: Final = 32
"""Of one statement."""

_TABLE: Final = re.compile(r"[A-Za-z0-9._-]+")


def read_settings(cursor: Cursor) -> tuple[Setting, ...]:
    """Read what comes before SELECT."""
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


def read_table(cursor: Cursor, no_subquery: str) -> SqlToken:
    """Read the name of a table. no_subquery: what is said of a SELECT in its place."""
    if cursor.here.kind is Kind.NAME:
        return cursor.skip()
    found = cursor.skip_matching(_TABLE)
    if found is None:
        if cursor.here.upper == "(":
            raise QueryError(no_subquery, cursor.here.start)
        cursor.wrong("a table must follow: letters, digits, ., _ and -, or anything in backquotes")
    return found


def read_limit(cursor: Cursor) -> int:
    """Read what follows LIMIT."""
    token = cursor.here
    if token.kind is not Kind.NUMBER or not token.text.isdecimal() or not 0 < int(token.text) < 1 << 63:
        cursor.wrong("a whole number from 1 must follow LIMIT")
    return int(cursor.skip().text)
