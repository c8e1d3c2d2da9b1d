"""Queries in Spark's SQL: the text of a condition and that of a list of columns become a tree.

    value.dep_delay > 30 AND value.carrier IN ('AA', 'UA')
    value.carrier, value.dep_delay * 60 AS seconds

Names of functions and keywords may be in any case; the names of members may not: JSON's are not the same
with other letters. A number with a point is a DOUBLE, where Spark has a decimal.

A text comes from a stranger: how long it is, how many words it has and how deep it is are checked before
sqlglot, which calls itself for every nesting, sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH, MAX_KEPT, MAX_NODES, check_text
from kiwi_gw.query.recent import Recent
from kiwi_gw.query.tree import Column, Node, Query

if TYPE_CHECKING:
    from sqlglot import exp

    from kiwi_gw.query.sql.nodes import Reader

T = TypeVar("T")

MAX_WORDS: Final = 600
"""Words and signs of one text: 300 nodes have no more, unless it is mostly brackets and dots."""

ROOTS: Final = frozenset(("key", "value", "partition", "offset", "timestamp", "headers"))
"""What a query in SQL sees of an event."""


def read(where: str | None, select: str | None) -> Query:
    """The tree of a condition and of columns; None: there is none. `select` may be `*`, which is none too.

    QueryError, its position in the text that is wrong (`QueryError.part` says which: `where` or `select`).
    """
    return Query(
        None if where is None else _in("where", where, _condition, _conditions),
        None if select is None else _in("select", select, _columns, _selections),
    )


def _condition(text: str) -> Node:
    ((found, _),) = _parsed(text, columns=False)
    return _reader().node(found)


def _columns(text: str) -> tuple[Column, ...] | None:
    if text.strip() == "*":
        return None
    found = _parsed(text, columns=True)
    reader = _reader()
    columns: dict[str, Column] = {}
    for expression, written in found:
        name, value, position = _named(expression, written)
        if name in columns:
            raise QueryError(f"two columns are called {name!r}: give one another name with AS", position)
        columns[name] = Column((name,), reader.node(value))
    return tuple(columns.values())


_conditions: Final[Recent[Node]] = Recent(MAX_KEPT)
_selections: Final[Recent[tuple[Column, ...] | None]] = Recent(MAX_KEPT)


def _in(part: str, text: str, read: Callable[[str], T], known: Recent[T]) -> T:
    try:
        check_text(text)
        return known.get(text, len(text), lambda: read(text))
    except QueryError as error:
        raise QueryError(error.words, error.position, part) from None
    except (RecursionError, MemoryError):
        raise QueryError("it is nested too deep", part=part) from None
    except ImportError:  # not the text's fault
        raise
    except Exception as error:  # whatever a stranger's text does to the parser, it ends no connection
        raise QueryError("it cannot be read", part=part) from error


def _parsed(text: str, *, columns: bool) -> list[tuple[exp.Expr, str]]:
    from kiwi_gw.query.sql.grammar import parsed

    return parsed(text, columns=columns, max_depth=MAX_DEPTH, max_tokens=MAX_WORDS)


def _reader() -> Reader:
    from kiwi_gw.query.sql.nodes import Reader

    return Reader(MAX_DEPTH, MAX_NODES)


def _named(expression: exp.Expr, written: str) -> tuple[str, exp.Expr, int]:
    """A column's name, as Spark gives it: the last member's, or its text where it is no member."""
    from sqlglot import exp

    from kiwi_gw.query.sql.nodes import place

    position = place(expression)
    if isinstance(expression, exp.Star):
        raise QueryError("* is all of an event, and goes alone", position)
    if isinstance(expression, exp.Alias):
        return expression.alias, expression.this, position
    if isinstance(expression, exp.Column):
        return expression.name, expression, position
    if isinstance(expression, exp.Dot):
        return expression.expression.name, expression, position
    return written, expression, position
