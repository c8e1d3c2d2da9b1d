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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from kiwi_gw.core.commands import Breach, Cancel, Command, Grant, Hangup, Offload, Open, Reply
from kiwi_gw.core.notices import (
    Cancelled,
    CredentialsExpiring,
    Draining,
    Ended,
    Examined,
    Granted,
    Lagged,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    PositionsAre,
    Reminded,
    SourceTroubled,
)
from kiwi_gw.dialects.base import SessionLimits
from kiwi_gw.dialects.compiling import Compiling, busy
from kiwi_gw.dialects.kiwi import requests
from kiwi_gw.dialects.kiwi.beginnings import Wrong
from kiwi_gw.dialects.kiwi.hints import Hints
from kiwi_gw.dialects.kiwi.members import UnknownMembers
from kiwi_gw.dialects.kiwi.openings import Wires, opening_of, value_as_of
from kiwi_gw.dialects.kiwi.queries import Asked, Texts, WrongQuery, asked, offloaded, texts
from kiwi_gw.dialects.kiwi.replies import Replies
from kiwi_gw.dialects.kiwi.results import value_fields, value_form
from kiwi_gw.dialects.throttle import Throttle, Verdict
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.model import Mode, ValueAs
from kiwi_gw.query.filtered import projected

# The original server's sentences.
ALREADY_SUBSCRIBED: Final = "Source already has an active subscription"
NO_SUCH_SOURCE: Final = "No source exists with the specified ID"
NOT_SUBSCRIBED: Final = "Source does not have an active subscription"
NOT_PULL: Final = "Source is not in pull mode"

CANCELLED: Final = "The subscription was cancelled before it was open"
RATE_LIMITED: Final = "rate_limited"

_SENTENCES = {"unknown_source": NO_SUCH_SOURCE}
"""Codes of OpenFailed for which the original has words of its own."""

MAX_UNANSWERED = 64
"""REQUESTs that may wait for a source that is starting: their replies come all at once."""


@dataclass(slots=True)
class _Reading:
    """What is to be done when the query is read. credits: what was asked for meanwhile."""

    texts: Texts
    opening: Open
    credits: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Subscription:
    """`requests`: those that are not answered yet. reading: while its query is read elsewhere."""

    mode: Mode
    asked: Asked | None
    value_as: ValueAs | None = None
    reading: _Reading | None = None
    open: bool = False
    requests: int = 0


TOO_DEEP = "The message is nested too deeply"

MAX_SOURCE_ID = 255
"""Characters of the longest id that a source can have."""


_COMMAND_CHARACTERS = 1_024
"""So much of a message is looked through in the time of a command. A REQUEST is shorter."""


