"""One client: carries out what its session wants, and tells the session what happened.

It joins three strangers: the session (a protocol, free of I/O), the feeds (the core) and the outlet (the
sending half). All of it is synchronous; nothing here waits for the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from kiwi_gw.core.accounts import OwnAccount, Payer
from kiwi_gw.core.commands import (
    Authenticate,
    Cancel,
    Command,
    Continue,
    Examine,
    Grant,
    Hangup,
    Offload,
    Open,
    Recast,
    Remind,
    Reply,
    Session,
)
from kiwi_gw.core.encoding import Wire, wire
from kiwi_gw.core.feed import Feed, Request
from kiwi_gw.core.notices import (
    Authenticated,
    AuthenticationFailed,
    Cancelled,
    Continued,
    CredentialsExpiring,
    Draining,
    Ended,
    Examined,
    Granted,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    RecastRefused,
    Reminded,
    SourceAppeared,
)
from kiwi_gw.core.starts import is_past
from kiwi_gw.core.states import Input, State
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import (
    Action,
    CloseReason,
    Credential,
    Identity,
    Interceptor,
    Refusal,
    SourceInfo,
    WireFormat,
)
from kiwi_gw.runtime.clients import who_pays
from kiwi_gw.runtime.errands import Errands
from kiwi_gw.runtime.hooks import INTERNAL_ERROR
from kiwi_gw.runtime.meters import Meters
from kiwi_gw.runtime.offloads import Offloads

log = structlog.get_logger(__name__)


class Outlet(Protocol):
    """The sending half, as a connection sees it. It also serves subscriptions (`core.subscription`)."""

    clear: bool
    taken_at: float
    close_code: int | None

    @property
    def sent_bytes(self) -> int: ...

    @property
    def full(self) -> bool:
        """Something waits until the client takes more."""

    def unanswered(self) -> float | None:
        """Seconds since the client's machine last answered, if it was sent something that it has not
        answered yet; None if it was not, or where nobody knows."""

    def send(self, data: memoryview | bytes) -> int: ...

    def keep(self, tail: bytes) -> None: ...

    def wake(self, subscription: Subscription) -> None: ...

    def control(self, frame: bytes) -> None: ...

    def hang_up(self, code: int, reason: str) -> None: ...

    def cork(self) -> None: ...

    def uncork(self) -> None: ...


class World(Protocol):
    """What a connection needs of the gateway."""

    @property
    def meters(self) -> Meters: ...

    def now(self) -> float:
        """Monotonic seconds, on the clock that messages come by."""

    @property
    def refusing(self) -> bool:
        """Whether memory is so short that nobody new is let in."""

    def feed(self, source_id: str) -> Feed | None: ...

    def sources(self) -> Iterable[SourceInfo]: ...

    def subscribed(self, source_id: str) -> None: ...

    def account(self, who: Hashable) -> OwnAccount:
        """Give a connection of this client an account for the time that its queries take."""

    def account_left(self, who: Hashable, account: OwnAccount) -> None:
        """Take it back: the connection is gone that had it."""

    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None: ...

    def reauthenticate(self, identity: Identity) -> Identity | Refusal: ...

    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | Refusal | None: ...

    def authenticate_later(self, credential: Credential, done: Callable[[Identity | Refusal], None]) -> None:
        """Find out who it is, and call `done` once. Takes at most `auth_timeout_ms`."""

    @property
    def offloads(self) -> Offloads: ...

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` in so many seconds, whether the connection is still there or not."""

    def continue_later(self, seconds: float, then: Callable[[bool], None]) -> None:
        """Do as `leftovers.Leftovers.add`."""


class Place(Protocol):
    """Where a connection is counted among those of its identity and its address."""

    @property
    def client(self) -> Hashable:
        """As `clients.client_at` has it."""

    def identify(self, identity: Identity) -> Refusal | None:
        """It is this one from now on; a Refusal if that one has too many connections."""


_AGAIN_SECONDS = 0.25
_LOOKED_AT = 20  # batches

_BUSY = Refusal("busy", "the credentials before these are still being checked", retry=True)


