"""What the first query of a process would otherwise wait for."""

from __future__ import annotations

from kiwi_gw.query import caql, sql
from kiwi_gw.query.compiler import compiled


def warm() -> None:
    """Read and compile a query of either language once. It imports their parsers, which takes some 0.2 s: for
    a thread, before anybody asks, and not for the event loop when somebody does."""
    compiled(sql.read("value.a > 1 AND key LIKE 'a%'", "value.a AS b"), sql.ROOTS)
    compiled(caql.read('select data.a where data.a > 1 and data.b like "a"'), frozenset(caql.TOPIC_ROOTS))
