"""What the gateway and its worker process say to each other about a query.

A text of 4 KiB takes up to 9 ms to be read, and nearly as much again to be compiled. The worker does both, so
that every mistake in the text is known. It returns the tree, and the code of the loops.
"""

from __future__ import annotations

import marshal
import pickle
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Query

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Bytecode

T = TypeVar("T")

SMALL_QUERY_BYTES: Final = 512
SMALL_QUERY_WORDS: Final = 80
"""A query that has no more is read and compiled in 5 ms, whatever it says."""

_WORDS: Final = re.compile(r"\w+|[^\s\w]")


def is_small(*texts: str | None) -> bool:
    """Return whether 5 ms are enough to read and compile the query of these texts."""
    written = [text for text in texts if text is not None]
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in written) > SMALL_QUERY_BYTES:
        return False
    return sum(len(_WORDS.findall(text)) for text in written) <= SMALL_QUERY_WORDS


def sql_question(where: str | None, select: str | None) -> bytes:
    """Write the question about a condition and columns: equal for equal texts."""
    return question(_sql, where, select)


def caql_question(text: str, roots: tuple[str, ...]) -> bytes:
    """Write the question about a query in CaQL."""
    return question(_caql, text, roots)


def question(read: Callable[..., tuple[object, Bytecode]], *texts: object) -> bytes:
    """Write the question about a text in another language: equal for equal ones. read: what reads it in the
    worker, a function of a module; it may raise QueryError."""
    return pickle.dumps((read, *texts))


def answer(asked: bytes) -> bytes:
    """Find, in the worker, the query or what is wrong with it. May take long."""
    read, *texts = pickle.loads(asked)  # noqa: S301  the gateway has written it
    try:
        found, bytecode = read(*texts)
    except QueryError as error:
        return pickle.dumps((error.words, error.position, error.part))
    return pickle.dumps((found, marshal.dumps(bytecode)))


def _sql(where: str | None, select: str | None) -> tuple[Query, Bytecode]:
    # Imported late, as below: a gateway answers before it has parsers and compilers.
    from kiwi_gw.query import sql
    from kiwi_gw.query.sql_compiler import compile_sql_bytecode

    query = sql.read(where, select)
    return query, {} if query == Query() else compile_sql_bytecode(query)


def _caql(text: str, roots: tuple[str, ...]) -> tuple[Query, Bytecode]:
    from kiwi_gw.query import caql
    from kiwi_gw.query.compiler import compile_bytecode

    query = caql.read(text, roots)
    return query, compile_bytecode(query, frozenset(roots))


def decode_answer(found: bytes) -> tuple[Query, Bytecode]:
    """Read the worker's answer: the query, and the bytecode of its loops.

    Raises:
        QueryError: it cannot be used.
    """
    return decode_answer_of(Query, found)


def decode_answer_of(kind: type[T], found: bytes) -> tuple[T, Bytecode]:
    """Read the answer to a `question`: what its reader has made, which is of this kind, and bytecode.

    Raises:
        QueryError: as `decode_answer`.
    """
    first, *rest = pickle.loads(found)  # noqa: S301  a process of ours has written it, as what follows
    if isinstance(first, kind):
        return first, marshal.loads(*rest)  # noqa: S302
    raise QueryError(first, *rest)
