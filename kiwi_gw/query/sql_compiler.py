"""Compiles a query in SQL, and says which of its two texts is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kiwi_gw.query import sql
from kiwi_gw.query.compiler import Bytecode, CompiledQuery, compile_bytecode, compile_query
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.tree import Node, Path, Query, walk


def compile_sql(
    query: Query,
    fields: str = "",
    bytecode: Bytecode | None = None,
    *,
    members: str = "",
    roots: frozenset[str] = sql.ROOTS,
) -> CompiledQuery:
    """Compile the query. fields: the schema of the values of its source, by which more may be wrong than in
    the query alone; empty: no schema. bytecode: as in `compile_query`. members: a schema of which only the
    names count, for values that are as they are. roots: what a query sees of an event.

    Raises:
        QueryError: it cannot be used; `part` says which text is meant.
    """
    if members:
        _look_up(query, Schema.known(members))
    schema = Schema.known(fields) if fields else None
    with _naming_the_part(query, schema, roots):
        return compile_query(query, roots, schema, bytecode)


def compile_sql_bytecode(query: Query) -> Bytecode:
    """Compile the query anew, for another process that calls `compile_sql`.

    Raises:
        QueryError: as `compile_sql`.
    """
    with _naming_the_part(query, None, sql.ROOTS):
        return compile_bytecode(query, sql.ROOTS)


@contextmanager
def _naming_the_part(query: Query, schema: Schema | None, roots: frozenset[str]) -> Iterator[None]:
    try:
        yield
    except QueryError as error:
        if error.part:
            raise
        # Both texts have positions: which one is it about?
        part = "where" if query.where is not None and _fails(Query(query.where), schema, roots) else "select"
        raise QueryError(error.words, error.position, part) from None


def _look_up(query: Query, schema: Schema) -> None:
    """Check that everything that a query names exists."""
    parts: list[tuple[str, Node]] = [("select", column.value) for column in query.select or ()]
    if query.where is not None:
        parts.insert(0, ("where", query.where))
    for part, node in parts:
        for one in walk(node):
            if isinstance(one, Path):
                try:
                    schema.at(one)
                except QueryError as error:
                    raise QueryError(error.words, error.position, part) from None


def _fails(query: Query, schema: Schema | None, roots: frozenset[str]) -> bool:
    try:
        compile_query(query, roots, schema)
    except QueryError:
        return True
    return False
