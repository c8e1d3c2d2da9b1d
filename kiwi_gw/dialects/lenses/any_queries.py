"""Statements of SQL v2 as sessions need them, as `queries` has those of one record at a time.

text = checked_any(sql)
text.is_small                            # then parse_any(text), inside `CompilingBudget.charged`
Offload(handle, question_any(text))      # else; its answer goes to `offloaded_any(text, answer)`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialects.lenses.queries import ReadStatement, StatementChecks, StatementText
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.worker_messages import question

if TYPE_CHECKING:  # parsers and the compiler: a gateway has them warm soon after its start
    from kiwi_gw.dialects.lenses.sql import GroupedStatement, Statement
    from kiwi_gw.query.compiler import Bytecode


@dataclass(frozen=True, slots=True)
class AnyStatement:
    """Hold what a worker answers with: a statement of either kind."""

    statement: Statement | GroupedStatement


_checks: Final = StatementChecks()
checked_any = _checks.checked


def question_any(written: StatementText) -> bytes:
    """Return what a worker is asked about a text that is not small."""
    return question(read_and_compile_any, written.text)


def parse_any(written: StatementText) -> ReadStatement | GroupedStatement:
    """Read a statement, and find its mistakes before its sources are. Raises QueryError, with the
    position."""
    from kiwi_gw.dialects.lenses.sql import ROOTS, GroupedStatement, check_functions, read_any
    from kiwi_gw.query.compiler import compile_query

    try:
        statement = read_any(written.text)
        if isinstance(statement, GroupedStatement):
            check_functions(statement)
            return statement
        if not statement.plain:
            compile_query(statement.query, ROOTS)
    except QueryError as error:
        raise _checks.refuse(written, error) from None
    return ReadStatement(written.text, statement, {}, held=True)


def warm_up() -> None:
    """Read a statement of either kind once: it imports what reads them, which takes 30 ms."""
    for sql in ("SELECT a FROM t WHERE a > 1", "SELECT a, COUNT(*) FROM t GROUP BY a"):
        parse_any(checked_any(sql))


def offloaded_any(written: StatementText, answer: bytes | Unanswered) -> ReadStatement | GroupedStatement:
    """Take the statement out of what the worker has answered. Raises QueryError, with the position."""
    from kiwi_gw.dialects.lenses.sql import GroupedStatement

    found, bytecode = _checks.answered(written, AnyStatement, answer)
    if isinstance(found.statement, GroupedStatement):
        return found.statement
    return ReadStatement(written.text, found.statement, bytecode, held=True)


def read_and_compile_any(text: str) -> tuple[AnyStatement, Bytecode]:
    """Read and compile a statement, in the worker. Raises QueryError."""
    from kiwi_gw.dialects.lenses.sql import ROOTS, GroupedStatement, check_functions, read_any
    from kiwi_gw.query.compiler import compile_bytecode

    statement = read_any(text)
    if isinstance(statement, GroupedStatement):
        check_functions(statement)
        return AnyStatement(statement), {}
    return AnyStatement(statement), {} if statement.plain else compile_bytecode(statement.query, ROOTS)
