"""One client's half of the Kiwi protocol: which sources it reads, and what each frame means for them.

The handle of a subscription is its source's id, for the protocol allows one per source. Every frame gets
exactly one answer, at once or with the notice that settles it:

- A SUBSCRIBE is answered when it is opened or has failed. An UNSUBSCRIBE before that cancels it and
  answers it too, with an error.
- A REQUEST is answered when it is granted. If its subscription ends before that, it gets an error.

A subscription leaves the table when it is cancelled, not when the core confirms that: commands are
carried out in order, so the same source may be subscribed again in the next frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import UNSET

from kiwi_gw.codes import CloseCode, RefusalCode
from kiwi_gw.core.commands import AddCredit, Cancel, Close, Command, Offload, Open, Reply, Violation
from kiwi_gw.core.notices import (
    Cancelled,
    CredentialsExpiring,
    CreditAdded,
    Draining,
    Ended,
    Inspected,
    Lagged,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    PositionsReported,
    SourceDegraded,
    TimerFired,
)
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialect_api.throttle import Throttle, Verdict
from kiwi_gw.dialects.compiling import CompilingBudget, busy
from kiwi_gw.dialects.kiwi import messages, replies, requests
from kiwi_gw.dialects.kiwi.hint_schedule import HintSchedule
from kiwi_gw.dialects.kiwi.queries import (
    InvalidQuery,
    ParsedQuery,
    QueryTexts,
    offloaded,
    parse_query,
    texts,
)
from kiwi_gw.dialects.kiwi.requests import UnknownMembers, WireFactory, open_command
from kiwi_gw.dialects.kiwi.results import Envelope, value_fields, value_form
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.model import Mode, ValueAs
from kiwi_gw.query.filtered import projected
from kiwi_gw.struct_errors import given

# The original server's sentences.
ALREADY_SUBSCRIBED: Final = "Source already has an active subscription"
NO_SUCH_SOURCE: Final = "No source exists with the specified ID"
NOT_SUBSCRIBED: Final = "Source does not have an active subscription"
NOT_PULL: Final = "Source is not in pull mode"

CANCELLED: Final = "The subscription was cancelled before it was open"

_SENTENCES: dict[str, str] = {RefusalCode.UNKNOWN_SOURCE: NO_SUCH_SOURCE}
"""Codes of OpenFailed for which the original has words of its own."""

MAX_UNANSWERED = 64
"""REQUESTs that may wait for a source that is starting: their replies come all at once."""


@dataclass(slots=True)
class _PendingQuery:
    """What is to be done when the query is read. credits: what was asked for meanwhile."""

    texts: QueryTexts
    opening: Open
    credits: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _ClientSubscription:
    """`requests`: those that are not answered yet. reading: while its query is read elsewhere."""

    mode: Mode
    query: ParsedQuery | None
    value_as: ValueAs | None = None
    reading: _PendingQuery | None = None
    open: bool = False
    requests: int = 0


MAX_SOURCE_ID = 255
"""Characters of the longest id that a source can have."""


_COMMAND_CHARACTERS = 1_024
"""So much of a message is looked through in the time of a command. A REQUEST is shorter."""


class KiwiSession:
    """Implements `kiwi_gw.core.commands.Session`. clock: monotonic seconds."""

    def __init__(
        self,
        wire: WireFactory,
        envelope: Envelope,
        limits: SessionLimits,
        unknown_members: UnknownMembers = "refuse",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._unknown_members = unknown_members
        self._wire = wire
        self._envelope = envelope
        self._limits = limits
        self._commands = Throttle(limits.commands_per_second, limits.commands_burst, limits.flood_seconds)
        self._requests = Throttle(limits.requests_per_second, limits.requests_burst, limits.flood_seconds)
        self._compiling = CompilingBudget(limits, clock)
        self._subscriptions: dict[str, _ClientSubscription] = {}
        self._hint_schedule: HintSchedule | None = None  # made for clients that filter at all

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        """Take one frame of the client. See the top of this file for what answers it."""
        if not isinstance(message, str):
            return (
                Close(
                    CloseCode.UNSUPPORTED_DATA,
                    "bad_request: only text frames are understood",
                    Violation.BINARY,
                ),
            )
        try:
            command = requests.read(message, check_members=self._unknown_members == "refuse")
        except ConnectionEnd as end:
            return (Close(end.code, end.reason, Violation.MESSAGE),)
        length = 1 + len(message) // _COMMAND_CHARACTERS
        if isinstance(command, requests.InvalidMessage):
            return self._invalid_message(command, self._commands.admit(now, length))
        if invalid := isinstance(command, requests.InvalidCommand):
            kind, malformed = command.type, command.malformed
        else:
            kind, malformed = requests.TYPES[type(command)], False
        flow_control = kind == "REQUEST" and not malformed and length == 1
        cost = 1 if kind == "SUBSCRIBE" and not invalid else length
        verdict = (self._requests if flow_control else self._commands).admit(now, cost)
        violation = Violation.REQUESTS if flow_control else Violation.COMMANDS
        if verdict is Verdict.FLOOD:
            return (Close(CloseCode.POLICY_VIOLATION, RefusalCode.RATE_LIMITED, violation),)
        if verdict is Verdict.EXCESS:
            words = self._too_many(flow_control=flow_control)
            return (self._error(kind, command.source_id, RefusalCode.RATE_LIMITED, words, violation),)
        match command:  # the most frequent first
            case messages.Request(source_id, n):
                return self._request(source_id, n)
            case messages.Subscribe():
                return (self._subscribe(command),)
            case messages.Unsubscribe(source_id):
                return self._unsubscribe(source_id)
            case requests.InvalidCommand(_, source_id, words):
                wrong = Violation.MESSAGE if malformed else None
                return (self._error(kind, source_id, RefusalCode.BAD_REQUEST, words, wrong),)

    def notice(self, notice: Notice) -> Iterable[Command]:
        """Say what it means for the client. Notices about handles that this session has given up mean
        nothing, but for those that answer a frame."""
        match notice:  # the most frequent first
            case CreditAdded(handle=str(source_id)):
                return self._credit_added(source_id, notice)
            case Opened(handle=str(source_id)):
                return self._opened(source_id, notice)
            case OpenFailed(handle=str(source_id)):
                return self._open_failed(source_id, notice)
            case Offloaded(handle, _, seconds):
                self._compiling.charge_offloaded(seconds)
                return self._read(handle, notice) if isinstance(handle, str) else ()
            case Cancelled(handle=str(source_id)):
                return self._say(messages.UnsubscribeOk(messages.Unsubscribed(source_id)))
            case Lagged(handle=str(source_id)):
                return self._lagged(source_id, notice)
            case PositionsReported(handle=str(source_id)):
                current = messages.CurrentPositions(source_id, notice.positions)
                return self._say(messages.Notice(current))
            case Ended(handle=str(source_id)):
                return self._ended(source_id, notice)
            case SourceDegraded(handle=str(source_id)):
                return self._say(replies.degraded(source_id, notice.message))
            case Inspected(handle=str(source_id)):
                return self._inspected(source_id, notice)
            case TimerFired() if self._hint_schedule is not None:
                return self._hint_schedule.timer_fired()
            case Draining(retry_after_ms):
                return self._say(messages.Notice(messages.Draining(retry_after_ms)))
            case CredentialsExpiring(in_ms):
                return self._say(messages.Notice(messages.TokenExpiring(in_ms)))
            case _:
                return ()

    # --- what the client says --------------------------------------------------------------

    def _subscribe(self, command: messages.Subscribe) -> Command:
        source_id, most = command.source_id, self._limits.subscriptions
        if source_id in self._subscriptions:
            return self._refused(source_id, RefusalCode.ALREADY_SUBSCRIBED, ALREADY_SUBSCRIBED)
        if most and len(self._subscriptions) >= most:
            words = f"A connection can have at most {most} subscriptions"
            return self._refused(source_id, RefusalCode.TOO_MANY_SUBSCRIPTIONS, words)
        value_as: ValueAs | None = given(command.value_as)
        opening, query = open_command(command, self._wire), None
        try:
            if command.where is not UNSET or command.select is not UNSET:
                wait = self._compiling.wait()
                if wait:
                    return self._refused(source_id, RefusalCode.RATE_LIMITED, busy(wait), Violation.COMMANDS)
                with self._compiling.charged():
                    written = texts(command, self._limits.query_bytes)
                    if not written.is_small:
                        reading = _PendingQuery(written, opening)
                        self._subscriptions[source_id] = _ClientSubscription(
                            opening.mode, None, value_as, reading
                        )
                        return Offload(source_id, written.question)
                    query = parse_query(written)
            if query is not None:
                self._check_queries(query)
                opening = replace(opening, wire=query.before(opening.wire, self._compiling))
        except InvalidQuery as wrong:
            return self._wrong(source_id, wrong)
        self._subscriptions[source_id] = _ClientSubscription(opening.mode, query, value_as)
        return opening

    def _read(self, source_id: str, notice: Offloaded) -> Iterable[Command]:
        """Go on with a SUBSCRIBE whose query was read elsewhere."""
        subscription = self._subscriptions.get(source_id)
        if subscription is None or subscription.reading is None:
            return ()
        reading, subscription.reading = subscription.reading, None
        opening = reading.opening
        try:
            with self._compiling.charged():
                query, read = offloaded(reading.texts, notice.answer)
            if query is not None:
                self._check_queries(query)
                opening = replace(opening, wire=query.before(opening.wire, self._compiling, read))
        except InvalidQuery as wrong:
            del self._subscriptions[source_id]
            return (self._wrong(source_id, wrong), *self._unanswered(source_id, subscription))
        subscription.query = query
        return (opening, *(AddCredit(source_id, n) for n in reading.credits))

    def _wrong(self, source_id: str, wrong: InvalidQuery) -> Reply:
        return self._refused(source_id, RefusalCode.QUERY, str(wrong), position=wrong.position)

    def _check_queries(self, query: ParsedQuery) -> None:
        """Refuse a different query too many: raises InvalidQuery."""
        most = self._limits.queries
        others = {item.query.key for item in self._subscriptions.values() if item.query is not None}
        if most and len(others | {query.key}) > most:
            raise InvalidQuery(f"A connection can have at most {most} different queries")

    def _unsubscribe(self, source_id: str) -> Iterable[Command]:
        subscription = self._forget(source_id)
        if subscription is None:
            return (self._error("UNSUBSCRIBE", source_id, RefusalCode.NOT_SUBSCRIBED, NOT_SUBSCRIBED),)
        unanswered = self._unanswered(source_id, subscription)
        if not subscription.open:
            unanswered = [self._refused(source_id, RefusalCode.CANCELLED, CANCELLED), *unanswered]
        return (*unanswered, Cancel(source_id))

    def _request(self, source_id: str, n: int) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None:
            return (self._error("REQUEST", source_id, RefusalCode.NOT_SUBSCRIBED, NOT_SUBSCRIBED),)
        if subscription.mode is not Mode.PULL:
            return (self._error("REQUEST", source_id, RefusalCode.NOT_PULL, NOT_PULL),)
        if subscription.requests >= MAX_UNANSWERED:
            words = "Too many REQUESTs wait for the source to start"
            return (self._error("REQUEST", source_id, RefusalCode.RATE_LIMITED, words),)
        subscription.requests += 1
        if subscription.reading is not None:
            subscription.reading.credits.append(n)
            return ()
        return (AddCredit(source_id, n),)

    # --- what happened in the core ---------------------------------------------------------

    def _opened(self, source_id: str, opened: Opened) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None or subscription.open:
            return ()
        subscription.open = True
        query = subscription.query
        shown = projected(opened.source) if query is not None and query.selects else opened.source
        form = value_form(value_fields(shown, "flat", subscription.value_as))
        reply = self._say(replies.subscribed(source_id, subscription.mode, opened, form))
        if query is None or not query.filters:
            return reply
        self._hint_schedule = self._hint_schedule or HintSchedule(self._clock)
        return (*reply, *self._hint_schedule.watch(source_id))

    def _inspected(self, source_id: str, examined: Inspected) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if self._hint_schedule is None or subscription is None or subscription.query is None:
            return ()
        if not examined.sent and not examined.newest:
            return ()  # there was nothing to pass yet
        self._hint_schedule.forget(source_id)
        words = None
        if not examined.sent:
            with self._compiling.charged():  # the text may have to be read again
                words = subscription.query.missing_members(examined.newest, examined.source.decode)
        return () if words is None else self._say(replies.query_hint(source_id, words))

    def _forget(self, source_id: str) -> _ClientSubscription | None:
        if self._hint_schedule is not None:
            self._hint_schedule.forget(source_id)
        return self._subscriptions.pop(source_id, None)

    def _open_failed(self, source_id: str, failed: OpenFailed) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None or subscription.open:
            return ()
        del self._subscriptions[source_id]
        words = _SENTENCES.get(failed.code, failed.message)
        return (self._refused(source_id, failed.code, words), *self._unanswered(source_id, subscription))

    def _credit_added(self, source_id: str, credit_added: CreditAdded) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None or not subscription.requests:
            return ()
        subscription.requests -= 1
        granted = messages.Granted(source_id, credit_added.n, credit_added.credits)
        return self._say(messages.RequestOk(granted))

    def _lagged(self, source_id: str, lagged: Lagged) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        query = subscription.query if subscription is not None else None
        return self._say(replies.lag(source_id, lagged, filtered=query is not None and query.filters))

    def _ended(self, source_id: str, ended: Ended) -> Iterable[Command]:
        subscription = self._forget(source_id)
        if subscription is None:
            return ()
        # Nothing of a subscription follows its SUBSCRIPTION_CLOSED.
        return (*self._unanswered(source_id, subscription), *self._say(replies.closed(source_id, ended)))

    # --- answers ---------------------------------------------------------------------------

    def _invalid_message(self, said: requests.InvalidMessage, verdict: Verdict) -> Iterable[Command]:
        if verdict is Verdict.FLOOD:
            return (Close(CloseCode.POLICY_VIOLATION, RefusalCode.RATE_LIMITED, Violation.COMMANDS),)
        words, violation = said.message, Violation.MESSAGE
        if verdict is Verdict.EXCESS:
            words, violation = self._too_many(flow_control=False), Violation.COMMANDS
        return self._say(messages.Notice(messages.Error(words, said.type)), violation)

    def _unanswered(self, source_id: str, subscription: _ClientSubscription) -> list[Command]:
        return [
            self._error("REQUEST", source_id, RefusalCode.NOT_SUBSCRIBED, NOT_SUBSCRIBED)
        ] * subscription.requests

    def _too_many(self, *, flow_control: bool) -> str:
        limits = self._limits
        if flow_control:
            return f"Too many REQUESTs: at most {limits.requests_per_second:g} a second"
        return f"Too many commands: at most {limits.commands_per_second:g} a second"

    def _refused(
        self,
        source_id: str,
        code: str,
        words: str,
        violation: Violation | None = None,
        position: int | None = None,
    ) -> Reply:
        return self._error("SUBSCRIBE", source_id, code, words, violation, position)

    def _error(
        self,
        command: str,
        source_id: str,
        code: str,
        words: str,
        violation: Violation | None = None,
        position: int | None = None,
    ) -> Reply:
        # An id that no source can have is not sent back whole: replies wait in memory for slow readers.
        shown = source_id[:MAX_SOURCE_ID]
        (reply,) = self._say(replies.error(command, shown, code, words, position), violation)
        return reply

    def _say(self, message: messages.ServerMessage, violation: Violation | None = None) -> Sequence[Reply]:
        frame = replies.frame(message, self._envelope)
        return () if frame is None else (Reply(frame, violation),)
