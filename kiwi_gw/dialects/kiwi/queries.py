"""The members `where` and `select` of SUBSCRIBE (ours; the document has none): a query in Spark's SQL.

"where": "value.dep_delay > 30 AND value.carrier IN ('AA', 'UA')"
"select": "value.carrier, value.dep_delay * 60 AS seconds"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from kiwi_gw.dialects.compiling import Compiling
from kiwi_gw.dialects.kiwi.beginnings import Wrong
from kiwi_gw.dialects.kiwi.requests import text
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, Decode, Kind, SourceInfo, WireFormat
from kiwi_gw.query import sql
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.filtered import filtered, projected
from kiwi_gw.query.limits import MAX_KEPT, MAX_TEXT
from kiwi_gw.query.recent import Recent
from kiwi_gw.query.tree import Query

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Compiled

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

        return unseen(sql.read(self.where, self.select), batches, decode)

    def before(self, wire: MakeWire, compiling: Compiling) -> MakeWire:
        """Puts it before the wire format of a source."""

        def make(info: SourceInfo) -> WireFormat:
            with compiling.charged():
                return _wire(sql.read(self.where, self.select), wire, info)

        return make


_refused: Final[Recent[QueryError]] = Recent(MAX_KEPT)


def asked(where: Raw | None, select: Raw | None, most_bytes: int = MAX_TEXT) -> Asked | None:
    """The query of a SUBSCRIBE; None: all of every event. most_bytes: of its texts, together. Raises Wrong,
    the same again for equal texts."""
    texts: list[str | None] = []
    for name, raw in (("where", where), ("select", select)):
        written = None if raw is None else text(raw)
        if raw is not None and written is None:
            raise Wrong(f"{name} must be a string")
        texts.append(written)
    size = sum(len((each or "").encode("utf-8", "surrogatepass")) for each in texts)
    if most_bytes < MAX_TEXT and size > most_bytes:
        raise Wrong(f"the query is longer than {most_bytes} bytes")
    key = texts[0], texts[1]
    known = _refused.known(key)
    if known is not None:
        raise WrongQuery(known)
    try:
        query = sql.read(*key)
        if query.where is None and query.select is None:
            return None
        _compiled(query)  # so that its mistakes are found before the source is
    except QueryError as error:
        # Without what led to it, which would be kept with all its frames.
        refusal = QueryError(error.words, error.position, error.part)
        _refused.keep(key, sum(len(each or "") for each in key) + _WORDS, refusal)
        raise WrongQuery(refusal) from None
    return Asked(texts[0], texts[1], query.key)


def _compile(query: Query, info: SourceInfo | None) -> Compiled:
    # The compiler, its functions and RE2 are for gateways, which have them warm; not for every command.
    from kiwi_gw.query.compiler import compiled
    from kiwi_gw.query.schema import Schema

    fields = info.decode.fields if info is not None else ""
    return compiled(query, sql.ROOTS, Schema.parse(fields) if fields else None)


def _compiled(query: Query, info: SourceInfo | None = None) -> Compiled:
    """For a source, whose schema may have more to say against it than the query alone."""
    try:
        return _compile(query, info)
    except QueryError as error:
        if error.part:
            raise
        # Both texts have positions: which one is it about?
        part = "where" if query.where is not None and _fails(Query(query.where), info) else "select"
        raise QueryError(error.words, error.position, part) from None


def _fails(query: Query, info: SourceInfo | None) -> bool:
    try:
        _compile(query, info)
    except QueryError:
        return True
    return False


def _wire(query: Query, wire: MakeWire, info: SourceInfo) -> WireFormat:
    try:
        made = _compiled(query, info)
    except QueryError as error:
        raise SubscribeRefused("query", str(error)) from None
    # Headers are read where they are on the wire.
    if "headers" in made.roots and not any(field.kind is Kind.HEADERS for field in info.shape.fields):
        raise SubscribeRefused("query", "the headers of this source are not read: see its `fields`")
    return filtered(wire(info if query.select is None else projected(info)), query, made, info)
