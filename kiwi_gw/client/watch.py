"""Watching one source of a gateway for as long as it takes: subscribes, asks, reconnects."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import trio
from msgspec import UNSET, UnsetType

from kiwi_gw.backoff import Backoff
from kiwi_gw.client import messages
from kiwi_gw.client.address import Address
from kiwi_gw.client.credits import Credits
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.client.reconnect_rules import GiveUp, Retry
from kiwi_gw.client.resume_point import ResumePoint
from kiwi_gw.client.transport import ClientConnection, ConnectionLost, Dial, SilenceTimeouts, connected
from kiwi_gw.dialects.kiwi import messages as kiwi
from kiwi_gw.errors import KiwiError
from kiwi_gw.model import Mode, OverflowPolicy
from kiwi_gw.struct_errors import given

CLOSE_NOTICE_SECONDS: Final = 5.0
"""How long to wait until the server closes a subscription whose REQUEST was refused."""

ANSWER_SECONDS: Final = 120.0
"""How long SUBSCRIBE may take; a gateway waits for a source that is starting, a minute if it is Spark's.
Pings show meanwhile that the server is there."""

STEADY_SECONDS: Final = 1.0
"""A subscription that lived this long was a good one: the next wait is a short one again. (Not any that was
opened: a gateway that dies of it would be asked again and again without a pause.)"""

POSITIONS_EVERY_MS: Final = 1000
"""How often the gateway is asked to say where the subscription is, for events that do not say it."""


class WatchEnded(KiwiError):  # noqa: N818  (it states what happened)
    """Report that watching ended, and that trying again would not help. The message is for people."""


class Refused(WatchEnded):
    """Report that the gateway has refused to open the subscription."""


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """Describe what to watch. mode: `push` or `pull`. rate: at most so many events per second (pull only).
    limit: how many events in all. window: how many a pull subscription without a rate asks for at once. wait:
    also try again when the first connection cannot be made. start: where to begin, as the protocol's `from`;
    None: with the next event. until_end: end where the source's end is when it subscribes, anew after a
    reconnect. resume: whether to go on behind the last event after a reconnect, or with what comes then.
    where, select: a query in SQL: which events, and what of them; None: all. overflow: what becomes of the
    subscription when it is more than `buffer_capacity` events behind; None: what the gateway does."""

    source_id: str
    mode: str = "push"
    rate: float | None = None
    limit: int | None = None
    window: int = 1000
    wait: bool = False
    start: object = None
    until_end: bool = False
    resume: bool = True
    where: str | None = None
    select: str | None = None
    overflow: str | None = None
    buffer_capacity: int | None = None
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    patience: SilenceTimeouts = field(default_factory=SilenceTimeouts)


@dataclass(frozen=True, slots=True)
class SubscriptionOpened:
    """Say that the subscription is open; also after every reconnect.

    resumed: the positions that it goes on from after one; None: it does not.
    repeats: how many events before the reconnect were behind those, and may come again.
    """

    address: Address
    data: kiwi.Subscribed
    resumed: messages.Data | None = None
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class CreditsGranted:
    """Say that the gateway has granted what was asked for. balance: of credits, with it."""

    balance: int


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """Say that the connection or the subscription is gone; the next attempt follows after `seconds`."""

    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class NotResumed:
    """Say that the gateway cannot go on where the last connection was; it begins with what comes now."""

    why: str


Happening = Event | Noticed | SubscriptionOpened | CreditsGranted | NotResumed | Reconnecting

Take = Callable[[Happening], Awaitable[None]]
"""Takes what happens, in order. Nothing more is read until it returns, so that a slow one slows the server
down instead of filling memory. It must not raise."""

_FINISHED = frozenset({"", "ended", "limit", "until"})  # empty: a server that gives no reason codes
_RESUBSCRIBE = frozenset({"altered", "changed", "overflow"})


async def watch(
    address: Address, plan: WatchPlan, take: Take, *, dial: Dial, backoff: Backoff | None = None
) -> None:
    """Return when `plan.limit` events were taken or the source has ended; else go on for ever.

    Raises WatchEnded where the server refuses in a way that trying again would not change, or where the first
    connection cannot be made and `plan.wait` is false.
    """
    await _Watch(address, plan, take, dial, backoff or Backoff(jitter=1.0)).run()


class _Watch:
    def __init__(self, address: Address, plan: WatchPlan, take: Take, dial: Dial, backoff: Backoff) -> None:
        self._address = address
        self._plan = plan
        self._take = take
        self._dial = dial
        self._backoff = backoff
        self._point = ResumePoint()
        self._begun = False
        self._left = plan.limit
        self._done = False
        self._reached = plan.wait
        self._subscribed_at: float | None = None
        self._retry_after: float | None = None
        self._give_up_at = math.inf
        self._request_error = ""

    async def run(self) -> None:
        while not self._done:
            self._subscribed_at = self._retry_after = None
            self._give_up_at = math.inf
            try:
                async with connected(
                    self._address, dial=self._dial, headers=self._plan.headers, patience=self._plan.patience
                ) as connection:
                    self._reached = True
                    await self._converse(connection)
            except ConnectionLost as lost:
                if isinstance(lost.ending, GiveUp):
                    raise WatchEnded(lost.ending.why) from None
                await self._pause(lost.ending)

    async def _pause(self, ending: Retry) -> None:
        if not self._reached and ending.after == 0:
            raise WatchEnded(f"{ending.why} (--wait tries again until it is there)")
        if self._subscribed_at is not None and trio.current_time() - self._subscribed_at >= STEADY_SECONDS:
            self._backoff.reset()
        # A draining server has spread its clients over time already: its word, and nothing on top of it.
        seconds = self._backoff.next(ending.after) if self._retry_after is None else self._retry_after
        await self._take(Reconnecting(ending.why, seconds))
        await trio.sleep(seconds)

    async def _converse(self, connection: ClientConnection) -> None:
        """Serve one subscription on one connection until all is done. Raises ConnectionLost or WatchEnded."""
        plan = self._plan
        opened = await self._subscribe(connection)
        self._begun = True
        self._subscribed_at = trio.current_time()
        self._point.update(opened.data.positions)
        await self._take(opened)
        if plan.mode != "pull":
            await self._read(connection, None)
            return
        credit = Credits(plan.window, plan.rate, self._left)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pace, connection, credit)
            await self._read(connection, credit)
            nursery.cancel_scope.cancel()

    async def _subscribe(self, connection: ClientConnection) -> SubscriptionOpened:
        """Subscribe: the first time from the start of the plan. Later from where the last connection was; if
        that is not known, from now on."""
        plan = self._plan
        # A snapshot that was cut short is worth nothing: it is taken again.
        again = self._begun and not (plan.resume and plan.start == "snapshot")
        positions = self._point.positions if again and plan.resume else None
        if positions is not None:
            repeats = self._point.since
            start = kiwi.StartPoint(positions=positions)
            answer = await self._ask(connection, start, on_missing="earliest")
            if isinstance(answer, kiwi.SubscribeOk):
                return SubscriptionOpened(self._address, answer.data, positions, repeats)
            await self._take(NotResumed(answer.data.error))
            self._point.forget()
        answer = await self._ask(connection, None if again else plan.start)
        if isinstance(answer, kiwi.SubscribeError):
            raise Refused(f"{self._plan.source_id}: {answer.data.error}")
        return SubscriptionOpened(self._address, answer.data)

    async def _ask(
        self,
        connection: ClientConnection,
        start: object,
        *,
        on_missing: Literal["earliest"] | UnsetType = UNSET,
    ) -> kiwi.SubscribeOk | kiwi.SubscribeError:
        plan = self._plan
        command = kiwi.Subscribe(
            plan.source_id,
            Mode(plan.mode),
            UNSET if start is None else cast(Any, start),  # the gateway says what is wrong with it
            on_missing,
            "end" if plan.until_end else UNSET,
            UNSET if plan.where is None else plan.where,
            UNSET if plan.select is None else plan.select,
            overflow=UNSET if plan.overflow is None else OverflowPolicy(plan.overflow),
            buffer_capacity=UNSET if plan.buffer_capacity is None else plan.buffer_capacity,
            positions_every_ms=POSITIONS_EVERY_MS if plan.resume else UNSET,
        )
        await connection.send(messages.encode(command))
        with trio.move_on_after(ANSWER_SECONDS) as deadline:
            answer = await self._answer(connection)
        if deadline.cancelled_caught:
            raise ConnectionLost(Retry(f"no answer to SUBSCRIBE in {ANSWER_SECONDS:g} s"))
        return answer

    async def _answer(self, connection: ClientConnection) -> kiwi.SubscribeOk | kiwi.SubscribeError:
        while True:
            message = messages.parse(await connection.receive())
            if isinstance(message, kiwi.SubscribeOk | kiwi.SubscribeError):
                return message
            await self._handle(message, None, connection)

    async def _read(self, connection: ClientConnection, credit: Credits | None) -> None:
        while not self._done:
            with trio.CancelScope(deadline=self._give_up_at) as scope:
                frame = await connection.receive()
            if scope.cancelled_caught:
                raise ConnectionLost(Retry(f"REQUEST failed: {self._request_error}"))
            await self._handle(messages.parse(frame), credit, connection)

    async def _pace(self, connection: ClientConnection, credit: Credits) -> None:
        due = trio.current_time()
        while True:
            await self._request(connection, credit.tick())
            if credit.interval is None:
                return
            # A tick that came late is not made up for: the rate is a promise of at most.
            due = max(due + credit.interval, trio.current_time())
            await trio.sleep_until(due)

    async def _request(self, connection: ClientConnection, n: int) -> None:
        if n:
            await connection.send(messages.encode(kiwi.Request(self._plan.source_id, n)))

    async def _handle(
        self, message: messages.Message, credit: Credits | None, connection: ClientConnection
    ) -> None:
        match message:
            case Event():
                await self._take(message)
                self._point.received(message.data)
                if self._left is not None:
                    self._left -= 1
                    self._done = self._left <= 0
                if credit is not None and not self._done:
                    await self._request(connection, credit.received())
            case Noticed(data=kiwi.SubscriptionClosed() as closed):
                self._point.update(closed.positions)
                await self._take(message)
                self._closed(closed)
            case Noticed(data=kiwi.Draining(after)):
                self._retry_after = after / 1000 or None
                await self._take(message)
            case Noticed(data=kiwi.Lag() as lag):
                self._point.update(lag.positions)
                await self._take(message)
            case Noticed(data=kiwi.CurrentPositions(positions=positions)):
                self._point.update(positions)
            case Noticed():
                await self._take(message)
            case kiwi.RequestError(data):
                # Most likely the subscription has just ended, and the server is about to say so.
                self._request_error = data.error
                self._give_up_at = min(self._give_up_at, trio.current_time() + CLOSE_NOTICE_SECONDS)
            case kiwi.RequestOk(data=kiwi.Granted(credits=int(balance))):
                await self._take(CreditsGranted(balance))
            case _:  # messages of a newer server
                pass

    def _closed(self, closed: kiwi.SubscriptionClosed) -> None:
        reason = given(closed.reason) or ""
        if reason in _FINISHED:
            self._done = True
        elif reason in _RESUBSCRIBE:
            raise ConnectionLost(Retry(f"subscription closed ({reason})"))
        else:
            raise WatchEnded(f"{self._plan.source_id}: subscription closed: {closed.message}")