@dataclass(slots=True)
class Signs:
    """What `keepalive` remembers of a client. Times in monotonic seconds.

    taken_at: when it last took something else than a ping. pinged_at: when the first ping was sent since it
    last gave a sign of life, and pinged_bytes: what had been sent by then. unanswered_at: since when its
    machine answers nothing, None if it answers, and answered_bytes: what had been sent when it last had.
    awaits_pong_of: when the ping was sent that is to be answered next, None if there is none. told_of_expiry:
    when the credentials expire (wall clock) of which it was last told that they do so soon.
    """

    taken_at: float
    pinged_at: float = 0.0
    pinged_bytes: int = 0
    unanswered_at: float | None = None
    answered_bytes: int = 0
    awaits_pong_of: float | None = None
    told_of_expiry: float | None = None


@dataclass(slots=True)
class _Opening:
    """A subscription that waits for its source. asked_at: when it was asked for. later: what its client is
    told behind the answer to that."""

    asked_at: float | None
    later: list[Notice] = field(default_factory=list)


class Connection:
    """See the top of this file. Implements `core.subscription.Owner`.

    heard_at: when the client last sent a byte (monotonic seconds); kept by whoever reads the socket.
    cut_off: ends the socket after a moment, whatever the client does. place: None where nobody counts. due:
    it is to be judged again before anything else.
    """

    def __init__(
        self,
        number: int,
        world: World,
        session: Session,
        outlet: Outlet,
        identity: Identity,
        dialect: str,
        remote: str,
        now: float,
        cut_off: Callable[[], None],
        place: Place | None = None,
    ) -> None:
        self.number = number
        self.identity = identity
        self.dialect = dialect
        self.remote = remote
        self.outlet = outlet
        self.opened_at = self.heard_at = now
        self.signs = Signs(now)
        self.subscriptions: dict[Hashable, Subscription] = {}
        self.delivered = 0
        self._cut_off = cut_off
        self._place = place
        self._world = world
        self._session = session
        self._depth = 0
        self._asked_at: float | None = None  # when the message came that is being carried out
        self._opening: dict[Hashable, _Opening] | None = (
            None  # made when a source is waited for: it seldom is
        )
        self._account: OwnAccount | None = None  # made for clients with queries
        self._errands: Errands | None = None  # made for clients with large queries
        self._asking = False  # who it is now, of a plugin
        self.due = False
        self.closed = False

    def start(self) -> None:
        """Tell the session what there is."""
        for source in self._world.sources():
            self._tell(SourceAppeared(source))

    def receive(self, message: str | bytes, now: float) -> None:
        """One message of the client. One that comes after the close frame is not looked at."""
        if self.due:
            self.judge_again()
        if self.outlet.close_code is not None:
            return
        self._asked_at = now
        try:
            self._carry_out(self._session.receive(message, now))
        finally:
            self._asked_at = None

    def ponged(self, now: float) -> None:
        """The client has answered a ping, or sent a pong that nobody had asked for."""
        sent_at, self.signs.awaits_pong_of = self.signs.awaits_pong_of, None
        if sent_at is not None:
            self._world.meters.pings.observe(now - sent_at)

    def source_appeared(self, source: SourceInfo) -> None:
        self._tell(SourceAppeared(source))

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        """Something happened to a subscription (`core.subscription.Owner`)."""
        if self.closed:
            return
        handle = subscription.handle
        if isinstance(notice, Opened):
            self.subscriptions.setdefault(handle, subscription)
            self._world.meters.source(subscription.feed.info.id).started[self.dialect] += 1
            opening = self._opened(handle)
            self._count("subscribe", "ok", opening.asked_at)
            self._tell(notice)
            for later in opening.later:
                self._tell(later)
            return
        if isinstance(notice, Ended):
            self._forget(handle, notice.reason)
        elif isinstance(notice, OpenFailed):
            self._count("subscribe", "refused", self._opened(handle).asked_at)
            self._forget(handle, CloseReason.FAILED)
        self._tell(notice)

    def hang_up(self, code: int, reason: str) -> None:
        """Close the connection with a close frame."""
        if self.outlet.close_code is None:
            self.outlet.hang_up(code, reason)
            self._drop_subscriptions()

    def abort(self, code: int, reason: str) -> None:
        """Close it without hope of an answer: the close frame may not arrive."""
        self.hang_up(code, reason)
        self._cut_off()

    def fail(self, error: BaseException) -> None:
        """Something of ours broke while it served this client: end it, and nobody else, with 1011 and an id
        that is in the log."""
        number = f"{self.number:x}-{time.time_ns() & 0xFFFFFF:06x}"
        log.error("connection failed", conn_id=self.number, err_id=number, exc_info=error)
        self.hang_up(1011, f"internal error {number}")

    def drain(self, reason: str, retry_after_ms: int) -> None:
        """The gateway goes: say when to come back, where the protocol can, then close."""
        try:
            hint = list(self._session.notice(Draining(retry_after_ms)))
            # 1012: service restart; only with the hint does it say more than 1001, going away.
            self._carry_out([*hint, Hangup(1012 if hint else 1001, reason)])
        except Exception as error:  # noqa: BLE001  see `_tell`
            self.fail(error)

    def judge_again(self) -> None:
        """After a reload, or when something else has changed by which clients are told apart."""
        self.due = False
        if self.outlet.close_code is not None:
            return
        answer = self._world.reauthenticate(self.identity)
        if isinstance(answer, Identity) and self._place is not None:
            answer = self._place.identify(answer) or answer
        if isinstance(answer, Refusal):
            self.dismiss(answer)
        else:
            self._become(answer)
            self.apply_rules()

    def dismiss(self, refusal: Refusal) -> None:
        """End it: its credentials are good no longer."""
        if refusal.code == INTERNAL_ERROR:
            self.hang_up(1011, refusal.code)
        elif refusal.retry:
            self.hang_up(4402, refusal.code)  # 44xx: come back with new ones
        else:
            self.hang_up(4503, "revoked")  # 45xx: do not

    def expiring(self, seconds: float) -> None:
        """The credentials expire so soon."""
        self._tell(CredentialsExpiring(round(seconds * 1000)))

    def apply_rules(self) -> None:
        """After the rules or the identity have changed: end the subscriptions that are no longer allowed;
        the others go on behind the interceptor that is theirs now, from their next event on."""
        for subscription in list(self.subscriptions.values()):
            feed = subscription.feed
            answer = self._world.authorize(self.identity, Action.SUBSCRIBE, feed.info)
            if answer is None and subscription.repeats:
                answer = self._world.authorize(self.identity, Action.REPLAY, feed.info)
            found = answer or self._world.intercept(self.identity, feed.info)
            if isinstance(found, Refusal):
                feed.withdraw(subscription, found.message)
                continue
            subscription.intercept(found, self._payer(subscription.group.wire.format))

    def end(self) -> None:
        """The client is gone: let go of everything it had."""
        self.closed = True
        self._drop_subscriptions()
        self._leave_account(self._who())

    # --- inside ----------------------------------------------------------------------------

    def _tell(self, notice: Notice) -> None:
        if self.outlet.close_code is None:
            try:
                self._carry_out(self._session.notice(notice))
            except Exception as error:  # noqa: BLE001  called by fan-out, sweeps and reloads: not their fault
                self.fail(error)

    def _carry_out(self, commands: Iterable[Command]) -> None:
        # Replies are collected, so that they go out together and before the events that they set free.
        self._depth += 1
        self.outlet.cork()
        try:
            for command in commands:
                if self.outlet.close_code is not None:
                    break  # nothing is begun for a client that is on its way out
                self._one(command)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.outlet.uncork()

    def _one(self, command: Command) -> None:
        match command:
            case Reply():
                if command.breach is not None:
                    self._world.meters.breached(self.dialect, command.breach)
                self.outlet.control(command.frame)
            case Grant():
                self._grant(command)
            case Open():
                self._open(command)
            case Cancel():
                self._cancel(command.handle)
            case Recast():
                self._recast(command)
            case Hangup():
                if command.breach is not None:
                    self._world.meters.breached(self.dialect, command.breach)
                self.hang_up(command.code, command.reason)
            case Authenticate():
                self._authenticate(command.credential)
            case Offload(handle, question):
                self._errands = self._errands or Errands(self._world.offloads, self._offloaded)
                self._errands.add(handle, question, self._asked_at)
            case Examine(handle):
                self._examine(handle)
            case Remind(seconds):
                self._world.later(seconds, self._remind)
            case Continue(seconds):
                self._world.continue_later(seconds, self._continue)

    def _open(self, command: Open) -> None:
        if self._world.refusing and not self.subscriptions:
            self._count("subscribe", "refused")
            self.hang_up(1013, "try_again_later")
            return
        try:
            subscription = self._subscribe(command)
        except SubscribeRefused as refused:
            self._count("subscribe", "refused")
            self._tell(OpenFailed(command.handle, refused.code, str(refused)))
            return
        self._granted(command.source_id, command.credits)
        if not subscription.closed:
            self.subscriptions[command.handle] = subscription
        if subscription.state is State.OPENING:
            self._opening = self._opening or {}
            self._opening[command.handle] = _Opening(self._asked_at)
        self._world.subscribed(command.source_id)

    def _subscribe(self, command: Open) -> Subscription:
        feed = self._world.feed(command.source_id)
        if feed is None:
            raise _unknown()
        item = self._wire(feed.info, command.wire)
        if is_past(command.start):
            refusal = self._world.authorize(self.identity, Action.REPLAY, feed.info)
            if refusal is not None:
                raise SubscribeRefused(refusal.code, refusal.message)
        try:
            until = feed.info.codec.load(command.until) if command.until is not None else None
        except ValueError as error:
            raise SubscribeRefused("positions", str(error)) from error
        request = Request(
            command.handle,
            item,
            command.mode,
            command.credits,
            command.limits,
            command.overflow,
            command.buffer_capacity,
            until,
            command.start,
            command.positions_every,
            self._payer(item.format),
        )
        return feed.subscribe(request, self.outlet, self)

    def _payer(self, form: WireFormat) -> Payer | None:
        """Say whose shares a wire format takes from, None if from nobody's."""
        if not form.chosen and form.steps is None:
            return None
        who = self._who()
        if self._account is None:
            self._account = self._world.account(who)
        return Payer(self._account, who, self.number)

    def _become(self, identity: Identity) -> None:
        """Be this one from now on. What it has still counts among the shares of the one before, until the
        rules are applied."""
        before = self._who()
        self.identity = identity
        if self._who() != before:
            self._leave_account(before)

    def _leave_account(self, who: Hashable) -> None:
        if self._account is not None:
            self._world.account_left(who, self._account)
            self._account = None

    def _who(self) -> Hashable:
        client = self._place.client if self._place is not None else None
        return who_pays(self.identity, client, self.number)

    def _wire(self, info: SourceInfo, make: Callable[[SourceInfo], WireFormat]) -> Wire:
        if self._world.authorize(self.identity, Action.SUBSCRIBE, info) is not None:
            raise _unknown()  # the same answer as for a source that does not exist: names cannot be guessed
        interceptor = self._world.intercept(self.identity, info)
        if isinstance(interceptor, Refusal):
            raise SubscribeRefused(interceptor.code, interceptor.message)
        if interceptor is not None:
            # Declared types tell of members that it may take out, and of none that it adds.
            info = replace(info, decode=replace(info.decode, fields=""), members="")
        return wire(make(info), interceptor)

    def _grant(self, command: Grant) -> None:
        subscription = self.subscriptions.get(command.handle)
        if subscription is None:
            return  # the session knows of its end already, or is about to be told
        self._count("request", "ok")
        self._granted(subscription.feed.info.id, command.n)
        notice = Granted(command.handle, command.n, subscription.grant(command.n))
        opening = self._opening.get(command.handle) if self._opening is not None else None
        if subscription.state is State.OPENING and opening is not None:
            opening.later.append(notice)
        else:
            self._tell(notice)

    def _recast(self, command: Recast) -> None:
        subscription = self.subscriptions.get(command.handle)
        if subscription is None:
            return
        try:
            item = self._wire(subscription.feed.info, command.wire)
        except SubscribeRefused as refused:
            subscription.feed.withdraw(subscription, str(refused))
            return
        try:
            payer = self._payer(item.format)
            subscription.recast(item, command.limits, payer, fewer=command.fewer)
        except SubscribeRefused as refused:
            if command.fewer:
                subscription.feed.withdraw(subscription, str(refused))
            else:
                self._tell(RecastRefused(command.handle, refused.code, str(refused)))

    def _offloaded(self, notice: Offloaded, asked_at: float | None) -> None:
        before, self._asked_at = self._asked_at, asked_at
        try:
            self._tell(notice)
        finally:
            self._asked_at = before

    def _cancel(self, handle: Hashable) -> None:
        if self._errands is not None and self._errands.drop(handle):
            self._count("unsubscribe", "ok")
            self._tell(Cancelled(handle))
            return
        subscription = self.subscriptions.get(handle)
        if subscription is not None:
            subscription.cancel()
            self._count("unsubscribe", "ok")
            self._forget(handle, CloseReason.UNSUBSCRIBED)
            self._tell(Cancelled(handle))

    def _examine(self, handle: Hashable) -> None:
        subscription = self.subscriptions.get(handle)
        if subscription is not None:
            feed, bare = subscription.feed, subscription.group.wire.interceptor is None
            newest = feed.window.latest(_LOOKED_AT) if bare else []
            batches = tuple(entry.batch for entry in newest if entry.base >= subscription.began)
            self._tell(Examined(handle, feed.info, subscription.matched, batches))

    def _remind(self) -> None:
        if self.outlet.full and not self.closed:  # what is said to one that does not read piles up
            self._world.later(_AGAIN_SECONDS, self._remind)
        elif not self.closed:
            self._tell(Reminded())

    def _continue(self, idle: bool) -> None:
        if self.outlet.full and not self.closed:
            self._world.later(_AGAIN_SECONDS, lambda: self._world.continue_later(0, self._continue))
        elif not self.closed:
            self._tell(Continued(idle))

    def _authenticate(self, credential: Credential) -> None:
        # One question at a time: each takes a task, and for up to `auth_timeout_ms` a thread.
        if self._asking:
            self._count("authenticate", "refused")
            self._tell(AuthenticationFailed(_BUSY))
            return
        self._asking = True
        self._count("authenticate", "ok")
        self._world.authenticate_later(credential, self._authenticated)

    def _authenticated(self, answer: Identity | Refusal) -> None:
        self._asking = False
        if self.closed:
            return
        if isinstance(answer, Identity) and self._place is not None:
            answer = self._place.identify(answer) or answer
        if isinstance(answer, Refusal):
            self._tell(AuthenticationFailed(answer))
        else:
            self._become(answer)
            self._tell(Authenticated(answer))
            self.apply_rules()

    def _count(self, command: str, result: str, asked_at: float | None = None) -> None:
        """A command was answered. asked_at: when it came, if not just now."""
        meters = self._world.meters
        meters.commands[self.dialect, command, result] += 1
        since = asked_at if asked_at is not None else self._asked_at
        if since is not None:
            meters.command_over(self.dialect, command, self._world.now() - since)

    def _granted(self, source_id: str, credit: int) -> None:
        if credit:
            self._world.meters.source(source_id).credits_granted += credit

    def _forget(self, handle: Hashable, reason: CloseReason) -> None:
        subscription = self.subscriptions.pop(handle, None)
        self._opened(handle)
        if subscription is not None:
            self.delivered += subscription.matched
            self._world.meters.subscription_over(self.dialect, subscription, reason)

    def _opened(self, handle: Hashable) -> _Opening:
        """What was noted of a subscription while it waited for its source: it does so no longer."""
        noted = self._opening.pop(handle, None) if self._opening is not None else None
        return noted or _Opening(None)

    def _drop_subscriptions(self) -> None:
        if self._errands is not None:
            self._errands.clear()
        for handle, subscription in list(self.subscriptions.items()):
            subscription.cancel(Input.DISCONNECT)
            self._forget(handle, CloseReason.DISCONNECTED)

    def __repr__(self) -> str:
        return f"<Connection {self.number} {self.dialect} {self.remote}>"


def _unknown() -> SubscribeRefused:
    return SubscribeRefused("unknown_source", "no source has this id")


def describe(connection: Connection, now: float) -> dict[str, Any]:
    """What the log says of a connection that has ended."""
    return {
        "conn_id": connection.number,
        "dialect": connection.dialect,
        "remote": connection.remote,
        "identity": connection.identity.name,
        "duration": round(now - connection.opened_at, 3),
        "code": connection.outlet.close_code,
        "bytes": connection.outlet.sent_bytes,
        "delivered": connection.delivered,
    }
