"""One statement while it is executed: what is opened for it, what bounds it, how it ends.

Theory of operation. What bounds an execution in records and bytes are limits of its subscription, which ends
it at exactly the record that reaches them. What bounds it in time is looked at by the clock. Who reads slowly
is not idle: the timer does not fire while it takes nothing, and the time until then does not count.

What takes longer than it may is over even if its client takes nothing.

Only one timer that looks after the rest is of use at a time. Others are about that were set for something
later; one of those that fires before this one is not looked at. None is set for long, as it cannot be taken
back when the execution is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import Command, Open, Reply, SetTimer
from kiwi_gw.core.notices import Ended, Lagged, LimitReached, Opened, OpenFailed
from kiwi_gw.dialects.lenses.decoders import decode_of
from kiwi_gw.dialects.lenses.tables import unknown_table
from kiwi_gw.dialects.lenses.v2 import replies
from kiwi_gw.dialects.lenses.v2.messages import StatsData
from kiwi_gw.dialects.lenses.v2.records import BAD, BYTES, RESULTS, SCANNED, fields_of, id_of
from kiwi_gw.dialects.lenses.v2.statistics import Counters, PartitionTally
from kiwi_gw.dialects.lenses.v2.thresholds import Thresholds
from kiwi_gw.model import AtOffset, AtTime, CloseReason, Start, StartAt, Until, UntilOffset
from kiwi_gw.query.errors import QueryError

if TYPE_CHECKING:  # with the parser, which is not loaded when a gateway starts
    from kiwi_gw.dialects.lenses.sql import Statement

HANDLE: Final = "execution"

_MOST_OFFSET: Final = 2**63 - 1

_GRID_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 0.5
"""A timer that fires later than so much was held up by the client."""

_LONGEST_TIMER: Final = 10.0
"""Seconds for which a timer is set: so long it may outlive what it was set for."""

_EARLY_SECONDS: Final = 0.01
"""No clock is so wrong about when a timer was due."""

_STATS_SHARE: Final = 100
"""One part in so many of the time may go into making STATS: those of ten thousand partitions are large."""

OVER: Final = (CloseReason.UNTIL, CloseReason.ENDED, CloseReason.LIMIT)
"""Ends that were asked for."""


class Over(Exception):  # noqa: N818  (it states what the execution is)
    """The execution has come to an end. replies: what is said of it before END."""

    def __init__(self, *said: Reply) -> None:
        super().__init__()
        self.replies = said


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client has asked for beside its statement. stats_ms: between two STATS; 0: none."""

    live: bool
    stats_ms: int


