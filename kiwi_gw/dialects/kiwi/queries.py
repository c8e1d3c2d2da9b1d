"""The members `where` and `select` of SUBSCRIBE (ours; the document has none): a query in Spark's SQL.

"where": "value.dep_delay > 30 AND value.carrier IN ('AA', 'UA')"
"select": "value.carrier, value.dep_delay * 60 AS seconds"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialects.compiling import BUSY, CompilingBudget, RefusedQueries, query_of_source
from kiwi_gw.dialects.kiwi.messages import Subscribe
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, Decode, SourceInfo, WireFormat
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.filtered import projected, query_transform
from kiwi_gw.query.limits import MAX_TEXT
from kiwi_gw.query.tree import Query
from kiwi_gw.query.worker_messages import decode_answer, is_small, sql_question
from kiwi_gw.struct_errors import given

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Bytecode

    Read = tuple[Query, Bytecode]

MakeWire = Callable[[SourceInfo], WireFormat]


class InvalidQuery(ValueError):  # noqa: N818  (it states what the query is)
    """The query cannot be used; the message is a sentence for the client. position: from 0, in the text that
    the message names; None: it is not about a place."""

    def __init__(self, words: str, position: int | None = None) -> None:
        super().__init__(words)
        self.position = position


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query that a client has asked for: its texts, and a key that is equal for those that give the same.

    The tree is not held: it may be a thousand objects, and a client may have many.
    """

    where: str | None
    select: str | None
    key: str

    @property
    def filters(self) -> bool:
        """Whether it leaves events out."""
        return self.where is not None

    @property
    def selects(self) -> bool:
        """Whether it makes another value of each."""
        return self.select is not None

    def missing_members(self, batches: Sequence[Batch], decode: Decode) -> str | None:
        """Say what the filter names that these events do not have."""
        from kiwi_gw.query import sql  # as late as the compiler, see below
        from kiwi_gw.query.missing_members import missing_members

        if not is_small(self.where, self.select):
            return None  # only to say that, it is not read again
        return missing_members(sql.read(self.where, self.select), batches, decode)

    def before(self, wire: MakeWire, compiling: CompilingBudget, read: Read | None = None) -> MakeWire:
        """Put it before the wire format of a source. read: what the worker has made of it."""

        def make(info: SourceInfo) -> WireFormat:
            from kiwi_gw.query import sql

            with compiling.charged():
                query, bytecode = read or (sql.read(self.where, self.select), {})
                return _wire(query, bytecode, wire, info)

        return make


@dataclass(frozen=True, slots=True)
class QueryTexts:
    """What a SUBSCRIBE asks for, as it was written."""

    where: str | None
    select: str | None

    @property
    def is_small(self) -> bool:
        """Whether it is read and compiled in no time."""
        return is_small(self.where, self.select)

    @property
    def question(self) -> bytes:
        """What a worker is asked, if not."""
        return sql_question(self.where, self.select)


def texts(command: Subscribe, most_bytes: int = MAX_TEXT) -> QueryTexts:
    """Return both texts. most_bytes: of them together. Raises InvalidQuery, also for what was
    refused lately."""
    written = QueryTexts(given(command.where), given(command.select))
    if sum(len((each or "").encode()) for each in (written.where, written.select)) > most_bytes:
        raise InvalidQuery(f"the query is longer than {most_bytes} bytes")
    try:
        _refused.check(written)
    except QueryError as known:
        raise InvalidQuery(str(known), known.position) from None
    return written


def parse_query(written: QueryTexts) -> ParsedQuery | None:
    """Read the query of these texts. None: all of every event. Raises InvalidQuery."""
    from kiwi_gw.query import sql
    from kiwi_gw.query.sql_compiler import compile_sql

    try:
        query = sql.read(written.where, written.select)
        if query == Query():
            return None
        compile_sql(query)  # so that its mistakes are found before the source is
    except QueryError as error:
        raise _wrong(written, error) from None
    return ParsedQuery(written.where, written.select, query.key)


def offloaded(written: QueryTexts, answer: bytes | Unanswered) -> tuple[ParsedQuery | None, Read]:
    """Take the query out of what the worker has answered, and what that has read. Raises InvalidQuery."""
    if answer is Unanswered.BUSY:
        raise InvalidQuery(BUSY)
    if isinstance(answer, Unanswered):
        raise _wrong(written, QueryError("the query takes too much time or memory to be read"))
    try:
        query, bytecode = decode_answer(answer)
    except QueryError as error:
        raise _wrong(written, error) from None
    if query == Query():
        return None, (query, bytecode)
    return ParsedQuery(written.where, written.select, query.key), (query, bytecode)


_refused: Final = RefusedQueries()


def _wrong(written: QueryTexts, error: QueryError) -> InvalidQuery:
    refusal = _refused.remember(written, len(written.where or "") + len(written.select or ""), error)
    return InvalidQuery(str(refusal), refusal.position)


def _wire(query: Query, bytecode: Bytecode, wire: MakeWire, info: SourceInfo) -> WireFormat:
    try:
        made = query_of_source(query, info, bytecode)
    except QueryError as error:
        raise SubscribeRefused(RefusalCode.QUERY, str(error)) from None
    written = wire(info if query.select is None else projected(info))
    return replace(written, transform=query_transform(query, made, info))
