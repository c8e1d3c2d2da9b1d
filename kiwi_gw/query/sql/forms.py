"""Functions, and forms that look like one but have words of their own: CASE, CAST, TRIM and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import registry
from kiwi_gw.query.functions.unsupported import reason
from kiwi_gw.query.node_factory import NodeFactory
from kiwi_gw.query.sql.cursor import Cursor
from kiwi_gw.query.sql.tokens import SqlToken
from kiwi_gw.query.sql.vocabulary import DECIMALS, NO_DECIMALS, NO_INTERVALS, TYPES
from kiwi_gw.query.tree import Node

_TRIMS: Final = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


class Expressions(Protocol):
    """Read the arguments: implemented by the parser."""

    cursor: Cursor
    nodes: NodeFactory

    def one(self) -> Node:
        """Read an expression."""

    def several(self) -> list[Node]:
        """Read expressions with commas between them."""

    def sum(self) -> Node:
        """Read an expression without logic, comparisons and predicates."""


Form = Callable[[Expressions, int], Node]
"""Reads what is in the parentheses of a function whose name is at a place."""


def read_function(reader: Expressions, name: SqlToken, form: Form | None = None) -> Node:
    """Read a function from behind its parenthesis on, to the one that closes it. form: what reads it, if it
    is none of those that every query has."""
    form = form or _FORMS.get(name.upper)
    found = form(reader, name.start) if form is not None else _call(reader, name)
    reader.cursor.expect(")", "a ) must follow")
    return found


def _call(reader: Expressions, token: SqlToken) -> Node:
    cursor, name, place = reader.cursor, token.text.lower(), token.start
    if cursor.here.upper in ("DISTINCT", "*"):
        cursor.wrong(f"{cursor.here.text} is not expected here" if name in registry() else reason(name))
    arguments = [] if cursor.here.upper == ")" else reader.several()
    if token.upper in TYPES and len(arguments) == 1:
        return reader.nodes.cast(arguments[0], TYPES[token.upper], place)
    if token.upper == "DECIMAL":
        raise QueryError(NO_DECIMALS, place)
    return reader.nodes.call(name, place, *arguments)


def read_case(reader: Expressions, place: int) -> Node:
    """Read CASE from behind that word on."""
    cursor = reader.cursor
    subject = None if cursor.here.upper == "WHEN" else reader.one()
    parts: list[Node] = []
    while branch := cursor.take("WHEN"):
        condition = reader.one()
        if subject is not None:
            condition = reader.nodes.call("=", branch.start, subject, condition)
        cursor.expect("THEN")
        parts += [condition, reader.one()]
    if not parts:
        cursor.wrong("WHEN must follow")
    if cursor.take("ELSE"):
        parts.append(reader.one())
    cursor.expect("END", "WHEN, ELSE or END must follow")
    return reader.nodes.call("case", place, *parts)


def read_type(cursor: Cursor) -> str:
    """Read the name of a type."""
    word = cursor.here.upper
    if word in DECIMALS:
        cursor.wrong(NO_DECIMALS)
    if word == "INTERVAL":
        cursor.wrong(NO_INTERVALS)
    if word not in TYPES:
        cursor.wrong(f"a type must follow: one of {', '.join(dict.fromkeys(TYPES.values()))}")
    cursor.skip()
    return TYPES[word]


def _cast(reader: Expressions, place: int) -> Node:
    value = reader.one()
    reader.cursor.expect("AS", "AS and a type must follow")
    return reader.nodes.cast(value, read_type(reader.cursor), place)


def _position(reader: Expressions, place: int) -> Node:
    found = [reader.sum()]  # not more: IN is a word of its own here
    if reader.cursor.take("IN"):
        found.append(reader.one())
    elif reader.cursor.take(","):
        found += reader.several()
    return reader.nodes.call("position", place, *found)


def _substring(reader: Expressions, place: int) -> Node:
    found = [reader.one()]
    if reader.cursor.take("FROM"):
        found.append(reader.one())
        if reader.cursor.take("FOR"):
            found.append(reader.one())
    elif reader.cursor.take(","):
        found += reader.several()
    return reader.nodes.call("substring", place, *found)


def _trim(reader: Expressions, place: int) -> Node:
    """Read `trim(s)`, `trim(signs, s)` or `trim([BOTH|LEADING|TRAILING] [signs] FROM s)`.

    Spark's functions have the signs first, then what they are taken from.
    """
    cursor = reader.cursor
    side = cursor.take(*_TRIMS) if cursor.ahead().upper not in (")", ".", ",") else None
    found = [] if side is not None and cursor.here.upper == "FROM" else [reader.one()]
    if side is not None:
        cursor.expect("FROM")
        found.append(reader.one())
    elif cursor.take("FROM"):
        found.append(reader.one())
    elif cursor.take(","):
        found += reader.several()
    return reader.nodes.call("trim" if side is None else _TRIMS[side.upper], place, *found)


def _refused(message: str) -> Form:
    def refuse(reader: Expressions, _: int) -> Node:
        raise QueryError(message, reader.cursor.here.start)

    return refuse


_FORMS: Final[dict[str, Form]] = {
    "CAST": _cast,
    "EXTRACT": _refused("instead of EXTRACT there are year(x), month(x), hour(x) and so on"),
    "POSITION": _position,
    "SUBSTR": _substring,
    "SUBSTRING": _substring,
    "TRIM": _trim,
    "TRY_CAST": _refused("there is CAST, which gives NULL for what cannot be"),
}
