"""How one source of the gateway reads another: a subscription whose owner and outlet is a task of a plugin.

It is an ordinary subscription in pull mode, so that credit, the window, history and losses are those of the
core. It is never sent to directly: what arrives wakes the reader, which takes what its credit allows.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import trio

from kiwi_gw.api import EventReader, Portion
from kiwi_gw.core.encoding import wire
from kiwi_gw.core.feed import Feed, Request
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.notices import Ended, Lagged, Notice, Opened, OpenFailed
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import ReadingOver, SubscribeRefused
from kiwi_gw.model import (
    CloseReason,
    Gap,
    Mode,
    OverflowPolicy,
    Positions,
    SourceInfo,
    Start,
    StartAt,
    WireFormat,
)
from kiwi_gw.runtime.meters import Meters

PORTION_BYTES: Final = 1024 * 1024
"""What is given at once, at most; an event that is larger goes alone."""

_OFFER_EVENTS: Final = 1_000
"""So many are encoded before the clock is looked at."""

_DIALECT: Final = "plugin"
"""What stands for the protocol in the metrics."""


class World(Protocol):
    """What readers need of the gateway."""

    @property
    def meters(self) -> Meters: ...

    def feed(self, source_id: str) -> Feed | None: ...

    def subscribed(self, source_id: str) -> None: ...


class Readers:
    """Opens readers of the sources of one gateway. `open` is what plugins get (`api.ReadSource`)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._epochs: WeakKeyDictionary[Feed, str] = WeakKeyDictionary()

    def open(
        self,
        source_id: str,
        form: Callable[[SourceInfo], WireFormat],
        start: Start = StartAt.LATEST,
        until: object = None,
    ) -> AbstractAsyncContextManager[EventReader]:
        """See `api.ReadSource`."""
        return self._open(source_id, form, start, until)

    @asynccontextmanager
    async def _open(
        self, source_id: str, form: Callable[[SourceInfo], WireFormat], start: Start, until: object
    ) -> AsyncIterator[EventReader]:
        feed = self._world.feed(source_id)
        if feed is None:
            raise SubscribeRefused("unknown_source", "no source has this id")
        try:
            end = None if until is None else feed.info.codec.load(until)
        except ValueError as error:
            raise SubscribeRefused("positions", str(error)) from error
        request = Request(
            handle=self,
            wire=wire(form(feed.info), None),
            mode=Mode.PULL,
            credits=0,
            limits={},
            overflow=_policy(feed),
            until=end,
            start=start,
        )
        reader = _Reader(feed, self._epochs.setdefault(feed, secrets.token_hex(8)))
        subscription = feed.subscribe(request, reader, reader)
        reader.subscription = subscription
        meters = self._world.meters
        try:
            self._world.subscribed(source_id)
            await reader.opened()
            meters.source(source_id).started[_DIALECT] += 1
            yield reader
        finally:
            subscription.cancel()
            meters.source(source_id).credits_granted += reader.granted
            meters.subscription_over(_DIALECT, subscription, reader.reason)


def _policy(feed: Feed) -> OverflowPolicy | None:
    """What loses least; None is the source's own. Only where the operator has chosen it is a source held."""
    for policy in (OverflowPolicy.REPLAY, OverflowPolicy.DROP_OLDEST):
        if feed.limits.overflow is not OverflowPolicy.BLOCK and policy in feed.policies:
            return policy
    return None


class _Reader:
    """Implements `api.EventReader`, and of the core `Outlet` and `Owner`.

    clear: never, for what is sent directly would be taken before it is asked for.
    """

    subscription: Subscription

    def __init__(self, feed: Feed, epoch: str) -> None:
        self.clear = False
        self.granted = 0
        self._feed = feed
        self._epoch = epoch
        self._woken = trio.Event()
        self._loss: Loss | None = None
        self._open = False
        self._refused: OpenFailed | None = None
        self._over: Ended | None = None

    # --- for the plugin --------------------------------------------------------------------

    @property
    def info(self) -> SourceInfo:
        return self._feed.info

    @property
    def epoch(self) -> str:
        return self._epoch

    @property
    def positions(self) -> Positions:
        if self._over is not None:  # a closed subscription has let go of its place
            return self.info.codec.load(dict(self._over.positions))
        return dict(self.subscription.positions)

    @property
    def end(self) -> Positions:
        return dict(self._feed.positions)

    async def read(self, events: int) -> Portion:
        await trio.lowlevel.checkpoint()  # from here on to the end nothing is read that is not returned
        while True:
            self._woken = trio.Event()
            portion = self._take(events)
            if portion is not None:
                return portion
            if self._over is not None:
                over = self._over
                raise ReadingOver(over.reason.value, over.message, over.dropped)
            await self._woken.wait()

    # --- for `Readers` ---------------------------------------------------------------------

    @property
    def reason(self) -> CloseReason:
        """Why it ended."""
        return CloseReason.UNSUBSCRIBED if self._over is None else self._over.reason

    async def opened(self) -> None:
        """Until the source has said where it begins. Raises SubscribeRefused."""
        while not self._open:
            if self._refused is not None:
                raise SubscribeRefused(self._refused.code, self._refused.message)
            self._woken = trio.Event()
            await self._woken.wait()

    # --- for the core ----------------------------------------------------------------------

    def send(self, data: memoryview | bytes) -> int:
        return 0

    def keep(self, tail: bytes) -> None:
        raise AssertionError("it is never sent a part of anything")

    def wake(self, subscription: Subscription) -> None:
        self._woken.set()

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        match notice:
            case Opened():
                self._open = True
            case OpenFailed():
                self._refused = notice
            case Ended():
                self._over = notice
            case Lagged() if notice.dropped != 0:  # else it only says how far behind it is
                self._loss = self._loss or Loss()
                self._loss.add_gap(Gap(notice.ranges, notice.dropped))
        self._woken.set()

    def __str__(self) -> str:
        return f"a reader of {self.info.id}"

    # --- inside ----------------------------------------------------------------------------

    def _take(self, events: int) -> Portion | None:
        """What may be read now: at most one loss, before the first event."""
        subscription = self.subscription
        if not subscription.closed and subscription.credits < events:
            more = events - subscription.credits
            self.granted += more
            subscription.grant(more)
        parts: list[memoryview | bytes] = []
        size = count = 0
        feed = self._feed
        until = feed.now + feed.limits.slice_seconds  # then others are to have their turn
        while count < events and size < PORTION_BYTES and (not count or feed.now < until):
            if subscription.lag_due:
                if parts:
                    break
                self.notify(subscription, subscription.take_lag(feed.now))
            offer = subscription.offer(PORTION_BYTES - size, min(events - count, _OFFER_EVENTS))
            if offer is None:
                if subscription.lag_due:
                    continue
                break
            parts += offer.views
            size += offer.size
            count += offer.events
            subscription.settle(offer, offer.size)
        loss, self._loss = self._loss, None
        if not count and loss is None:
            return None
        lost = None if loss is None else Gap(loss.ranges, None if loss.unknown else loss.dropped)
        return Portion(b"".join(parts), count, self.positions, lost)
