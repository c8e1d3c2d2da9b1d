"""A statement of more than one record while an engine runs it: what is asked of that, how it ends.

Theory of operation. The statement is written anew for the engine, whose rows come as those of a source
(`core.commands.OpenQuery`). A table that there is not, or that its client may not read, is refused by the
core, and only behind that what is wrong with how a table is to be read is said: nobody learns of what may not
be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import Command, LabelLimit, OpenQuery, Reply
from kiwi_gw.core.notices import Ended, Lagged, LimitReached, Opened, OpenFailed
from kiwi_gw.dialects.lenses.decoders import decode_of
from kiwi_gw.dialects.lenses.tables import Tables, unknown_table
from kiwi_gw.dialects.lenses.v2 import replies
from kiwi_gw.dialects.lenses.v2.execution import HANDLE, OVER, Over, time_left
from kiwi_gw.dialects.lenses.v2.records import FIELDS, id_of
from kiwi_gw.dialects.lenses.v2.rows import BEYOND, Form, rows_wire
from kiwi_gw.dialects.lenses.v2.thresholds import Thresholds
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import AS_JSON, EngineLimits, EngineQuery, QueriedTable, SourceInfo, WireFormat
from kiwi_gw.query.errors import QueryError

if TYPE_CHECKING:  # with the parser, which is not loaded when a gateway starts
    from kiwi_gw.dialects.lenses.sql import GroupedStatement, Table

NO_ENGINE: Final = "this query needs Spark, which is not configured here: section spark"


_BEHIND_SECONDS: Final = 1.0
"""So long behind its threshold an engine ends it by itself: what the client is told is the threshold."""


class Aggregation:
    """See the top of this file. live: rows come as soon as there are some. clock: monotonic seconds."""

    def __init__(
        self,
        tables: Tables,
        statement: GroupedStatement,
        thresholds: Thresholds,
        live: bool,
        max_event_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._tables = tables
        self._statement = statement
        self._thresholds = thresholds
        self._live = live
        self._max_event_bytes = max_event_bytes
        self._clock = clock
        self._began = clock()
        self._query: EngineQuery | None = None
        self._wrong: QueryError | None = None
        self._described = False

    def prepare(self) -> None:
        """Write it for the engine. Raises QueryError."""
        from kiwi_gw.dialects.lenses.sql import engine_query

        if self._live and not self._thresholds.live_aggregates:
            raise QueryError("aggregates with `live` are refused: live.aggs is false")
        seconds = min(EngineLimits().seconds, self._thresholds.max_query_time / 1000 + _BEHIND_SECONDS)
        tables = [self._table(table) for table in self._statement.tables]
        limits = EngineLimits(seconds=seconds)
        self._query = engine_query(self._statement, tables, live=self._live, limits=limits)

    def begin(self) -> Iterator[Command]:
        """Have it run, once it is prepared."""
        query = self._query
        assert query is not None  # noqa: S101  see above
        yield OpenQuery(HANDLE, query, self._wire, limits={BEYOND: LabelLimit(1)})
        yield time_left(self._thresholds.max_query_time)

    def opened(self, notice: Opened) -> Iterator[Command]:
        """Say what its rows have, before the first."""
        yield from self._describe()

    def failed(self, notice: OpenFailed) -> NoReturn:
        """Raise Over: it cannot be run."""
        words = notice.message
        if notice.code == RefusalCode.UNKNOWN_SOURCE:
            words = self._unknown()
        elif notice.code == RefusalCode.NO_ENGINE:
            words = NO_ENGINE
        raise Over(replies.error(words))

    def limit_reached(self, notice: LimitReached) -> None:
        """Raise Over: it has more rows than a result may have."""
        from kiwi_gw.dialects.lenses.sql import MAX_ROWS

        raise Over(replies.terminated("MAX_ROWS", *self._first, MAX_ROWS))

    def ended(self, notice: Ended) -> None:
        """Raise Over."""
        wrong = [] if notice.reason in OVER else [replies.error(notice.message)]
        raise Over(*self._lost(notice.dropped), *wrong)

    def lagged(self, notice: Lagged) -> list[Reply]:
        """Say which rows are missing: they are too large to be sent."""
        return self._lost(notice.dropped)

    def timer_fired(self) -> Iterator[Command]:
        """Do nothing: a timer that was set for something else."""
        return iter(())

    def time_passed(self) -> Iterator[Command]:
        """Raise Over if its time is up."""
        most, elapsed = self._thresholds.max_query_time, round((self._clock() - self._began) * 1000)
        if elapsed >= most:
            ended = replies.terminated("MAX_QUERY_TIME", *self._first, elapsed, most)
            raise Over(*self._describe(), ended)
        yield time_left(most - elapsed)

    # --- inside ----------------------------------------------------------------------------

    def _describe(self) -> Iterator[Reply]:
        """Say what its rows have, once."""
        if not self._described:
            self._described = True
            yield replies.metadata(FIELDS if self._form == "records" else ())

    def _lost(self, rows: int | None) -> list[Reply]:
        return [] if rows == 0 else [replies.lost(*self._first, rows)]

    @property
    def _form(self) -> Form:
        """Say what its rows are."""
        if self._statement.columns is not None:
            return "columns"
        return "values" if self._statement.distinct else "records"

    @property
    def _first(self) -> tuple[str, str]:
        """The name and the id of its first table, for what is said of the whole."""
        name = self._statement.tables[0].name
        return name, id_of(self._tables.source_id(name))

    def _table(self, table: Table) -> QueriedTable:
        from kiwi_gw.dialects.lenses.sql import queried_table

        source_id = self._tables.source_id(table.name)
        info = self._tables.info(source_id)
        decode = AS_JSON if info is None else info.decode
        try:
            decode = decode_of(table, decode)
        except QueryError as error:
            self._wrong = self._wrong or error
        return queried_table(table, source_id, decode)

    def _wire(self, info: SourceInfo) -> WireFormat:
        from kiwi_gw.dialects.lenses.sql import MAX_ROWS

        if self._wrong is not None:
            raise SubscribeRefused(RefusalCode.QUERY, str(self._wrong))
        iso = self._thresholds.format_timestamp
        return rows_wire(self._form, iso, MAX_ROWS, self._max_event_bytes)

    def _unknown(self) -> str:
        """Name the table that cannot be read; where there are several, all of them."""
        tables = self._statement.tables
        if len(tables) == 1:
            return str(QueryError(unknown_table(tables[0].name), tables[0].position))
        return f"no such topic: one of {', '.join(f'`{table.name}`' for table in tables)}"
