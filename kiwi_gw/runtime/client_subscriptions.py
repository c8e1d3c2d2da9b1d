"""The subscriptions of one connection, by the handles that its session has given them.

An operation returns what the session is to know; it tells the session nothing itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import AddCredit, Open, Reconfigure
from kiwi_gw.core.frame_writer import Owner
from kiwi_gw.core.hub_limits import SubscriptionRequest
from kiwi_gw.core.notices import (
    CreditAdded,
    Ended,
    Inspected,
    Notice,
    Opened,
    OpenFailed,
    ReconfigureRefused,
)
from kiwi_gw.core.states import SubscriptionInput, SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import CloseReason, Refusal, SourceInfo
from kiwi_gw.runtime.client_access import ClientAccess, unknown_source
from kiwi_gw.runtime.ports import ConnectionWriter, GatewayContext

_EXAMINED_BATCHES = 20


@dataclass(slots=True)
class Waited:
    """What is noted of a subscription while it waits for its source.

    asked_at: when it was asked for. later: what its client is to know behind the answer to that."""

    asked_at: float | None = None
    later: list[Notice] = field(default_factory=list)


class ClientSubscriptions:
    """by_handle: those that run or wait for their source. delivered: events, of those that are over."""

    __slots__ = ("_access", "_dialect", "_waiting", "_world", "by_handle", "delivered")

    def __init__(self, world: GatewayContext, access: ClientAccess, dialect: str) -> None:
        self.by_handle: dict[Hashable, Subscription] = {}
        self.delivered = 0
        self._world = world
        self._access = access
        self._dialect = dialect
        self._waiting: dict[Hashable, Waited] | None = None  # a source is seldom waited for

    def open(
        self, command: Open, writer: ConnectionWriter, owner: Owner[Subscription], asked_at: float | None
    ) -> None:
        """Subscribe. owner: is notified of all that becomes of it. Raises SubscribeRefused."""
        self._access.check_logged_in()
        hub = self._world.hub(command.source_id)
        if hub is None:
            raise unknown_source()
        subscription = hub.subscribe(self._request(command, hub.info), writer, owner)
        self._count_credit(command.source_id, command.credits)
        if not subscription.closed:
            self.by_handle[command.handle] = subscription
        if subscription.state is SubscriptionState.OPENING:
            self._waiting = self._waiting or {}
            self._waiting[command.handle] = Waited(asked_at)
        self._world.subscribed(command.source_id)

    def happened(self, subscription: Subscription, notice: Notice) -> Waited:
        """Note what the core says of one. Returns what was noted while it waited for its source."""
        handle = subscription.handle
        waited = Waited()
        if isinstance(notice, Opened):
            self.by_handle.setdefault(handle, subscription)
            self._world.meters.source(subscription.hub.info.id).started[self._dialect] += 1
            waited = self._no_longer_waits(handle)
        elif isinstance(notice, Ended):
            self._forget(handle, notice.reason)
        elif isinstance(notice, OpenFailed):
            waited = Waited(self._no_longer_waits(handle).asked_at)
            self._forget(handle, CloseReason.FAILED)
        return waited

    def add_credit(self, command: AddCredit) -> CreditAdded | None:
        """Give credit to one that is there. None: its session is to know later, or knows of its end."""
        subscription = self.by_handle[command.handle]
        self._count_credit(subscription.hub.info.id, command.n)
        notice = CreditAdded(command.handle, command.n, subscription.add_credit(command.n))
        waited = self._waiting.get(command.handle) if self._waiting is not None else None
        if subscription.state is SubscriptionState.OPENING and waited is not None:
            waited.later.append(notice)
            return None
        return notice

    def reconfigure(self, command: Reconfigure) -> ReconfigureRefused | None:
        """Go on with another wire format; end where the rules or the client's shares do not allow that."""
        subscription = self.by_handle.get(command.handle)
        if subscription is None:
            return None
        hub = subscription.hub
        try:
            item = self._access.wire(hub.info, command.wire)
        except SubscribeRefused as refused:
            hub.withdraw(subscription, str(refused))
            return None
        try:
            payer = self._access.payer(item)
            hub.reconfigure(subscription, item, command.limits, payer, fewer=command.fewer)
        except SubscribeRefused as refused:
            if not command.fewer:
                return ReconfigureRefused(command.handle, refused.code, str(refused))
            hub.withdraw(subscription, str(refused))
        return None

    def cancel(self, handle: Hashable) -> bool:
        """Unsubscribe. Returns whether it was there."""
        subscription = self.by_handle.get(handle)
        if subscription is None:
            return False
        subscription.cancel()
        self._forget(handle, CloseReason.UNSUBSCRIBED)
        return True

    def examine(self, handle: Hashable) -> Inspected | None:
        """Look at how one does, and at the newest events that its client has been let see."""
        subscription = self.by_handle.get(handle)
        if subscription is None:
            return None
        hub, bare = subscription.hub, not subscription.group.wire.before
        newest = hub.window.latest(_EXAMINED_BATCHES) if bare else []
        batches = tuple(entry.batch for entry in newest if entry.base >= subscription.began)
        return Inspected(handle, hub.info, subscription.delivery.matched, batches)

    def apply_rules(self) -> None:
        """End those that are no longer allowed; the others go on behind the transforms that are theirs now,
        from their next event on."""
        for subscription in list(self.by_handle.values()):
            hub = subscription.hub
            found = self._access.transforms(hub.info, past=subscription.repeats)
            if isinstance(found, Refusal):
                hub.withdraw(subscription, found.message)
                continue
            hub.transform(subscription, found, self._access.payer(subscription.group.wire))

    def drop(self) -> None:
        """End all: their client goes."""
        for handle, subscription in list(self.by_handle.items()):
            subscription.cancel(SubscriptionInput.DISCONNECT)
            self._forget(handle, CloseReason.DISCONNECTED)

    # --- inside ----------------------------------------------------------------------------

    def _request(self, command: Open, info: SourceInfo) -> SubscriptionRequest:
        item = self._access.wire(info, command.wire)
        self._access.check_start(info, command.start)
        try:
            until = info.codec.load(command.until) if command.until is not None else None
        except ValueError as error:
            raise SubscribeRefused(RefusalCode.POSITIONS, str(error)) from error
        return SubscriptionRequest(
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
            self._access.payer(item),
        )

    def _count_credit(self, source_id: str, credit: int) -> None:
        if credit:
            self._world.meters.source(source_id).credits_granted += credit

    def _forget(self, handle: Hashable, reason: CloseReason) -> None:
        subscription = self.by_handle.pop(handle, None)
        self._no_longer_waits(handle)
        if subscription is not None:
            self.delivered += subscription.delivery.matched
            self._world.meters.subscription_over(self._dialect, subscription, reason)

    def _no_longer_waits(self, handle: Hashable) -> Waited:
        noted = self._waiting.pop(handle, None) if self._waiting is not None else None
        return noted or Waited()
