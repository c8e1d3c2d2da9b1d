"""One client: carries out what its session wants, and tells the session what happened.

It joins three strangers: the session (a protocol, free of I/O), the hubs (the core) and the frame writer (the
sending half). All of it is synchronous; nothing here waits for the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec

import structlog

from kiwi_gw.codes import CloseCode, RefusalCode
from kiwi_gw.core.commands import (
    AddCredit,
    Call,
    Cancel,
    Close,
    Command,
    Commit,
    Continue,
    Inspect,
    LogIn,
    Offload,
    Open,
    OpenQuery,
    Produce,
    Reconfigure,
    Reply,
    Session,
    SetTimer,
    Violation,
    WatchSilence,
)
from kiwi_gw.core.notices import (
    CallDone,
    Cancelled,
    CredentialsExpiring,
    Dismissed,
    Draining,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    Silent,
    SourceAppeared,
    TimerFired,
)
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Identity, Password, Refusal, SourceInfo
from kiwi_gw.runtime.call_queue import CallQueue
from kiwi_gw.runtime.client_access import ClientAccess
from kiwi_gw.runtime.client_writes import ClientWrites
from kiwi_gw.runtime.liveness import Liveness
from kiwi_gw.runtime.offload_queue import OffloadQueue
from kiwi_gw.runtime.ports import AdmissionSlot, ConnectionWriter, GatewayContext
from kiwi_gw.runtime.session_end import end_session
from kiwi_gw.runtime.turns import Turns
from kiwi_gw.runtime.weak_callbacks import weak_callback

log = structlog.get_logger(__name__)

P = ParamSpec("P")

_AGAIN_SECONDS = 0.25


class Connection:
    """See the top of this file. Implements `core.frame_writer.Owner`.

    heard_at: when the client last sent a byte (monotonic seconds); kept by the reader of the socket. access:
    who the client is, what it may do and what it reads. cut_off: ends the socket after a moment, whatever the
    client does. slot: None where it is not counted.
    due: it is to be judged again before anything else. login_seconds: as `ClientAccess` has it. calls,
    writes, turns: None until the session asks for one.
    """

    def __init__(
        self,
        number: int,
        context: GatewayContext,
        session: Session,
        writer: ConnectionWriter,
        identity: Identity,
        dialect: str,
        remote: str,
        now: float,
        cut_off: Callable[[], None],
        slot: AdmissionSlot | None = None,
        login_seconds: float | None = None,
    ) -> None:
        self.number = number
        self.dialect = dialect
        self.remote = remote
        self.writer = writer
        self.opened_at = self.heard_at = now
        self.liveness = Liveness(now)
        self.access = ClientAccess(identity, number, dialect, context, slot, login_seconds)
        self._cut_off = cut_off
        self._context = context
        self._session = session
        self._depth = 0
        self._asked_at: float | None = None  # when the message came that is being carried out
        self.offloads: OffloadQueue | None = None  # made for clients with large queries
        self.calls: CallQueue | None = None
        self.writes: ClientWrites | None = None
        self.turns: Turns | None = None
        self.due = False
        self.closed = False

    @property
    def identity(self) -> Identity:
        """Who the client is for now."""
        return self.access.identity

    @property
    def subscriptions(self) -> Mapping[Hashable, Subscription]:
        """Those that run or wait for their source, by handle."""
        return self.access.subscriptions

    @property
    def delivered(self) -> int:
        """How many events were sent by subscriptions that are over."""
        return self.access.delivered

    def start(self) -> None:
        """Tell the session what there is, as soon as it is known who asks."""
        if self.access.login_seconds is not None:
            self._context.later(self.access.login_seconds, weak_callback(self._login_overdue))
            return
        for source in self._context.sources():
            self._tell(SourceAppeared(source))

    def receive(self, message: str | bytes, now: float) -> None:
        """Carry out one message of the client. One that comes after the close frame is not looked at."""
        if self.due:
            self.reauthorize()
        if self.writer.close_code is not None:
            return
        self._asked_at = now
        try:
            self._carry_out(self._session.receive(message, now))
        finally:
            self._asked_at = None

    def ponged(self, now: float) -> None:
        """Note that the client has answered a ping, or sent a pong without one."""
        sent_at, self.liveness.awaits_pong_of = self.liveness.awaits_pong_of, None
        if sent_at is not None:
            self._context.meters.pings.observe(now - sent_at)

    def source_appeared(self, source: SourceInfo) -> None:
        """Tell the session of a source that is new."""
        if self.access.login_seconds is None:
            self._tell(SourceAppeared(source))

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        """Tell the session what happened to a subscription (`core.frame_writer.Owner`)."""
        if self.closed:
            return
        waited = self.access.happened(subscription, notice)
        if isinstance(notice, Opened):
            self._count("subscribe", "ok", waited.asked_at)
        elif isinstance(notice, OpenFailed):
            self._count("subscribe", "refused", waited.asked_at)
        self._tell(notice)
        for later in waited.later:
            self._tell(later)

    def send_close(self, code: int, reason: str) -> None:
        """Close the connection with a close frame."""
        if self.writer.close_code is None:
            self.writer.send_close(int(code), str(reason))
            self._drop_subscriptions()

    def abort(self, code: int, reason: str) -> None:
        """Close it without hope of an answer: the close frame may not arrive."""
        self.send_close(code, reason)
        self._cut_off()

    def fail(self, error: BaseException) -> None:
        """End it with 1011 and an id that is in the log, as something of ours broke while it served this
        client; no other connection suffers."""
        number = f"{self.number:x}-{time.time_ns() & 0xFFFFFF:06x}"
        log.error("connection failed", conn_id=self.number, err_id=number, exc_info=error)
        self.send_close(CloseCode.INTERNAL_ERROR, f"internal error {number}")

    def drain(self, reason: str, retry_after_ms: int) -> None:
        """Close, as the gateway goes; say before when to come back, where the protocol can."""
        self._safely(self._farewell, reason, retry_after_ms)

    def reauthorize(self) -> None:
        """Ask who it is and what it may do, as that may have changed (a reload, keys withdrawn)."""
        self.due = False
        if self.writer.close_code is not None or self.access.login_seconds is not None:
            return
        answer = self.access.identify(self._context.hooks.reauthenticate(self.identity))
        if isinstance(answer, Refusal):
            self.dismiss(answer)
        else:
            self.access.apply_rules()
            if self.writes is not None:
                self.writes.apply_rules()

    def dismiss(self, refusal: Refusal) -> None:
        """End it: its credentials are good no longer."""
        self._tell(Dismissed(refusal.message))
        code = CloseCode.EXPIRED if refusal.retry else CloseCode.REVOKED
        if refusal.code == RefusalCode.INTERNAL_ERROR:
            code = CloseCode.INTERNAL_ERROR
        self.send_close(code, "revoked" if code == CloseCode.REVOKED else refusal.code)

    def expiring(self, seconds: float) -> None:
        """Warn the client that its credentials expire so soon."""
        self._tell(CredentialsExpiring(round(seconds * 1000)))

    def silent(self) -> None:
        """Tell the session that nothing was sent for a while."""
        self._tell(Silent())

    def end(self) -> None:
        """Let go of everything it had, as the client is gone."""
        self.closed = True
        self._drop_subscriptions()
        self.calls = self.writes = self.turns = None  # they know it: a cycle
        self.access.leave()

    # --- inside ----------------------------------------------------------------------------

    def _tell(self, notice: Notice) -> None:
        if self.writer.close_code is None:
            self._safely(self._session.notice, notice)

    def _farewell(self, reason: str, retry_after_ms: int) -> Iterator[Command]:
        hint = list(self._session.notice(Draining(retry_after_ms)))
        yield from hint
        # Only with the hint does a restart say more than that the gateway goes away.
        yield Close(CloseCode.RESTART if hint else CloseCode.GOING_AWAY, reason)

    def _safely(self, answer: Callable[P, Iterable[Command]], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            self._carry_out(answer(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  called by fan-out, sweeps and reloads: not their fault
            self.fail(error)

    def _tell_if(self, notice: Notice | None) -> None:
        if notice is not None:
            self._tell(notice)

    def _carry_out(self, commands: Iterable[Command]) -> None:
        # Replies are collected, so that they go out together and before the events that they set free.
        self._depth += 1
        self.writer.cork()
        try:
            for command in commands:
                if self.writer.close_code is not None:
                    break  # nothing is begun for a client that is on its way out
                self._one(command)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.writer.uncork()

    def _one(self, command: Command) -> None:
        match command:
            case Reply():
                if command.violation is not None:
                    self._count_violation(command.violation)
                self.writer.control(command.frame)
            case AddCredit():
                self._add_credit(command)
            case Open() | OpenQuery():
                self._open(command)
            case Cancel():
                self._cancel(command.handle)
            case Reconfigure():
                self._tell_if(self.access.reconfigure(command))
            case Close():
                if command.violation is not None:
                    self._count_violation(command.violation)
                self.send_close(command.code, command.reason)
            case Call():
                self._call(command)
            case Produce():
                self._made_writes().produce(command, self._asked_at)
            case Commit():
                self._made_writes().commit(command, self._asked_at)
            case Offload(handle, question, pause):
                self.offloads = self.offloads or OffloadQueue(self._context.offloads, self._offloaded)
                self.offloads.add(handle, question, self._asked_at, pause=pause)
            case Inspect(handle):
                self._tell_if(self.access.examine(handle))
            case SetTimer(seconds, held):
                fired = self._timer_fired if held else self._time_passed
                self._context.later(seconds, weak_callback(fired))
            case WatchSilence(seconds):
                self.liveness.silence_seconds = seconds
            case Continue():
                self.turns = self.turns or Turns(self._context, self.writer, self._tell)
                self.turns.add(command)

    def _open(self, command: Open | OpenQuery) -> None:
        if self._context.refusing and not self.subscriptions:
            self._count("subscribe", "refused")
            self._tell(Dismissed("the gateway is short of memory; try again later"))
            self.send_close(CloseCode.TRY_AGAIN_LATER, "try_again_later")
            return
        try:
            self.access.open(command, self.writer, self, self._asked_at)
        except SubscribeRefused as refused:
            self._count("subscribe", "refused")
            self._tell(OpenFailed(command.handle, refused.code, str(refused)))

    def _add_credit(self, command: AddCredit) -> None:
        if command.handle in self.subscriptions:  # else the session knows of its end, or is about to
            self._count("request", "ok")
            self._tell_if(self.access.add_credit(command))

    def _offloaded(self, notice: Offloaded, asked_at: float | None) -> None:
        before, self._asked_at = self._asked_at, asked_at
        try:
            self._tell(notice)
        finally:
            self._asked_at = before

    def _cancel(self, handle: Hashable) -> None:
        offloaded = self.offloads is not None and self.offloads.drop(handle)
        if offloaded or self.access.cancel(handle):
            self._count("unsubscribe", "ok")
            self._tell(Cancelled(handle))

    def _login_overdue(self) -> None:
        if self.access.login_seconds is not None and not self.closed:
            self.send_close(CloseCode.LOGIN_OVERDUE, RefusalCode.AUTH_TIMEOUT)

    def _timer_fired(self) -> None:
        if self.writer.full and not self.closed:  # what is said to one that does not read piles up
            self._context.later(_AGAIN_SECONDS, weak_callback(self._timer_fired))
        elif not self.closed:
            self._tell(TimerFired())

    def _time_passed(self) -> None:
        if not self.closed:
            self._tell(TimerFired(held=False))

    def _call(self, command: Call) -> None:
        credential = command.request.credential
        if isinstance(credential, Password) and not credential.remote:
            login = LogIn(replace(credential, remote=self.remote))
            command = replace(command, request=login)
        self.calls = self.calls or CallQueue(self._context.call_later, self._call_done)
        self.calls.add(command, self._asked_at)

    def _call_done(self, call: Call, answer: Identity | Refusal, asked_at: float | None) -> None:
        first = self.access.login_seconds is not None
        answer = self.access.identify(answer)
        self._count("login", "refused" if isinstance(answer, Refusal) else "ok", asked_at)
        known = not isinstance(answer, Refusal)
        if known and first:
            self.start()  # before the answer: with it may come what the client wanted to log in for
        self._tell(CallDone(call.handle, answer))
        if known:
            self.access.apply_rules()

    def _made_writes(self) -> ClientWrites:
        self.writes = self.writes or ClientWrites(self._context, self.access, self._tell_all, self._count)
        return self.writes

    def _tell_all(self, notices: Sequence[Notice]) -> None:
        if self.writer.close_code is None and not self.closed:
            self._safely(lambda: (done for item in notices for done in self._session.notice(item)))

    def _count(self, command: str, result: str, asked_at: float | None = None) -> None:
        """Count a command that was answered. asked_at: when it came, if not just now."""
        meters = self._context.meters
        meters.commands[self.dialect, command, result] += 1
        since = asked_at if asked_at is not None else self._asked_at
        if since is not None:
            meters.command_over(self.dialect, command, self._context.clock() - since)

    def _count_violation(self, violation: Violation) -> None:
        self._context.meters.count_violation(self.dialect, violation)

    def _drop_subscriptions(self) -> None:
        for waiting in (self.offloads, self.calls, self.writes, self.turns):
            if waiting is not None:
                waiting.clear()
        self.access.drop()
        self._session = end_session(self._session)

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.dialect} {self.remote}>"
