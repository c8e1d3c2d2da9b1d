"""Queries in Spark's SQL: the text of a condition and that of a list of columns become a tree.

    value.dep_delay > 30 AND value.carrier IN ('AA', 'UA')
    value.carrier, value.dep_delay * 60 AS seconds

Names of functions and keywords may be in any case; the names of members may not: JSON's are not the same
with other letters. A number with a point is a DOUBLE, where Spark has a decimal.

A text comes from a client: its length is bounded before it is read, its words, depth and parts while it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, check_text
from kiwi_gw.query.sql.parser import Parser
from kiwi_gw.query.tree import Column, Node, Query
from kiwi_gw.query.weighted_lru import WeightedLru

T = TypeVar("T")

MAX_WORDS: Final = 600
"""Words and signs of one text: 300 nodes have no more, unless it is mostly brackets and dots."""

ROOTS: Final = frozenset(("key", "value", "partition", "offset", "timestamp", "headers"))
"""What a query in SQL sees of an event."""


def read(where: str | None, select: str | None) -> Query:
    """Read the trees of a condition and of columns; None: no query. `select` may be `*`, which is no query
    too.

    QueryError, its position in the text that is wrong (`QueryError.part` says which: `where` or `select`).
    """
    return Query(
        None if where is None else _in("where", where, _condition, _conditions),
        None if select is None else _in("select", select, _columns, _selections),
    )


def _condition(text: str) -> Node:
    return Parser(text, MAX_WORDS).condition()


def _columns(text: str) -> tuple[Column, ...] | None:
    if text.strip() == "*":
        return None
    columns: dict[str, Column] = {}
    for name, value, position in Parser(text, MAX_WORDS).columns():
        if name in columns:
            raise QueryError(f"two columns are called {name!r}: give one another name with AS", position)
        columns[name] = Column((name,), value)
    return tuple(columns.values())


_conditions: Final[WeightedLru[Node]] = WeightedLru(MAX_KEPT)
_selections: Final[WeightedLru[tuple[Column, ...] | None]] = WeightedLru(MAX_KEPT)


def _in(part: str, text: str, read: Callable[[str], T], known: WeightedLru[T]) -> T:
    try:
        check_text(text)
        return known.get(text, len(text), lambda: read(text))
    except QueryError as error:
        raise QueryError(error.words, error.position, part) from None
    except RecursionError:
        raise QueryError("it is nested too deep", part=part) from None
