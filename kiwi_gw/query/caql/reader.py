"""CaQL as text to a tree. Everything that can be wrong is a QueryError with its position."""

from __future__ import annotations

from typing import Final

from kiwi_gw.query.caql.parser import CaqlParser
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, check_text
from kiwi_gw.query.tree import Query
from kiwi_gw.query.weighted_lru import WeightedLru

TOPIC_ROOTS = ("data", "topic", "timestamp")
"""What the query of a topic sees."""


def read(text: str, roots: tuple[str, ...] = TOPIC_ROOTS) -> Query:
    """Read the tree of `[select ...] [where ...]`. An `order by` is refused: a stream has none.

    roots: the names with which a path may begin. The first is what an event consists of if nothing is
    selected, and its name is left out of the names of columns: `select data.a.b` gives `{"a":{"b":..}}`.
    Raises QueryError.
    """
    return _known.get((text, roots), len(text), lambda: _read(text, roots))


_known: Final[WeightedLru[Query]] = WeightedLru(MAX_KEPT)


def _read(text: str, roots: tuple[str, ...]) -> Query:
    check_text(text)
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise QueryError("half of a surrogate pair is no character", position)
    return CaqlParser(text, roots).query()
