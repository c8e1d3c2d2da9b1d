"""One client's half of Lenses v1: who it is, what it asks for, and the one answer to each request.

Theory of operation. A request is read twice, envelope and content. Its `authToken` decides whose it is:
empty, that of the connection; the one that was accepted last, too; another is checked first, and becomes the
connection's if it is good. While that is done nothing more of the client is read, so that requests are
carried out in the order in which they came. Reading the SQL of a SUBSCRIBE is in `subscribing`, what its
topics do in `topics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kiwi_gw.codes import CloseCode
from kiwi_gw.core.commands import (
    Call,
    Cancel,
    Close,
    Command,
    LogIn,
    Reply,
    SetTimer,
    Violation,
    WatchSilence,
)
from kiwi_gw.core.notices import (
    CallDone,
    CommitDone,
    Continued,
    Ended,
    Inspected,
    Lagged,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    Produced,
    Silent,
    SourceAppeared,
    TimerFired,
)
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialect_api.throttle import Throttle, Verdict
from kiwi_gw.dialects.lenses.login import token_for
from kiwi_gw.dialects.lenses.settings import LensesSettings
from kiwi_gw.dialects.lenses.tables import Tables
from kiwi_gw.dialects.lenses.v1 import messages, replies, requests
from kiwi_gw.dialects.lenses.v1.subscribing import Reading, StatementReader, Unreadable
from kiwi_gw.dialects.lenses.v1.topics import GIVE_UP_SECONDS, Topics, Wanted
from kiwi_gw.dialects.lenses.v1.writing import CommitPart, Publishing, Unwritable, Writing, group_of
from kiwi_gw.model import Identity, Password, Refusal, Token, Unpublished
from kiwi_gw.query.errors import QueryError

RATE_LIMITED: Final = "rate_limited"
TOO_MANY: Final = "too many requests in too short a time"
LOG_IN_FIRST: Final = "log in first: LOGIN, or a token in authToken"

TOO_LATE: Final = "it took too long to find out whose token that is; try again"

LEAST_WRITE_SECONDS: Final = 2.0
"""With less left of the time for an answer nothing is written: what is written together, by anyone, has no
more time than the one of it that has least."""

_REQUEST_CHARACTERS: Final = 1_024
"""So much of a request is looked through in the time of one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Login:
    """A LOGIN whose password is being checked."""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A request whose token is being checked. until: when it is given up."""

    request: messages.Request
    until: float


class LensesV1Session:
    """Implement `kiwi_gw.core.commands.Session`.

    statements: reads the SQL of a SUBSCRIBE. client_id: of the path. user: who the client is by the head of
    its request; None: that has not said it. clock: monotonic seconds.
    """

    def __init__(
        self,
        tables: Tables,
        statements: StatementReader,
        limits: SessionLimits,
        settings: LensesSettings,
        client_id: str,
        user: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = tables
        self._statements = statements
        self._limits = limits
        self._settings = settings
        self._client_id = client_id
        self._user = user
        self._commits = Throttle(limits.requests_per_second, limits.requests_burst, limits.flood_seconds)
        self._throttle = Throttle(limits.commands_per_second, limits.commands_burst, limits.flood_seconds)
        self._clock = clock
        self._topics = Topics(clock)
        self._writing = Writing(tables, settings.commit)
        self._token: str | None = None  # the one that the connection's identity came with
        self._unanswered = 0  # requests beside SUBSCRIBEs
        self._watching = False

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        """Take one request. It gets exactly one answer."""
        if not isinstance(message, str):
            words = "only text frames are understood"
            yield Close(CloseCode.UNSUPPORTED_DATA, words, Violation.BINARY)
            return
        request = requests.read(message)
        if isinstance(request, requests.WrongRequest):
            yield self._refused(replies.invalid(request), _cost(message))
            return
        if request.type == "PUBLISH" and self._is_known(request):
            yield from self._carry_out(request)  # bounded by what is under way; what is refused is counted
            return
        throttle = self._commits if request.type == "COMMIT" else self._throttle
        verdict = throttle.admit(now, _cost(message))
        if verdict is Verdict.FLOOD:
            yield Close(CloseCode.POLICY_VIOLATION, RATE_LIMITED, Violation.COMMANDS)
        elif verdict is Verdict.EXCESS:
            yield replies.error(request.correlation_id, TOO_MANY, Violation.COMMANDS)
        else:
            yield from self._identify(request)

    def notice(self, notice: Notice) -> Iterable[Command]:
        """Say what it means for the client."""
        match notice:
            case Opened():
                return self._topics.opened(notice)
            case OpenFailed():
                return self._topics.failed(notice)
            case Ended():
                return self._topics.ended(notice)
            case Lagged():
                return self._topics.lagged(notice)
            case Inspected():
                return self._topics.inspected(notice)
            case Offloaded():
                return self._statement_read(notice)
            case Continued():
                return self._continued()
            case CallDone(_Login(number), result):
                return self._logged_in(number, result)
            case CallDone(_Asked() as asked, result):
                return self._token_checked(asked, result)
            case TimerFired():
                return self._timer_fired()
            case Produced(Publishing() as asked):
                return self._produced(asked, notice)
            case CommitDone(CommitPart() as part):
                return self._writing.committed(part, notice)
            case Silent() if not self._waits:
                return (replies.heartbeat(),)
            case SourceAppeared(info):
                self._tables.add(info)
                return self._watch()
            case _:
                return ()

    # --- who asks --------------------------------------------------------------------------

    def _identify(self, request: messages.Request) -> Iterator[Command]:
        """Carry out a request of whom its token says, or begin to find out who that is."""
        token = request.auth_token
        if request.type == "LOGIN":
            content = requests.read_content(request)
            if isinstance(content, messages.Login):
                self._unanswered += 1
                asked = _Login(request.correlation_id)
                yield Call(asked, LogIn(Password(content.user, content.password), GIVE_UP_SECONDS))
            elif isinstance(content, requests.WrongRequest):
                yield replies.invalid(content)
        elif not self._is_known(request) and token:
            self._unanswered += 1
            until = self._clock() + GIVE_UP_SECONDS
            yield Call(_Asked(request, until), LogIn(Token(token), GIVE_UP_SECONDS))
        elif self._user is None:
            yield replies.error(request.correlation_id, LOG_IN_FIRST)
        else:
            yield from self._carry_out(request)

    def _logged_in(self, number: int, result: Identity | Refusal) -> Iterator[Command]:
        self._unanswered -= 1
        if isinstance(result, Refusal):
            yield replies.error(number, result.message)
            return
        token = token_for(result)
        yield from self._known(result, token)
        yield replies.success(number, token)

    def _token_checked(self, asked: _Asked, result: Identity | Refusal) -> Iterator[Command]:
        self._unanswered -= 1
        request = asked.request
        if isinstance(result, Refusal):
            yield replies.error(request.correlation_id, result.message)
            return
        yield from self._known(result, request.auth_token)
        yield from self._carry_out(request, asked.until)

    def _is_known(self, request: messages.Request) -> bool:
        """Whether nothing has to be found out about who asks."""
        if request.auth_token:
            return request.auth_token == self._token
        return self._user is not None

    def _known(self, identity: Identity, token: str | None) -> Iterator[Command]:
        self._token, self._user = token, identity.name
        yield from self._watch()

    def _watch(self) -> Iterator[Command]:
        if not self._watching:
            self._watching = True
            yield WatchSilence(self._settings.heartbeat_ms / 1000)

    @property
    def _group(self) -> str:
        """The consumer group of this client."""
        return group_of(self._settings.group, self._user or "", self._client_id)

    @property
    def _waits(self) -> bool:
        """Whether a request is not answered."""
        return (
            bool(self._unanswered or self._writing.unanswered) or self._topics.waits or self._statements.waits
        )

    # --- what is asked ---------------------------------------------------------------------

    def _carry_out(self, request: messages.Request, until: float | None = None) -> Iterator[Command]:
        """Do what is asked. until: when it is given up; None: it was read just now."""
        content = requests.read_content(request)
        now = self._clock()
        until = now + GIVE_UP_SECONDS if until is None else until
        match content:
            case requests.WrongRequest():
                answer = replies.invalid(content)
                yield self._refused(answer) if request.type == "PUBLISH" else answer
            case messages.Subscribe(sqls):
                yield from self._read_on(Reading(request.correlation_id, sqls, until))
            case messages.Unsubscribe():
                yield from self._unsubscribe(request.correlation_id, content)
            case messages.Publish() if until - now < LEAST_WRITE_SECONDS:
                yield replies.error(request.correlation_id, f"not written: {TOO_LATE}")
            case messages.Commit() if until - now < LEAST_WRITE_SECONDS:
                yield replies.error(request.correlation_id, TOO_LATE)
            case messages.Publish():
                yield from self._publish(request.correlation_id, content, until - now)
            case messages.Commit():
                yield from self._commit(request.correlation_id, content, until - now)

    def _statement_read(self, notice: Offloaded) -> Iterator[Command]:
        """Go on with a SUBSCRIBE one of whose statements was read elsewhere."""
        try:
            reading = self._statements.answered(notice)
        except Unreadable as wrong:
            yield replies.error(wrong.number, str(wrong))
            return
        if reading is not None:
            yield from self._read_on(reading)

    def _continued(self) -> Iterator[Command]:
        """Go on with a SUBSCRIBE whose turn it is."""
        reading = self._statements.continued()
        return self._topics.continued() if reading is None else self._read_on(reading)

    def _read_on(self, reading: Reading) -> Iterator[Command]:
        try:
            if not (yield from self._statements.read(reading)):
                yield SetTimer(max(0.0, reading.until - self._clock()))
                return
            wanted = self._statements.wanted(reading, self._topics.queries, self._group)
            self._check_number(reading, wanted)
        except Unreadable as wrong:
            yield replies.error(wrong.number, str(wrong))
            return
        yield from self._topics.subscribe(reading.number, wanted, reading.until)

    def _check_number(self, reading: Reading, wanted: Sequence[Wanted]) -> None:
        """Raise Unreadable for the first statement for whose subscription there is no room."""
        most = self._limits.subscriptions
        room = most - self._topics.others({each.topic for each in wanted})
        if most and len(wanted) > room:
            beyond = wanted[max(0, room)]
            words = f"a connection can have at most {most} subscriptions"
            raise Unreadable(reading, beyond.place, str(QueryError(words, beyond.position)))

    def _timer_fired(self) -> Iterator[Command]:
        for handle, reading in self._statements.overdue(self._clock()):
            yield Cancel(handle)
            yield replies.error(reading.number, "its SQL takes too long to be read; try again")
        yield from self._topics.timer_fired()

    def _unsubscribe(self, number: int, content: messages.Unsubscribe) -> Iterator[Command]:
        names = [item if isinstance(item, str) else item.topic for item in content.topics]
        ended = []
        for each in self._topics.unsubscribe(dict.fromkeys(names)):
            if isinstance(each, str):
                ended.append(each)
            else:
                yield each
        yield replies.success(number, ",".join(ended))

    def _publish(self, number: int, content: messages.Publish, within: float) -> Iterator[Command]:
        try:
            yield from self._writing.publish(number, content, within)
        except Unwritable as wrong:
            yield self._refused(replies.error(number, str(wrong)))

    def _produced(self, asked: Publishing, notice: Produced) -> Iterator[Command]:
        answer, result = self._writing.produced(asked, notice), notice.result
        hopeless = isinstance(result, Unpublished) and result.known and not result.retriable
        yield self._refused(answer) if hopeless or isinstance(result, Refusal) else answer

    def _commit(self, number: int, content: messages.Commit, within: float) -> Iterator[Command]:
        try:
            yield from self._writing.commit(number, content, self._group, within)
        except Unwritable as wrong:
            yield replies.error(number, str(wrong))

    def _refused(self, answer: Reply, cost: int = 1) -> Command:
        """Count what is refused for the client's rate. Returns the answer, or the end if that was too much
        for too long."""
        if self._throttle.admit(self._clock(), cost) is Verdict.FLOOD:
            return Close(CloseCode.POLICY_VIOLATION, RATE_LIMITED, Violation.COMMANDS)
        return answer


def _cost(message: str) -> int:
    return 1 + len(message) // _REQUEST_CHARACTERS
