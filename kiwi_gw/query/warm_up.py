"""The work that the first query of a process would otherwise wait for."""

from __future__ import annotations


def warm_up() -> None:
    """Read and compile a query of either language once. It imports parsers, compilers and RE2: for a thread,
    while the gateway answers requests already, and before it lets clients in."""
    from kiwi_gw.query import caql, sql
    from kiwi_gw.query.compiler import compile_query

    compile_query(sql.read("value.a > 1 AND key LIKE 'a%'", "value.a AS b"), sql.ROOTS)
    compile_query(
        caql.read('select data.a where data.a > 1 and data.b like "a"'), frozenset(caql.TOPIC_ROOTS)
    )
