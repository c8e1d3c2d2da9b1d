"""How clients' queries are read and compiled: what that may take, by the processor's clock; what was refused
lately; what a source has for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, ClientAccount
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.model import FieldEncoding, SourceInfo
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT
from kiwi_gw.query.tree import Query
from kiwi_gw.query.weighted_lru import WeightedLru

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Bytecode, CompiledQuery

_WORDS: Final = 300
"""What the words of a refusal weigh beside the texts."""

_LITTLE_SECONDS: Final = 0.0001
"""Less is not charged: a text that is known takes no more."""


class CompilingBudget:
    """One client's account, beside that of all. clock: monotonic seconds; cpu: seconds of the processor, of
    this thread."""

    __slots__ = ("_all", "_charging", "_clock", "_cpu", "_own")

    def __init__(
        self,
        limits: SessionLimits,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._own = limits.compiling_own or ClientAccount(limits.compiling_share, COMPILING_SAVED_SECONDS)
        self._all = limits.compiling
        self._clock = clock
        self._cpu = cpu
        self._charging = False

    def wait(self) -> float:
        """Return the seconds until it may have a query read; 0: now. Clients that have used little need not
        wait for those that have used much."""
        wait = self.wait_seconds()
        self._all.refused += wait > 0
        return wait

    def wait_seconds(self) -> float:
        """Return the same, where that refuses nothing."""
        now = self._clock()
        return self._own.wait_seconds(now) or self._all.wait_seconds(
            now, light_user=self._own.light_user(now)
        )

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge what is done inside, once it is done: a source may have been waited for since `wait`. What
        is charged inside of that is a part of it."""
        if self._charging:
            yield
            return
        began, light_user = self._cpu(), self._own.light_user(self._clock())
        self._charging = True
        try:
            yield
        finally:
            self._charging = False
            used = self._cpu() - began
            if used > _LITTLE_SECONDS:
                now = self._clock()
                self._own.charge(used, now)
                self._all.charge(used, now, light_user=light_user)

    def charge_offloaded(self, seconds: float) -> None:
        """Charge what was done for it beside the loop, where it costs the others nothing."""
        self._own.charge(seconds, self._clock())


class RefusedQueries:
    """Remember what is wrong with texts that were refused lately: they are not read again."""

    def __init__(self) -> None:
        self._known: WeightedLru[QueryError] = WeightedLru(MAX_KEPT)

    def check(self, texts: Hashable) -> None:
        """Raise the QueryError with which these texts were refused, if they were."""
        known = self._known.known(texts)
        if known is not None:
            raise _bare(known)

    def remember(self, texts: Hashable, characters: int, error: QueryError) -> QueryError:
        """Remember it, and return it to be raised. characters: of the texts."""
        if self._known.known(texts) is None:
            self._known.keep(texts, characters + _WORDS, _bare(error))
        return _bare(error)


def _bare(error: QueryError) -> QueryError:
    """Return it without what led to it, which would be kept with all its frames."""
    return QueryError(error.words, error.position, error.part)


def query_of_source(
    query: Query,
    info: SourceInfo,
    bytecode: Bytecode | None = None,
    roots: frozenset[str] | None = None,
) -> CompiledQuery:
    """Compile a query for a source. bytecode, roots: as in `compile_sql`.

    Raises:
        QueryError: the source has not what it names; `part` says where.
    """
    # Parsers, the compiler, its functions and RE2: a gateway has them warm soon after its start.
    from kiwi_gw.query import sql
    from kiwi_gw.query.sql_compiler import compile_sql

    made = compile_sql(query, info.decode.fields, bytecode, members=info.members, roots=roots or sql.ROOTS)
    # Headers are read where they are on the wire.
    if "headers" in made.roots and not any(
        field.kind is FieldEncoding.HEADERS for field in info.event_schema.fields
    ):
        raise QueryError("the headers of this source are not read: see its `fields`")
    return made


BUSY: Final = "Too many queries wait to be read: try again"


def busy(wait: float) -> str:
    """Say to a client that it must wait."""
    return f"Queries take too much time just now: try again in {max(1, round(wait * 1000))} ms"
