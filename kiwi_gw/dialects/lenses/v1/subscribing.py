"""From the SQL of a SUBSCRIBE to what is to be opened.

Theory of operation. The statements of one SUBSCRIBE are read one after the other, within what the client may
use for that, a few in each turn: others are to have theirs between. A large one is read by a process beside
the event loop, and the others wait for it. Nothing is opened before all are read, and meanwhile nothing more
of the client is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from kiwi_gw.core.commands import Command, Continue, Offload
from kiwi_gw.core.notices import Offloaded
from kiwi_gw.dialect_api.frames import header
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.compiling import CompilingBudget, busy
from kiwi_gw.dialects.lenses.queries import (
    Applied,
    ReadStatement,
    StatementText,
    checked,
    offloaded,
    parse,
)
from kiwi_gw.dialects.lenses.tables import Tables, check_table
from kiwi_gw.dialects.lenses.v1.records import SEPARATOR, records_wire
from kiwi_gw.dialects.lenses.v1.topics import TURN_SECONDS, Sample, Wanted
from kiwi_gw.model import AtOffset, AtTime, Committed, Framing, Start, StartAt, WireFormat
from kiwi_gw.query.errors import QueryError

if TYPE_CHECKING:  # with the parser, which is not loaded when a gateway starts
    from kiwi_gw.dialects.lenses.sql import Statement

_HEAD: Final = b'{"content":['
_TURN: Final = "turn"
"""Stands for the handle of a question where a turn is waited for."""


class Unreadable(Exception):  # noqa: N818  (it states what the SUBSCRIBE is)
    """Nothing is opened of a SUBSCRIBE. The message is for the client. number: the request's id."""

    def __init__(self, reading: Reading, place: int, words: str) -> None:
        self.number = reading.number
        super().__init__(f"sqls[{place}]: {words}")


@dataclass(slots=True, eq=False)
class Reading:
    """A SUBSCRIBE whose statements are read. until: when it is to be answered. text: the one that is read
    elsewhere just now."""

    number: int
    sqls: Sequence[str]
    until: float
    read: list[ReadStatement] = field(default_factory=list)
    text: StatementText | None = None


class StatementReader:
    """See the top of this file. frame_bytes: of the records of one frame. clock: monotonic seconds."""

    def __init__(
        self,
        tables: Tables,
        limits: SessionLimits,
        compiling: CompilingBudget,
        frame_bytes: int,
        max_event_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._tables = tables
        self._limits = limits
        self._compiling = compiling
        self._frame_bytes = frame_bytes
        self._max_event_bytes = max_event_bytes
        self._handles = count(1)
        self._readings: dict[str, Reading] = {}

    @property
    def waits(self) -> bool:
        """Return whether a statement is being read elsewhere, or waits for its turn."""
        return bool(self._readings)

    def read(self, reading: Reading) -> Generator[Command, None, bool]:
        """Read on. What it yields is carried out. Returns whether all are read now; if not, `answered` or
        `continued` goes on, which may be called before this returns. Raises Unreadable."""
        turn_ends, begun = self._clock() + TURN_SECONDS, len(reading.read)
        while (place := len(reading.read)) < len(reading.sqls):
            if place > begun and self._clock() >= turn_ends:
                self._readings[_TURN] = reading
                yield Continue(0, pause=True)
                return False
            wait = self._compiling.wait()
            if wait:
                raise Unreadable(reading, place, busy(wait))
            try:
                with self._compiling.charged():
                    text = checked(reading.sqls[place], self._limits.query_bytes)
                    if text.is_small:
                        reading.read.append(parse(text))
            except QueryError as error:
                raise Unreadable(reading, place, str(error)) from None
            if text.is_small:
                continue
            reading.text = text
            handle = f"sql {next(self._handles)}"
            self._readings[handle] = reading
            yield Offload(handle, text.question, pause=True)
            return False
        return True

    def overdue(self, now: float) -> Iterator[tuple[str, Reading]]:
        """Give up those that took too long: the handle of the question, and what it was for."""
        for handle, reading in list(self._readings.items()):
            if reading.until <= now:
                del self._readings[handle]
                yield handle, reading

    def continued(self) -> Reading | None:
        """Return the reading whose turn it is, which goes on. None: there is none."""
        return self._readings.pop(_TURN, None)

    def answered(self, notice: Offloaded) -> Reading | None:
        """Take what was read elsewhere. Returns the reading that goes on. Raises Unreadable."""
        self._compiling.charge_offloaded(notice.seconds)
        reading = self._readings.pop(str(notice.handle), None)
        if reading is None or reading.text is None:
            return None
        text, reading.text = reading.text, None
        try:
            with self._compiling.charged():
                reading.read.append(offloaded(text, notice.answer))
        except QueryError as error:
            raise Unreadable(reading, len(reading.read), str(error)) from None
        return reading

    def wanted(self, reading: Reading, queries: set[str], group: str) -> list[Wanted]:
        """Make what is to be opened of statements that are read. queries: those that the client has. group:
        where a topic begins of which a statement does not say so, if the client has that right. Raises
        Unreadable."""
        found: dict[str, Wanted] = {}
        most = self._limits.queries
        for place, statement in enumerate(reading.read):
            each = self._wanted(reading, place, statement, group)
            if each.topic in found:
                words = str(QueryError(f"`{each.topic}` comes twice", each.position))
                raise Unreadable(reading, place, words)
            found[each.topic] = each
            queries = queries | {each.query} if each.query else queries
            if most and len(queries) > most:
                raise Unreadable(reading, place, f"a connection can have at most {most} different queries")
        return list(found.values())

    def _wanted(self, reading: Reading, place: int, read: ReadStatement, group: str) -> Wanted:
        statement = read.statement
        if statement.settings:
            setting = statement.settings[0]
            words = f"SET {setting.name}: nothing can be set here"
            raise Unreadable(reading, place, str(QueryError(words, setting.position)))
        sample = (
            None if statement.sample is None else Sample(statement.sample, statement.sample_window_ms / 1000)
        )
        make = read.wire(partial(self._records, reading.number), self._compiling)
        return Wanted(
            statement.table,
            self._tables.source_id(statement.table),
            place,
            make,
            _starts(statement, group),
            statement.limit,
            sample,
            read.key,
            statement.table_position,
        )

    def _records(self, number: int, statement: Statement, applied: Applied) -> WireFormat:
        check_table(applied.source, statement.table)
        written = records_wire(
            statement.table,
            applied.source.decode,
            projects=statement.query.select is not None,
            max_event_bytes=self._max_event_bytes,
        )
        return replace(
            written,
            framing=self.framing(number),
            chosen=applied.chosen,
            transform=applied.transform,
        )

    def framing(self, number: int) -> Framing:
        """Say what stands around records of a SUBSCRIBE."""
        tail = b'],"correlationId":%d,"type":"KAFKAMSG"}' % number
        around = len(_HEAD) + len(tail)
        return Framing(lambda size: header(size + around) + _HEAD, tail, SEPARATOR, self._frame_bytes)


def _starts(statement: Statement, group: str) -> Sequence[Start]:
    """Say where a statement begins, the first that its client has the right to: where it says so by offsets
    and times, else where its group has committed. A sample is of the newest records: it begins with the next
    one, for what lies behind would come so slowly that the newest never came."""
    narrowed = statement.narrowed
    if statement.sample is not None:
        return [StartAt.LATEST]
    if narrowed.first_offset is not None:
        return [AtOffset(narrowed.first_offset, narrowed.partitions)]
    if narrowed.first_time is not None:
        return [AtTime(narrowed.first_time)]
    return [Committed(group), StartAt.LATEST]