class KiwiSession:
    """Implements `kiwi_gw.core.commands.Session`. clock: monotonic seconds."""

    def __init__(
        self,
        wire: Wires,
        replies: Replies,
        limits: SessionLimits,
        unknown_members: UnknownMembers = "refuse",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._unknown_members = unknown_members
        self._wire = wire
        self._replies = replies
        self._limits = limits
        self._commands = Throttle(limits.commands_per_second, limits.commands_burst, limits.flood_seconds)
        self._requests = Throttle(limits.requests_per_second, limits.requests_burst, limits.flood_seconds)
        self._compiling = Compiling(limits, clock)
        self._subscriptions: dict[str, _Subscription] = {}
        self._hints: Hints | None = None  # made for clients that filter at all

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        """One frame of the client. See the top of this file for what answers it."""
        if not isinstance(message, str):
            return (
                Hangup(
                    requests.UNSUPPORTED_DATA, "bad_request: only text frames are understood", Breach.BINARY
                ),
            )
        try:
            command = requests.read(message, check_members=self._unknown_members == "refuse")
        except ConnectionEnd as end:
            return (Hangup(end.code, end.reason, Breach.MESSAGE),)
        length = 1 + len(message) // _COMMAND_CHARACTERS
        if isinstance(command, requests.Misunderstood):
            return self._misunderstood(command, self._commands.admit(now, length))
        wrong = TOO_DEEP if command.too_deep else command.unknown
        flow_control = command.type == "REQUEST" and wrong is None and length == 1
        cost = 1 if command.type == "SUBSCRIBE" and wrong is None else length
        verdict = (self._requests if flow_control else self._commands).admit(now, cost)
        breach = Breach.REQUESTS if flow_control else Breach.COMMANDS
        if verdict is Verdict.FLOOD:
            return (Hangup(requests.POLICY_VIOLATION, RATE_LIMITED, breach),)
        if verdict is Verdict.EXCESS:
            words = self._too_many(flow_control=flow_control)
            return (self._error(command.type, command.source_id, words, breach),)
        if wrong is not None:
            return (self._error(command.type, command.source_id, wrong, Breach.MESSAGE),)
        match command.type:
            case "SUBSCRIBE":
                return (self._subscribe(command),)
            case "UNSUBSCRIBE":
                return self._unsubscribe(command.source_id)
            case _:
                return self._request(command)

    def notice(self, notice: Notice) -> Iterable[Command]:
        """What it means for the client. Notices about handles that this session has given up mean nothing,
        but for those that answer a frame."""
        match notice:
            case Opened(handle=str(source_id)):
                return self._opened(source_id, notice)
            case OpenFailed(handle=str(source_id)):
                return self._open_failed(source_id, notice)
            case Offloaded(handle, _, seconds):
                self._compiling.charge_offloaded(seconds)
                return self._read(handle, notice) if isinstance(handle, str) else ()
            case Granted(handle=str(source_id)):
                return self._granted(source_id, notice)
            case Cancelled(handle=str(source_id)):
                return (Reply(self._replies.ok("UNSUBSCRIBE", source_id)),)
            case Lagged(handle=str(source_id)):
                return (self._lagged(source_id, notice),)
            case PositionsAre(handle=str(source_id)):
                frame = self._replies.positions(source_id, notice)
                return () if frame is None else (Reply(frame),)
            case Ended(handle=str(source_id)):
                return self._ended(source_id, notice)
            case SourceTroubled(handle=str(source_id)):
                frame = self._replies.troubled(source_id, notice)
                return () if frame is None else (Reply(frame),)
            case Examined(handle=str(source_id)):
                return self._examined(source_id, notice)
            case Reminded() if self._hints is not None:
                return self._hints.reminded()
            case Draining():
                frame = self._replies.draining(notice)
                return () if frame is None else (Reply(frame),)
            case CredentialsExpiring():
                frame = self._replies.expiring(notice)
                return () if frame is None else (Reply(frame),)
            case _:
                return ()

    # --- what the client says --------------------------------------------------------------

    def _subscribe(self, command: requests.ClientCommand) -> Command:
        source_id, most = command.source_id, self._limits.subscriptions
        if source_id in self._subscriptions:
            return self._error("SUBSCRIBE", source_id, ALREADY_SUBSCRIBED)
        if most and len(self._subscriptions) >= most:
            return self._error("SUBSCRIBE", source_id, f"A connection can have at most {most} subscriptions")
        try:
            value_as = value_as_of(command.value_as)
            opening = opening_of(command, self._wire, value_as)
            query = None
            if command.where is not None or command.select is not None:
                wait = self._compiling.wait()
                if wait:
                    return self._error("SUBSCRIBE", source_id, busy(wait), Breach.COMMANDS)
                with self._compiling.charged():
                    written = texts(command.where, command.select, self._limits.query_bytes)
                    if not written.is_little:
                        reading = _Reading(written, opening)
                        self._subscriptions[source_id] = _Subscription(opening.mode, None, value_as, reading)
                        return Offload(source_id, written.question)
                    query = asked(written)
            if query is not None:
                self._one_more(query)
                opening = replace(opening, wire=query.before(opening.wire, self._compiling))
        except Wrong as wrong:
            return self._wrong(source_id, wrong)
        self._subscriptions[source_id] = _Subscription(opening.mode, query, value_as)
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
                self._one_more(query)
                opening = replace(opening, wire=query.before(opening.wire, self._compiling, read))
        except Wrong as wrong:
            del self._subscriptions[source_id]
            return (self._wrong(source_id, wrong), *self._unanswered(source_id, subscription))
        subscription.asked = query
        return (opening, *(Grant(source_id, n) for n in reading.credits))

    def _wrong(self, source_id: str, wrong: Wrong) -> Reply:
        position = wrong.position if isinstance(wrong, WrongQuery) else None
        return self._error("SUBSCRIBE", source_id, str(wrong), position=position)

    def _one_more(self, query: Asked) -> None:
        """Refuse a different query too many: raises Wrong."""
        most = self._limits.queries
        others = {item.asked.key for item in self._subscriptions.values() if item.asked is not None}
        if most and len(others | {query.key}) > most:
            raise Wrong(f"A connection can have at most {most} different queries")

    def _unsubscribe(self, source_id: str) -> Iterable[Command]:
        subscription = self._forget(source_id)
        if subscription is None:
            return (self._error("UNSUBSCRIBE", source_id, NOT_SUBSCRIBED),)
        unanswered = self._unanswered(source_id, subscription)
        if not subscription.open:
            unanswered = [self._error("SUBSCRIBE", source_id, CANCELLED), *unanswered]
        return (*unanswered, Cancel(source_id))

    def _request(self, command: requests.ClientCommand) -> Iterable[Command]:
        source_id = command.source_id
        subscription = self._subscriptions.get(source_id)
        if subscription is None:
            return (self._error("REQUEST", source_id, NOT_SUBSCRIBED),)
        if subscription.mode is not Mode.PULL:
            return (self._error("REQUEST", source_id, NOT_PULL),)
        n = requests.integer(command.n)
        if n is None:
            return (
                self._error("REQUEST", source_id, f"n must be an integer from 1 to {requests.MAX_INTEGER}"),
            )
        if subscription.requests >= MAX_UNANSWERED:
            return (self._error("REQUEST", source_id, "Too many REQUESTs wait for the source to start"),)
        subscription.requests += 1
        if subscription.reading is not None:
            subscription.reading.credits.append(n)
            return ()
        return (Grant(source_id, n),)

    # --- what happened in the core ---------------------------------------------------------

    def _opened(self, source_id: str, opened: Opened) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None or subscription.open:
            return ()
        subscription.open = True
        query = subscription.asked
        shown = projected(opened.source) if query is not None and query.selects else opened.source
        form = value_form(value_fields(shown, "flat", subscription.value_as))
        reply = Reply(self._replies.subscribed(source_id, subscription.mode, opened, form))
        if query is None or not query.filters:
            return (reply,)
        self._hints = self._hints or Hints(self._clock)
        return (reply, *self._hints.watch(source_id))

    def _examined(self, source_id: str, examined: Examined) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if self._hints is None or subscription is None or subscription.asked is None:
            return ()
        if not examined.sent and not examined.newest:
            return ()  # there was nothing to pass yet
        self._hints.forget(source_id)
        words = None
        if not examined.sent:
            with self._compiling.charged():  # the text may have to be read again
                words = subscription.asked.unseen(examined.newest, examined.source.decode)
        frame = None if words is None else self._replies.query_hint(source_id, words)
        return () if frame is None else (Reply(frame),)

    def _forget(self, source_id: str) -> _Subscription | None:
        if self._hints is not None:
            self._hints.forget(source_id)
        return self._subscriptions.pop(source_id, None)

    def _open_failed(self, source_id: str, failed: OpenFailed) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None or subscription.open:
            return ()
        del self._subscriptions[source_id]
        words = _SENTENCES.get(failed.code, failed.message)
        return (self._error("SUBSCRIBE", source_id, words), *self._unanswered(source_id, subscription))

    def _granted(self, source_id: str, granted: Granted) -> Iterable[Command]:
        subscription = self._subscriptions.get(source_id)
        if subscription is None or not subscription.requests:
            return ()
        subscription.requests -= 1
        return (Reply(self._replies.granted(source_id, granted)),)

    def _lagged(self, source_id: str, lagged: Lagged) -> Reply:
        subscription = self._subscriptions.get(source_id)
        query = subscription.asked if subscription is not None else None
        return Reply(self._replies.lag(source_id, lagged, filtered=query is not None and query.filters))

    def _ended(self, source_id: str, ended: Ended) -> Iterable[Command]:
        subscription = self._forget(source_id)
        if subscription is None:
            return ()
        # Nothing of a subscription follows its SUBSCRIPTION_CLOSED.
        return (*self._unanswered(source_id, subscription), Reply(self._replies.closed(source_id, ended)))

    # --- answers ---------------------------------------------------------------------------

    def _misunderstood(self, said: requests.Misunderstood, verdict: Verdict) -> Iterable[Command]:
        if verdict is Verdict.FLOOD:
            return (Hangup(requests.POLICY_VIOLATION, RATE_LIMITED, Breach.COMMANDS),)
        if verdict is Verdict.EXCESS:
            words = self._too_many(flow_control=False)
            return (Reply(self._replies.misunderstood(words, said.type), Breach.COMMANDS),)
        return (Reply(self._replies.misunderstood(said.message, said.type), Breach.MESSAGE),)

    def _unanswered(self, source_id: str, subscription: _Subscription) -> list[Command]:
        return [self._error("REQUEST", source_id, NOT_SUBSCRIBED)] * subscription.requests

    def _too_many(self, *, flow_control: bool) -> str:
        limits = self._limits
        if flow_control:
            return f"Too many REQUESTs: at most {limits.requests_per_second:g} a second"
        return f"Too many commands: at most {limits.commands_per_second:g} a second"

    def _error(
        self,
        command: str,
        source_id: str,
        words: str,
        breach: Breach | None = None,
        position: int | None = None,
    ) -> Reply:
        # An id that no source can have is not sent back whole: replies wait in memory for slow readers.
        return Reply(self._replies.error(command, source_id[:MAX_SOURCE_ID], words, position), breach)
