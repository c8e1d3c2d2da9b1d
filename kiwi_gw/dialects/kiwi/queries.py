"""The members `where` and `select` of SUBSCRIBE (ours; the document has none): a query in Spark's SQL.

"where": "value.dep_delay > 30 AND value.carrier IN ('AA', 'UA')"
"select": "value.carrier, value.dep_delay * 60 AS seconds"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialects.compiling import BUSY, Compiling
from kiwi_gw.dialects.kiwi.beginnings import Wrong
from kiwi_gw.dialects.kiwi.requests import text
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, Decode, Kind, SourceInfo, WireFormat
from kiwi_gw.query import sql
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.filtered import filtered, projected
from kiwi_gw.query.limits import MAX_KEPT, MAX_TEXT
from kiwi_gw.query.offloaded import answered, is_little, sql_question
from kiwi_gw.query.recent import Recent
from kiwi_gw.query.tree import Query

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Codes

    Read = tuple[Query, Codes]

_WORDS: Final = 300
"""What the words of a refusal weigh beside the texts."""

MakeWire = Callable[[SourceInfo], WireFormat]


class WrongQuery(Wrong):
    """The query cannot be used. position: from 0, in the text that the message names."""

    def __init__(self, error: QueryError) -> None:
        super().__init__(str(error))
        self.position = error.position


@dataclass(frozen=True, slots=True)
class Asked:
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

    def unseen(self, batches: Sequence[Batch], decode: Decode) -> str | None:
        """What the filter names that these events do not have, in a sentence."""
        from kiwi_gw.query.seen import unseen  # as late as the compiler, see below

        if not is_little(self.where, self.select):
            return None  # only to say that, it is not read again
        return unseen(sql.read(self.where, self.select), batches, decode)

    def before(self, wire: MakeWire, compiling: Compiling, read: Read | None = None) -> MakeWire:
        """Put it before the wire format of a source. read: what the worker has made of it."""

        def make(info: SourceInfo) -> WireFormat:
            with compiling.charged():
                query, codes = read or (sql.read(self.where, self.select), {})
                return _wire(query, codes, wire, info)

        return make


@dataclass(frozen=True, slots=True)
class Texts:
    """What a SUBSCRIBE asks for, as it was written."""

    where: str | None
    select: str | None

    @property
    def is_little(self) -> bool:
        """Whether it is read and compiled in no time."""
        return is_little(self.where, self.select)

    @property
    def question(self) -> bytes:
        """What a worker is asked, if not."""
        return sql_question(self.where, self.select)


def texts(where: Raw | None, select: Raw | None, most_bytes: int = MAX_TEXT) -> Texts:
    """Read both texts. most_bytes: of them together. Raises Wrong, also for what was refused lately."""
    found: list[str | None] = []
    for name, raw in (("where", where), ("select", select)):
        written = None if raw is None else text(raw)
        if raw is not None and written is None:
            raise Wrong(f"{name} must be a string")
        found.append(written)
    size = sum(len((each or "").encode("utf-8", "surrogatepass")) for each in found)
    if size > most_bytes:
        raise Wrong(f"the query is longer than {most_bytes} bytes")
    known = _refused.known(Texts(*found))
    if known is not None:
        raise WrongQuery(known)
    return Texts(*found)


def asked(written: Texts) -> Asked | None:
    """Read the query of these texts. None: all of every event. Raises WrongQuery."""
    from kiwi_gw.query.checked import checked

    try:
        query = sql.read(written.where, written.select)
        if query == Query():
            return None
        checked(query)  # so that its mistakes are found before the source is
    except QueryError as error:
        raise _wrong(written, error) from None
    return Asked(written.where, written.select, query.key)


def offloaded(written: Texts, answer: bytes | Unanswered) -> tuple[Asked | None, Read]:
    """Take the query out of what the worker has answered, and what that has read. Raises Wrong."""
    if answer is Unanswered.BUSY:
        raise Wrong(BUSY)
    if isinstance(answer, Unanswered):
        raise _wrong(written, QueryError("the query takes too much time or memory to be read"))
    try:
        query, codes = answered(answer)
    except QueryError as error:
        raise _wrong(written, error) from None
    if query == Query():
        return None, (query, codes)
    return Asked(written.where, written.select, query.key), (query, codes)


_refused: Final[Recent[QueryError]] = Recent(MAX_KEPT)


def _wrong(written: Texts, error: QueryError) -> WrongQuery:
    """Remembers that it is. Without what led to it, which would be kept with all its frames."""
    refusal = QueryError(error.words, error.position, error.part)
    if _refused.known(written) is None:
        weight = len(written.where or "") + len(written.select or "") + _WORDS
        _refused.keep(written, weight, refusal)
    return WrongQuery(refusal)


def _wire(query: Query, codes: Codes, wire: MakeWire, info: SourceInfo) -> WireFormat:
    # The compiler, its functions and RE2 are for gateways, which have them warm; not for every command.
    from kiwi_gw.query.checked import checked

    try:
        made = checked(query, info.decode.fields, codes or None, members=info.members)
    except QueryError as error:
        raise SubscribeRefused("query", str(error)) from None
    # Headers are read where they are on the wire.
    if "headers" in made.roots and not any(field.kind is Kind.HEADERS for field in info.shape.fields):
        raise SubscribeRefused("query", "the headers of this source are not read: see its `fields`")
    return filtered(wire(info if query.select is None else projected(info)), query, made, info)
