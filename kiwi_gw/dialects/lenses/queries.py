"""Statements as sessions need them: read within a client's budget, large ones beside the event loop.

text = StatementText(sql)
text.is_small                          # then parse(text), inside `CompilingBudget.charged`
Offload(handle, text.question)         # else; its answer goes to `offloaded(text, answer)`
read.wire(records, budget)             # what a subscription is opened with
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialects.compiling import BUSY, CompilingBudget, RefusedQueries, query_of_source
from kiwi_gw.dialects.lenses.decoders import decode_of
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import EventTransform, SourceInfo, WireFormat
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.filtered import query_transform
from kiwi_gw.query.limits import MAX_TEXT
from kiwi_gw.query.worker_messages import decode_answer_of, is_small, question

if TYPE_CHECKING:  # parsers and the compiler: a gateway has them warm soon after its start
    from kiwi_gw.dialects.lenses.sql import Statement
    from kiwi_gw.query.compiler import Bytecode, CompiledQuery

T = TypeVar("T")

MakeRecords = Callable[["Statement", "Applied"], WireFormat]
"""Makes the wire format of what a statement gives of a source."""


@dataclass(frozen=True, slots=True)
class StatementText:
    """A statement as it was written."""

    text: str

    @property
    def is_small(self) -> bool:
        """Whether it is read and compiled in no time."""
        return is_small(self.text)

    @property
    def question(self) -> bytes:
        """What a worker is asked, if not."""
        return question(read_and_compile, self.text)


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """A statement that was read and compiled. bytecode: what a worker has made of it. held: the tree is kept:
    `read` does not make it of the text."""

    text: str
    statement: Statement
    bytecode: Bytecode
    held: bool = False

    @property
    def key(self) -> str:
        """Return a text that is equal for statements whose query is. Empty: it has none."""
        return "" if self.statement.plain else self.statement.query.key

    def wire(self, records: MakeRecords, compiling: CompilingBudget) -> Callable[[SourceInfo], WireFormat]:
        """Put it before the records of a source. What that returns raises SubscribeRefused: the source has
        not what the statement names."""

        # The tree is not held: it may be a thousand objects, and a client may have many.
        text, bytecode = self.text, self.bytecode
        held = self.statement if bytecode or self.held else None

        def make(info: SourceInfo) -> WireFormat:
            from kiwi_gw.dialects.lenses.sql import read

            with compiling.charged():
                try:
                    statement = held or read(text)
                    return records(statement, applied(statement, bytecode, info))
                except QueryError as error:
                    raise SubscribeRefused(RefusalCode.QUERY, str(_of_one_text(error))) from None

        return make


@dataclass(frozen=True, slots=True)
class Applied:
    """A statement as one source has it. source: how that is read for it. transform: what it asks to be done;
    None: every record is wanted as it is. query: what does that, where a statement has one. chosen: whether a
    client has chosen how it is read, in one of many ways."""

    source: SourceInfo
    transform: EventTransform | None
    query: CompiledQuery | None
    chosen: bool


class StatementChecks:
    """What a protocol does with texts before and behind their reading. Each has its own: one reads what
    another refuses."""

    def __init__(self) -> None:
        self._refused = RefusedQueries()

    def checked(self, text: str, most_bytes: int = MAX_TEXT) -> StatementText:
        """Look at the length of a text, and whether it was refused lately. Raises QueryError."""
        if len(text) > most_bytes or len(text.encode("utf-8", "surrogatepass")) > most_bytes:
            raise QueryError(f"the query is longer than {most_bytes} bytes")
        self._refused.check(text)
        return StatementText(text)

    def refuse(self, written: StatementText, error: QueryError) -> QueryError:
        """Remember what is wrong with a text, and return it to be raised."""
        return self._refused.remember(written.text, len(written.text), error)

    def answered(
        self, written: StatementText, kind: type[T], answer: bytes | Unanswered
    ) -> tuple[T, Bytecode]:
        """Take what a worker has made of a text out of its answer. Raises QueryError, with the position."""
        if answer is Unanswered.BUSY:
            raise QueryError(BUSY)
        if isinstance(answer, Unanswered):
            words = "the query takes too much time or memory to be read"
            raise self.refuse(written, QueryError(words))
        try:
            return decode_answer_of(kind, answer)
        except QueryError as error:
            raise self.refuse(written, error) from None


_checks: Final = StatementChecks()
checked = _checks.checked


def parse(written: StatementText) -> ReadStatement:
    """Read a statement, and compile it once, so that its mistakes are found before the source is. Raises
    QueryError, with the position."""
    from kiwi_gw.dialects.lenses.sql import ROOTS, read
    from kiwi_gw.query.compiler import compile_query

    try:
        statement = read(written.text)
        if not statement.plain:
            compile_query(statement.query, ROOTS)
    except QueryError as error:
        raise _checks.refuse(written, error) from None
    return ReadStatement(written.text, statement, {})


def offloaded(written: StatementText, answer: bytes | Unanswered) -> ReadStatement:
    """Take the statement out of what the worker has answered. Raises QueryError, with the position."""
    from kiwi_gw.dialects.lenses.sql import Statement

    statement, bytecode = _checks.answered(written, Statement, answer)
    return ReadStatement(written.text, statement, bytecode)


def read_and_compile(text: str) -> tuple[Statement, Bytecode]:
    """Read and compile a statement, in the worker. Raises QueryError."""
    from kiwi_gw.dialects.lenses.sql import ROOTS, read
    from kiwi_gw.query.compiler import compile_bytecode

    statement = read(text)
    return statement, {} if statement.plain else compile_bytecode(statement.query, ROOTS)


def applied(statement: Statement, bytecode: Bytecode, info: SourceInfo) -> Applied:
    """Put a statement before a source. Raises QueryError: the source has not what it names."""
    from kiwi_gw.dialects.lenses.sql import ROOTS

    source = replace(info, decode=decode_of(statement, info.decode))
    if source.decode.value != info.decode.value:
        source = replace(source, members="")  # of another form it has none of these
    chosen = source.decode != info.decode
    if statement.plain:
        return Applied(source, None, None, chosen)
    made = query_of_source(statement.query, source, bytecode, ROOTS)
    return Applied(source, query_transform(statement.query, made, source), made, chosen)


def _of_one_text(error: QueryError) -> QueryError:
    """Return it without the name of a part: a statement is one text."""
    return QueryError(error.words, error.position)
