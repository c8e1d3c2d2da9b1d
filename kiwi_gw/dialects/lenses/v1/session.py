"""One client's half of Lenses v1: who it is, what it asks for, and the one answer to each request.

Theory of operation. A request is read twice, envelope and content. Its `authToken` decides whose it is:
empty, that of the connection; the one that was accepted last, too; another is checked first, and becomes the
connection's if it is good. While that is done nothing more of the client is read, so that requests are
carried out in the order in which they came. Reading the SQL of a SUBSCRIBE is in `subscribing`, what its
topics do in `topics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kiwi_gw.codes import CloseCode
from kiwi_gw.core.commands import Call, Close, Command, LogIn, Violation, WatchSilence
from kiwi_gw.core.notices import (
    CallDone,
    Ended,
    Inspected,
    Lagged,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    Silent,
    SourceAppeared,
    TimerFired,
)
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialect_api.throttle import Throttle, Verdict
from kiwi_gw.dialects.lenses.login import token_for
from kiwi_gw.dialects.lenses.tables import Tables
from kiwi_gw.dialects.lenses.v1 import messages, replies, requests
from kiwi_gw.dialects.lenses.v1.subscribing import Reading, StatementReader, Unreadable
from kiwi_gw.dialects.lenses.v1.topics import Topics
from kiwi_gw.model import Identity, Password, Refusal, Token

RATE_LIMITED: Final = "rate_limited"
TOO_MANY: Final = "too many requests: at most {:g} a second"
LOG_IN_FIRST: Final = "log in first: LOGIN, or a token in authToken"

_REQUEST_CHARACTERS: Final = 1_024
"""So much of a request is looked through in the time of one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Login:
    """A LOGIN whose password is being checked."""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A request whose token is being checked."""

    request: messages.Request


class LensesV1Session:
    """Implement `kiwi_gw.core.commands.Session`.

    statements: reads the SQL of a SUBSCRIBE. heartbeat_seconds: of silence behind which a HEARTBEAT is sent.
    identified: whether the head of the request has said who the client is. clock: monotonic seconds.
    """

    def __init__(
        self,
        tables: Tables,
        statements: StatementReader,
        limits: SessionLimits,
        heartbeat_seconds: float,
        *,
        identified: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = tables
        self._statements = statements
        self._limits = limits
        self._heartbeat_seconds = heartbeat_seconds
        self._identified = identified
        self._throttle = Throttle(limits.commands_per_second, limits.commands_burst, limits.flood_seconds)
        self._topics = Topics(clock)
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
        verdict = self._throttle.admit(now, 1 + len(message) // _REQUEST_CHARACTERS)
        if verdict is Verdict.FLOOD:
            yield Close(CloseCode.POLICY_VIOLATION, RATE_LIMITED, Violation.COMMANDS)
        elif isinstance(request, requests.WrongRequest):
            yield replies.invalid(request)
        elif verdict is Verdict.EXCESS:
            words = TOO_MANY.format(self._limits.commands_per_second)
            yield replies.error(request.correlation_id, words, Violation.COMMANDS)
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
            case CallDone(_Login(number), result):
                return self._logged_in(number, result)
            case CallDone(_Asked(request), result):
                return self._token_checked(request, result)
            case TimerFired():
                return self._topics.timer_fired()
            case Silent() if not (self._unanswered or self._topics.waits or self._statements.waits):
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
                yield Call(asked, LogIn(Password(content.user, content.password)))
            elif isinstance(content, requests.WrongRequest):
                yield replies.invalid(content)
        elif token and token != self._token:
            self._unanswered += 1
            yield Call(_Asked(request), LogIn(Token(token)))
        elif not self._identified:
            yield replies.error(request.correlation_id, LOG_IN_FIRST)
        else:
            yield from self._carry_out(request)

    def _logged_in(self, number: int, result: Identity | Refusal) -> Iterator[Command]:
        self._unanswered -= 1
        if isinstance(result, Refusal):
            yield replies.error(number, result.message)
            return
        token = token_for(result)
        yield from self._known(token)
        yield replies.success(number, token)

    def _token_checked(self, request: messages.Request, result: Identity | Refusal) -> Iterator[Command]:
        self._unanswered -= 1
        if isinstance(result, Refusal):
            yield replies.error(request.correlation_id, result.message)
            return
        yield from self._known(request.auth_token)
        yield from self._carry_out(request)

    def _known(self, token: str | None) -> Iterator[Command]:
        self._token, self._identified = token, True
        yield from self._watch()

    def _watch(self) -> Iterator[Command]:
        if not self._watching:
            self._watching = True
            yield WatchSilence(self._heartbeat_seconds)

    # --- what is asked ---------------------------------------------------------------------

    def _carry_out(self, request: messages.Request) -> Iterator[Command]:
        content = requests.read_content(request)
        match content:
            case requests.WrongRequest():
                yield replies.invalid(content)
            case messages.Subscribe(sqls):
                yield from self._subscribe(request.correlation_id, sqls)
            case messages.Unsubscribe():
                yield from self._unsubscribe(request.correlation_id, content)

    def _subscribe(self, number: int, sqls: list[str]) -> Iterator[Command]:
        most = self._limits.subscriptions
        if most and len(self._topics) + len(sqls) > most:
            yield replies.error(number, f"a connection can have at most {most} subscriptions")
            return
        yield from self._read_on(Reading(number, sqls))

    def _statement_read(self, notice: Offloaded) -> Iterator[Command]:
        """Go on with a SUBSCRIBE one of whose statements was read elsewhere."""
        try:
            reading = self._statements.answered(notice)
        except Unreadable as wrong:
            yield replies.error(wrong.number, str(wrong))
            return
        if reading is not None:
            yield from self._read_on(reading)

    def _read_on(self, reading: Reading) -> Iterator[Command]:
        try:
            yield from self._statements.read(reading)
            if not reading.complete:
                return
            wanted = self._statements.wanted(reading, self._topics.queries)
        except Unreadable as wrong:
            yield replies.error(wrong.number, str(wrong))
            return
        yield from self._topics.subscribe(reading.number, wanted)

    def _unsubscribe(self, number: int, content: messages.Unsubscribe) -> Iterator[Command]:
        names = [item if isinstance(item, str) else item.topic for item in content.topics]
        ended = []
        for each in self._topics.unsubscribe(dict.fromkeys(names)):
            if isinstance(each, str):
                ended.append(each)
            else:
                yield each
        yield replies.success(number, ",".join(ended))