class Execution:
    """See the top of this file. clock: monotonic seconds; wall: ms since the epoch."""

    def __init__(
        self,
        source_id: str,
        statement: Statement,
        open_: Open,
        asked: Asked,
        thresholds: Thresholds,
        counters: Counters,
        clock: Callable[[], float],
        wall: Callable[[], int],
    ) -> None:
        self._source_id = source_id
        self._id = id_of(source_id)
        self._statement = statement
        self._open = open_
        self._asked = asked
        self._thresholds = thresholds
        self._counters = counters
        self._tally = open_.tally if isinstance(open_.tally, PartitionTally) else None
        self._clock = clock
        self._number = str(uuid4())
        self._began, self._began_wall = clock(), wall()
        self._opened: Opened | None = None
        self._scanned, self._moved_at = 0, self._began
        self._stats_at = math.inf
        self._lost = 0
        self._wakes_at = math.inf

    def begin(self) -> Iterator[Command]:
        """Open it."""
        yield self._open
        yield from self._wake()
        yield time_left(self._thresholds.max_query_time)

    # --- what happened in the core ---------------------------------------------------------

    def opened(self, notice: Opened) -> Iterator[Command]:
        """Say what records have, before the first."""
        self._opened, self._moved_at = notice, self._clock()
        if self._tally is not None:
            self._tally.opened(notice.begin, notice.until)
        if self._asked.stats_ms:
            self._stats_at = self._moved_at + self._asked.stats_ms / 1000
        yield replies.metadata(fields_of(decode_of(self._statement, notice.source.decode)))
        yield from self._wake()

    def failed(self, notice: OpenFailed) -> Iterator[Command]:
        """Begin with what there is, where nothing can be looked up by its time. Raises Over."""
        if notice.code == RefusalCode.START and isinstance(self._open.start, AtTime):
            self._open = replace(self._open, start=StartAt.EARLIEST)
            yield self._open
            return
        statement = self._statement
        if notice.code == RefusalCode.UNKNOWN_SOURCE:
            words = str(QueryError(unknown_table(statement.table), statement.table_position))
        else:
            words = notice.message
        raise Over(replies.error(words))

    def limit_reached(self, notice: LimitReached) -> None:
        """Raise Over."""
        table, most = self._statement.table, self._thresholds.max_size
        if notice.label == BYTES:
            raise Over(*self.stats(), replies.terminated("MAX_SIZE", table, self._id, most))
        raise Over(*self.stats())

    def ended(self, notice: Ended) -> None:
        """Raise Over."""
        said: list[Reply] = []
        if notice.dropped != 0:
            said += self._lost_too(notice.dropped)
        table = self._statement.table
        wrong = (
            []
            if notice.reason in OVER
            else [replies.error(f"{table}: {notice.reason.value}: {notice.message}")]
        )
        raise Over(*said, *self.stats(), *wrong)

    def lagged(self, notice: Lagged) -> list[Reply]:
        """Say what is gone."""
        return self._lost_too(notice.dropped) if notice.dropped != 0 else []

    def _lost_too(self, dropped: int | None) -> list[Reply]:
        self._lost += dropped or 0
        return [replies.lost(self._statement.table, self._id, dropped)]

    # --- time ------------------------------------------------------------------------------

    def timer_fired(self) -> Iterator[Command]:
        """Look at what is due. Raises Over."""
        now, due = self._clock(), self._wakes_at
        if now < due - _EARLY_SECONDS:
            return
        self._wakes_at, held_up = math.inf, now - due > _LATE_SECONDS
        limits, table = self._thresholds, self._statement.table
        if self._opened is None and round((now - self._began) * 1000) >= limits.offset_timeout:
            words = f"the offsets of `{table}` are not known within {limits.offset_timeout} ms"
            raise Over(replies.error(words))
        scanned = self._counters.count(SCANNED)
        if scanned != self._scanned or held_up or self._opened is None or self._asked.live:
            self._scanned, self._moved_at = scanned, now
        idle = round((now - self._moved_at) * 1000)
        if idle >= limits.max_idle_time:
            most = limits.max_idle_time
            raise Over(*self.stats(), replies.terminated("MAX_IDLE_TIME", table, self._id, idle, most))
        if now >= self._stats_at:
            said = self.stats()
            took = self._clock() - now
            interval = max(self._asked.stats_ms / 1000, _STATS_SHARE * took)
            self._stats_at = max(self._stats_at + interval, now)
            yield from said
        yield from self._wake()

    def time_passed(self) -> Iterator[Command]:
        """Look whether it may go on, also where its client takes nothing: else that keeps a place for ever.
        Raises Over."""
        most, elapsed = self._thresholds.max_query_time, round((self._clock() - self._began) * 1000)
        if elapsed >= most:
            table = self._statement.table
            raise Over(*self.stats(), replies.terminated("MAX_QUERY_TIME", table, self._id, elapsed, most))
        yield time_left(most - elapsed)

    def _wake(self) -> Iterator[Command]:
        """Have the timer fire when the next thing is due."""
        limits = self._thresholds
        now = self._clock()
        due = min(self._stats_at, now + _LONGEST_TIMER)
        if self._opened is None:
            due = min(due, self._began + limits.offset_timeout / 1000)
        elif not self._asked.live:
            # Often enough to see that it moves, seldom enough to cost nothing.
            due = min(due, max(self._moved_at + limits.max_idle_time / 1000, now + _GRID_SECONDS))
            due = min(due, now + max(_GRID_SECONDS, limits.max_idle_time / 4000))
        at = math.ceil(due / _GRID_SECONDS) * _GRID_SECONDS
        if at < self._wakes_at:
            self._wakes_at = at
            yield SetTimer(max(0.0, at - now))

    # --- statistics ------------------------------------------------------------------------

    def stats(self) -> list[Reply]:
        """Say how far it is, if the client wants to know."""
        tally = self._tally
        if self._opened is None or tally is None:
            return []
        count = self._counters.count
        return [
            replies.statistics(
                StatsData(
                    self._number,
                    count(BYTES),
                    {self._id: self._statement.table},
                    {self._id: self._thresholds.as_written},
                    {self._id: tally.of_partitions()},
                    count(BAD),
                    self._lost,
                    count(RESULTS),
                    count(SCANNED),
                    round((self._clock() - self._began) * 1000),
                    self._began_wall,
                )
            )
        ]


def time_left(milliseconds: int) -> SetTimer:
    """Have `time_passed` called when the time is up, or before."""
    return SetTimer(min(milliseconds / 1000, _LONGEST_TIMER), held=False)


def begins_at(statement: Statement) -> Start:
    """Say where a statement begins to read, by what it says of offsets and times."""
    narrowed = statement.narrowed
    if narrowed.nothing:
        return StartAt.LATEST
    if narrowed.first_offset is not None or narrowed.partitions is not None:
        return AtOffset(max(0, narrowed.first_offset or 0), narrowed.partitions)
    return StartAt.EARLIEST if narrowed.first_time is None else AtTime(narrowed.first_time)


def ends_at(statement: Statement, *, live: bool) -> object:
    """Say where it ends (`Open.until`)."""
    narrowed = statement.narrowed
    if narrowed.nothing:
        return Until.END
    if live:
        return None
    if narrowed.last_offset is None and narrowed.partitions is None:
        return Until.END
    behind = _MOST_OFFSET if narrowed.last_offset is None else min(narrowed.last_offset + 1, _MOST_OFFSET)
    return UntilOffset(max(0, behind), narrowed.partitions)
