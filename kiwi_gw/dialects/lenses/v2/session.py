"""One client's half of Lenses SQL v2: one message, what it asks for is executed, and the end.

Theory of operation. Everything that goes wrong ends in the same way: ERROR, END, a close frame. Until the
message has come there is nothing but a deadline for it; then the client's token is checked, if it has one,
its statement is read, and `execution` does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kiwi_gw.codes import CloseCode
from kiwi_gw.core.commands import (
    Call,
    Close,
    Command,
    LogIn,
    Offload,
    Open,
    Reply,
    SetTimer,
    Violation,
    WatchSilence,
)
from kiwi_gw.core.notices import (
    CallDone,
    Dismissed,
    Draining,
    Ended,
    Lagged,
    LimitReached,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    Silent,
    SourceAppeared,
    TimerFired,
)
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.compiling import CompilingBudget, busy
from kiwi_gw.dialects.lenses.any_queries import (
    checked_any,
    offloaded_any,
    parse_any,
    question_any,
)
from kiwi_gw.dialects.lenses.queries import Applied, ReadStatement, StatementText
from kiwi_gw.dialects.lenses.settings import LensesSettings
from kiwi_gw.dialects.lenses.tables import Tables, check_table
from kiwi_gw.dialects.lenses.v2 import replies
from kiwi_gw.dialects.lenses.v2.aggregation import Aggregation
from kiwi_gw.dialects.lenses.v2.execution import HANDLE, Asked, Execution, Over, begins_at, ends_at
from kiwi_gw.dialects.lenses.v2.executions import Executions, client_of
from kiwi_gw.dialects.lenses.v2.messages import LEAST_STATS_MS, Execute
from kiwi_gw.dialects.lenses.v2.records import RecordForm, records_wire
from kiwi_gw.dialects.lenses.v2.statistics import Counters, PartitionTally
from kiwi_gw.dialects.lenses.v2.thresholds import Thresholds, thresholds_of
from kiwi_gw.model import HeadCredential, Identity, Refusal, Token, WireFormat
from kiwi_gw.query.errors import QueryError
from kiwi_gw.struct_errors import sentence, wrong_member

if TYPE_CHECKING:  # with the parser, which is not loaded when a gateway starts
    from kiwi_gw.dialects.lenses.sql import GroupedStatement, Statement

LOG_IN_FIRST: Final = "a token is needed: in the message, or in the header Authorization"
ONE_ONLY: Final = "a second message cancels the query"

_HEARTBEAT_SECONDS: Final = 10.0
_BEARER: Final = "bearer "
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_read = msgspec.json.Decoder(Execute).decode


class LensesSqlSession:
    """Implement `kiwi_gw.core.commands.Session`.

    head: of the request; only what is needed of it is kept. identity: who the client is by it. executions: of
    all clients. max_event_bytes: of a frame. clock: monotonic seconds; wall: ms since the epoch.
    """

    def __init__(
        self,
        tables: Tables,
        limits: SessionLimits,
        settings: LensesSettings,
        head: HeadCredential,
        identity: Identity,
        executions: Executions,
        max_event_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._tables = tables
        self._limits = limits
        self._settings = settings
        self._header_token = _bearer(head)
        self._remote = head.remote
        self._identity = identity
        self._executions = executions
        self._max_event_bytes = max_event_bytes
        self._clock, self._wall = clock, wall
        self._compiling = CompilingBudget(limits, clock)
        self._first_by: float | None = None
        self._asked: Execute | None = None
        self._text: StatementText | None = None
        self._counted: Hashable | None = None  # among the executions
        self._execution: Execution | Aggregation | None = None
        self._over = False

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        """Take the one message."""
        if self._over:
            return
        if self._asked is not None:
            violation = Violation.MESSAGE if isinstance(message, str) else Violation.BINARY
            said = (*self._last_stats(), replies.error(ONE_ONLY, violation))
            yield from self._end(*said, code=CloseCode.POLICY_VIOLATION)
            return
        if not isinstance(message, str):
            binary = replies.error("only text frames are understood", Violation.BINARY)
            yield from self._end(binary, code=CloseCode.UNSUPPORTED_DATA)
            return
        try:
            self._asked = _read(message)
        except msgspec.ValidationError as error:
            words = sentence(error, Execute) if wrong_member(error) else "a JSON object is needed"
            yield from self._end(replies.error(words, Violation.MESSAGE))
        except _UNREADABLE:
            yield from self._end(replies.error("a JSON object is needed", Violation.MESSAGE))
        else:
            yield WatchSilence(_HEARTBEAT_SECONDS)
            yield from self._identify(self._asked)

    def notice(self, notice: Notice) -> Iterable[Command]:
        """Say what it means for the client."""
        if isinstance(notice, SourceAppeared):
            self._tables.add(notice.source)
            return self._expect_message()
        if self._over:
            return ()
        match notice:
            case CallDone(_, result):
                return self._logged_in(result)
            case Offloaded():
                return self._statement_read(notice)
            case Silent() if self._asked is not None:
                return (replies.heartbeat(),)
            case Draining(retry_after_ms):
                return self._last_words(f"the gateway is restarted; come back in {retry_after_ms} ms")
            case Dismissed(message):
                return self._last_words(message)
            case TimerFired() if self._asked is None:
                return self._expect_message()
        return self._executed(notice)

    def ended(self) -> None:
        """Give back what it has among all: the connection is over (`core.commands.HasEnd`)."""
        self._leave()

    # --- who asks --------------------------------------------------------------------------

    def _expect_message(self) -> Iterator[Command]:
        """Wait for the message for so long as for a login, from when the connection began."""
        if self._asked is not None or self._over:
            return
        seconds = self._settings.login_timeout_ms / 1000
        if self._first_by is None:
            self._first_by = self._clock() + seconds
            yield SetTimer(seconds)
        elif self._clock() >= self._first_by:
            self._leave()
            yield Close(CloseCode.LOGIN_OVERDUE, "no message came")

    def _identify(self, asked: Execute) -> Iterator[Command]:
        token = asked.token or ""
        if token and self._header_token not in (None, token):
            yield from self._end(replies.error("the token is another one than that of the header"))
        elif (token and token != self._header_token) or self._identity.authenticator is None:
            # Where nobody is asked for credentials, none will do.
            yield Call(HANDLE, LogIn(Token(token)))
        else:
            yield from self._begin(asked)

    def _logged_in(self, result: Identity | Refusal) -> Iterator[Command]:
        if isinstance(result, Refusal):
            shown = self._asked is not None and self._asked.token
            yield from self._end(replies.error(result.message if shown else LOG_IN_FIRST))
        elif self._asked is not None:
            self._identity = result
            yield from self._begin(self._asked)

    # --- what is asked ---------------------------------------------------------------------

    def _begin(self, asked: Execute) -> Iterator[Command]:
        client = client_of(self._identity, self._remote)
        if (wrong := self._executions.begin(client)) is not None:
            yield from self._end(replies.error(wrong))
            return
        self._counted = client
        if wait := self._compiling.wait():
            yield from self._end(replies.error(busy(wait)))
            return
        try:
            with self._compiling.charged():
                text = self._text = checked_any(asked.sql, self._limits.query_bytes)
                read = parse_any(text) if text.is_small else None
        except QueryError as error:
            yield from self._end(replies.error(str(error)))
            return
        if read is None:
            yield Offload(HANDLE, question_any(text))
        else:
            yield from self._execute(read)

    def _statement_read(self, notice: Offloaded) -> Iterator[Command]:
        self._compiling.charge_offloaded(notice.seconds)
        if self._text is None or notice.handle != HANDLE:
            return
        try:
            with self._compiling.charged():
                read = offloaded_any(self._text, notice.answer)
        except QueryError as error:
            yield from self._end(replies.error(str(error)))
        else:
            yield from self._execute(read)

    def _execute(self, read: ReadStatement | GroupedStatement) -> Iterator[Command]:
        statement = read.statement if isinstance(read, ReadStatement) else read
        try:
            thresholds = thresholds_of(statement.settings, self._settings.sql)
            if isinstance(read, ReadStatement):
                self._execution = self._of_records(read, thresholds)
            else:
                live = bool(self._asked and self._asked.live)
                aggregation = Aggregation(
                    self._tables, read, thresholds, live, self._max_event_bytes, self._clock
                )
                with self._compiling.charged():
                    aggregation.prepare()
                self._execution = aggregation
            yield from self._execution.begin()
        except QueryError as error:
            yield from self._end(replies.error(str(error)))

    def _of_records(self, read: ReadStatement, thresholds: Thresholds) -> Execution:
        """Make the execution of a statement that looks at one record at a time. Raises QueryError."""
        assert self._asked is not None  # noqa: S101  it has begun with that
        statement, asked = read.statement, self._asked
        live, stats = bool(asked.live), asked.stats or 0
        if statement.sample is not None:
            raise QueryError("_sample is for protocol v1: a query here has an end")
        source_id = self._tables.source_id(statement.table)
        counters = Counters.begin(statement.limit, None if live else thresholds.max_size)
        open_ = Open(
            HANDLE,
            source_id,
            read.wire(partial(self._records, thresholds), self._compiling),
            limits=counters.limits,
            start=begins_at(statement),
            until=ends_at(statement, live=live),
            tally=PartitionTally() if stats else None,
        )
        how = Asked(live, max(LEAST_STATS_MS, stats) if stats else 0)
        return Execution(source_id, statement, open_, how, thresholds, counters, self._clock, self._wall)

    def _records(self, thresholds: Thresholds, statement: Statement, applied: Applied) -> WireFormat:
        check_table(applied.source, statement.table)
        form = RecordForm(statement.table, thresholds.format_timestamp, thresholds.show_bad_records)
        projects = statement.query.select is not None
        return records_wire(form, projects, applied, self._max_event_bytes)

    def _executed(self, notice: Notice) -> Iterator[Command]:
        execution = self._execution
        if execution is None:
            return
        try:
            match notice:
                case Opened():
                    yield from execution.opened(notice)
                case OpenFailed():
                    yield from execution.failed(notice)
                case LimitReached():
                    execution.limit_reached(notice)
                case Ended():
                    execution.ended(notice)
                case Lagged():
                    yield from execution.lagged(notice)
                case TimerFired(held):
                    yield from execution.timer_fired() if held else execution.time_passed()
        except Over as over:
            yield from self._end(*over.replies)

    # --- the end ---------------------------------------------------------------------------

    def _last_words(self, why: str) -> Iterator[Command]:
        """The gateway closes the connection behind what is said here."""
        said = self._last_stats()
        self._leave()
        yield from said
        yield replies.error(why)
        yield replies.end()

    def _last_stats(self) -> list[Reply]:
        """Say how far a query is that does not go on, if its client wants to know."""
        return self._execution.stats() if isinstance(self._execution, Execution) else []

    def _end(self, *said: Reply, code: int = CloseCode.NORMAL) -> Iterator[Command]:
        self._leave()
        yield from said
        yield replies.end()
        yield Close(code, "")

    def _leave(self) -> None:
        """Give back what it has among all."""
        self._over, self._execution = True, None
        if self._counted is not None:
            self._executions.over(self._counted)
            self._counted = None


def _bearer(head: HeadCredential) -> str | None:
    text = head.header("authorization") or ""
    return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else None
