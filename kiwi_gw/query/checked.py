"""Compiles a query in SQL, and says which of its two texts is wrong."""

from __future__ import annotations

from kiwi_gw.query import sql
from kiwi_gw.query.compiler import Codes, Compiled, compiled
from kiwi_gw.query.compiler.paths import inside
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.tree import Node, Path, Query


def checked(query: Query, fields: str = "", codes: Codes | None = None, *, members: str = "") -> Compiled:
    """Compile the query. fields: the schema of the values of its source, which may have more to say against
    it than the query alone; empty: it has none. codes: as in `compiled`. members: a schema of which only the
    names count, for values that are as they are.

    Raises:
        QueryError: it cannot be used; `part` says which text is meant.
    """
    if members:
        _look_up(query, Schema.known(members))
    schema = Schema.known(fields) if fields else None
    try:
        return compiled(query, sql.ROOTS, schema, codes)
    except QueryError as error:
        if error.part:
            raise
        # Both texts have positions: which one is it about?
        part = "where" if query.where is not None and _fails(Query(query.where), schema) else "select"
        raise QueryError(error.words, error.position, part) from None


def _look_up(query: Query, schema: Schema) -> None:
    """Whether there is everything that a query names."""
    parts: list[tuple[str, Node]] = [("select", column.value) for column in query.select or ()]
    if query.where is not None:
        parts.insert(0, ("where", query.where))
    for part, node in parts:
        for one in inside(node):
            if isinstance(one, Path):
                try:
                    schema.at(one)
                except QueryError as error:
                    raise QueryError(error.words, error.position, part) from None


def _fails(query: Query, schema: Schema | None) -> bool:
    try:
        compiled(query, sql.ROOTS, schema)
    except QueryError:
        return True
    return False
