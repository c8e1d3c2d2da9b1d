"""Who the client of a connection is, what it may read, what it has subscribed to, and whose shares of the
gateway's time that uses.

Subscriptions go by the handles that the session has given them. An operation returns what the session is to
know; it tells the session nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.accounts import ClientAccount, Payer
from kiwi_gw.core.commands import AddCredit, Open, OpenQuery, Reconfigure
from kiwi_gw.core.delivery import MAX_CREDIT
from kiwi_gw.core.encoding import KeyedFormat, keyed_format
from kiwi_gw.core.frame_writer import Owner
from kiwi_gw.core.hub_interface import Hub
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
from kiwi_gw.model import (
    Action,
    CloseReason,
    Committed,
    EngineQuery,
    Identity,
    Refusal,
    SourceInfo,
    StartAt,
    WireFormat,
)
from kiwi_gw.runtime.client_identity import who_pays
from kiwi_gw.runtime.ports import AdmissionSlot, ConnectionWriter, GatewayContext
from kiwi_gw.runtime.refusal_log import source_refused
from kiwi_gw.runtime.source_rights import (
    NO_SOURCE,
    refusal_of,
    refusal_of_past,
    refusal_of_tables,
    unknown_source,
)

_EXAMINED_BATCHES = 20


@dataclass(slots=True)
class Waited:
    """What is noted of a subscription while it waits for its source.

    asked_at: when it was asked for. later: what its client is to know behind the answer to that."""

    asked_at: float | None = None
    later: list[Notice] = field(default_factory=list)


class ClientAccess:
    """identity: who it is for now. number, dialect: of its connection. slot: None where it is not counted.
    login_seconds: it has shown no credentials yet, and has this long to log in; None: it has.

    subscriptions: those that run or wait for their source. delivered: events, of those that are over.
    """

    __slots__ = (
        "_account",
        "_context",
        "_dialect",
        "_number",
        "_slot",
        "_waiting",
        "delivered",
        "identity",
        "login_seconds",
        "subscriptions",
    )

    def __init__(
        self,
        identity: Identity,
        number: int,
        dialect: str,
        context: GatewayContext,
        slot: AdmissionSlot | None,
        login_seconds: float | None = None,
    ) -> None:
        self.identity = _to_keep(identity)
        self.login_seconds = login_seconds
        self.subscriptions: dict[Hashable, Subscription] = {}
        self.delivered = 0
        self._number = number
        self._dialect = dialect
        self._context = context
        self._slot = slot
        self._account: ClientAccount | None = None  # made for clients with queries
        self._waiting: dict[Hashable, Waited] | None = None  # a source is seldom waited for

    # --- who it is -------------------------------------------------------------------------

    @property
    def who(self) -> Hashable:
        """Whose shares it uses (`client_identity.who_pays`)."""
        client = self._slot.client if self._slot is not None else None
        return who_pays(self.identity, client, self._number)

    def identify(self, answer: Identity | Refusal) -> Identity | Refusal:
        """Be this one from now on; or say why not, and stay. What it has still counts among the shares of the
        one before, until the rules are applied."""
        if isinstance(answer, Identity) and self._slot is not None:
            answer = self._slot.identify(answer) or answer
        if isinstance(answer, Identity):
            before, self.login_seconds = self.who, None
            self.identity = _to_keep(answer)
            if self.who != before:
                self._leave_account(before)
        return answer

    def leave(self) -> None:
        """Give back what its queries have saved or owe. Nothing happens the second time."""
        self._leave_account(self.who)

    def payer(self, keyed: KeyedFormat) -> Payer | None:
        """Say whose shares the making of these fragments takes from, None if from no client's."""
        if not keyed.chosen and not keyed.takes_turns:
            return None
        who = self.who
        if self._account is None:
            self._account = self._context.account(who)
        return Payer(self._account, who, self._number)

    # --- what it reads ---------------------------------------------------------------------

    def open(
        self,
        command: Open | OpenQuery,
        writer: ConnectionWriter,
        owner: Owner[Subscription],
        asked_at: float | None,
    ) -> None:
        """Subscribe. owner: is notified of all that becomes of it. Raises SubscribeRefused."""
        if self.login_seconds is not None:
            raise SubscribeRefused(RefusalCode.NOT_LOGGED_IN, "log in first")
        if isinstance(command, OpenQuery):
            subscription = self._open_query(command, writer, owner)
        else:
            subscription = self._open(command, writer, owner)
        self._count_credit(subscription.hub.info.id, command.credits)
        if not subscription.closed:
            self.subscriptions[command.handle] = subscription
        if subscription.state is SubscriptionState.OPENING:
            self._waiting = self._waiting or {}
            self._waiting[command.handle] = Waited(asked_at)

    def refused(self, action: Action, source_id: str) -> Refusal | None:
        """Say why it may not publish, or commit. Who may not even subscribe does not learn what exists."""
        if self.login_seconds is not None:
            return Refusal(RefusalCode.NOT_LOGGED_IN, "log in first")
        hub, hooks = self._context.hub(source_id), self._context.hooks
        if hub is None:
            return NO_SOURCE
        info = hub.info
        refusal = refusal_of(hooks, self.identity, action, info)
        if refusal is not None and hooks.authorize(self.identity, Action.SUBSCRIBE, info) is not None:
            return NO_SOURCE
        return refusal

    def happened(self, subscription: Subscription, notice: Notice) -> Waited:
        """Note what the core says of one. Returns what was noted while it waited for its source."""
        handle = subscription.handle
        waited = Waited()
        if isinstance(notice, Opened):
            self.subscriptions.setdefault(handle, subscription)
            self._context.meters.source(subscription.hub.info.id).started[self._dialect] += 1
            waited = self._no_longer_waits(handle)
        elif isinstance(notice, Ended):
            self._forget(handle, notice.reason)
        elif isinstance(notice, OpenFailed):
            waited = Waited(self._no_longer_waits(handle).asked_at)
            self._forget(handle, CloseReason.FAILED)
        return waited

    def add_credit(self, command: AddCredit) -> CreditAdded | None:
        """Give credit to one that is there. None: its session is to know later, or knows of its end."""
        subscription = self.subscriptions[command.handle]
        self._count_credit(subscription.hub.info.id, command.n)
        notice = CreditAdded(command.handle, command.n, subscription.add_credit(command.n))
        waited = self._waiting.get(command.handle) if self._waiting is not None else None
        if subscription.state is SubscriptionState.OPENING and waited is not None:
            waited.later.append(notice)
            return None
        return notice

    def reconfigure(self, command: Reconfigure) -> ReconfigureRefused | None:
        """Go on with another wire format; end where the rules or the client's shares do not allow that."""
        subscription = self.subscriptions.get(command.handle)
        if subscription is None:
            return None
        hub = subscription.hub
        try:
            keyed = self._wire(hub, command.wire)
        except SubscribeRefused as refused:
            hub.withdraw(subscription, str(refused))
            return None
        try:
            hub.reconfigure(subscription, keyed, command.limits, self.payer(keyed), fewer=command.fewer)
        except SubscribeRefused as refused:
            if not command.fewer:
                return ReconfigureRefused(command.handle, refused.code, str(refused))
            hub.withdraw(subscription, str(refused))
        return None

    def cancel(self, handle: Hashable) -> bool:
        """Unsubscribe. Returns whether it was there."""
        subscription = self.subscriptions.get(handle)
        if subscription is None:
            return False
        subscription.cancel()
        self._forget(handle, CloseReason.UNSUBSCRIBED)
        return True

    def examine(self, handle: Hashable) -> Inspected | None:
        """Look at how one does, and at the newest events that its client has been let see."""
        subscription = self.subscriptions.get(handle)
        if subscription is None:
            return None
        hub, bare = subscription.hub, not subscription.group.wire.before
        newest = hub.window.latest(_EXAMINED_BATCHES) if bare else []
        batches = tuple(entry.batch for entry in newest if entry.base >= subscription.began)
        return Inspected(handle, hub.info, subscription.delivery.matched, batches)

    def apply_rules(self) -> None:
        """End those that are no longer allowed; the others go on behind the transforms that are theirs now,
        from their next event on."""
        hooks = self._context.hooks
        for subscription in list(self.subscriptions.values()):
            hub = subscription.hub
            if (query := self._context.engine_queries.of(hub)) is not None:
                if (refusal := self._refusal_of_query(query, opening=False)) is not None:
                    hub.withdraw(subscription, refusal.message)
                continue
            refusal = hooks.authorize(self.identity, Action.SUBSCRIBE, hub.info)
            if refusal is None and subscription.repeats:
                refusal = refusal_of_past(hooks, self.identity, hub.info, resumes=subscription.resumes)
            found = refusal or hooks.transforms(self.identity, hub.info)
            if isinstance(found, Refusal):
                hub.withdraw(subscription, found.message)
            else:
                hub.transform(subscription, found, self.payer(subscription.group.wire))

    def drop(self) -> None:
        """End all subscriptions: the client goes."""
        for handle, subscription in list(self.subscriptions.items()):
            subscription.cancel(SubscriptionInput.DISCONNECT)
            self._forget(handle, CloseReason.DISCONNECTED)

    # --- inside ----------------------------------------------------------------------------

    def _open(self, command: Open, writer: ConnectionWriter, owner: Owner[Subscription]) -> Subscription:
        hub = self._context.hub(command.source_id)
        if hub is None:
            raise unknown_source()
        keyed = self._wire(hub, command.wire)
        if command.start is not StartAt.LATEST:  # a snapshot repeats what was sent, too
            resumes = isinstance(command.start, Committed)
            refusal = refusal_of_past(self._context.hooks, self.identity, hub.info, resumes=resumes)
            if refusal is not None:
                action = Action.COMMIT if resumes else Action.REPLAY
                source_refused(self.identity, action, hub.info, refusal)
                raise SubscribeRefused(refusal.code, refusal.message)
        return hub.subscribe(command, keyed, writer, owner, self.payer(keyed))

    def _open_query(
        self, command: OpenQuery, writer: ConnectionWriter, owner: Owner[Subscription]
    ) -> Subscription:
        refusal = self._refusal_of_query(command.query, opening=True)
        if refusal is not None:
            raise SubscribeRefused(refusal.code, refusal.message)
        queries = self._context.engine_queries
        running = queries.prepare(command.query)
        hub, make = running.hub, command.wire
        keyed = keyed_format(make(hub.info))
        asked = Open(command.handle, hub.info.id, make, command.mode, command.credits, command.limits)
        subscription = hub.subscribe(asked, keyed, writer, owner, self.payer(keyed))
        queries.start(running, subscription)
        return subscription

    def _wire(self, hub: Hub[Subscription], make: Callable[[SourceInfo], WireFormat]) -> KeyedFormat:
        """Make a wire format of events that this client may see. Raises SubscribeRefused."""
        hooks, info = self._context.hooks, hub.info
        if self._context.engine_queries.of(hub) is not None:
            return keyed_format(make(info))  # it may see what it has asked for
        refusal = hooks.authorize(self.identity, Action.SUBSCRIBE, info)
        if refusal is not None:
            source_refused(self.identity, Action.SUBSCRIBE, info, refusal)
            raise unknown_source()  # as for one that does not exist: names cannot be guessed
        transforms = hooks.transforms(self.identity, info)
        if isinstance(transforms, Refusal):
            raise SubscribeRefused(transforms.code, transforms.message)
        if transforms:
            # Declared types tell of members that they may take out, and of none that they add.
            info = replace(info, decode=replace(info.decode, fields=""), members="")
        return keyed_format(make(info), transforms)

    def _refusal_of_query(self, query: EngineQuery, *, opening: bool) -> Refusal | None:
        """Say why its sources may not be read for this client; None: they may."""
        context = self._context
        tables = query.tables.values()
        return refusal_of_tables(context.hooks, self.identity, tables, context.hub, opening=opening)

    def _leave_account(self, who: Hashable) -> None:
        if self._account is not None:
            self._context.account_left(who, self._account)
            self._account = None

    def _count_credit(self, source_id: str, credit: int) -> None:
        if 0 < credit < MAX_CREDIT:  # that many are no credit, but leave to send
            self._context.meters.source(source_id).credits_granted += credit

    def _forget(self, handle: Hashable, reason: CloseReason) -> None:
        subscription = self.subscriptions.pop(handle, None)
        self._no_longer_waits(handle)
        if subscription is not None:
            self.delivered += subscription.delivery.matched
            self._context.meters.subscription_over(self._dialect, subscription, reason)

    def _no_longer_waits(self, handle: Hashable) -> Waited:
        noted = self._waiting.pop(handle, None) if self._waiting is not None else None
        return noted or Waited()


def _to_keep(identity: Identity) -> Identity:
    """Take out the token that it was issued with: that is for the answer alone."""
    return identity if identity.issued_token is None else replace(identity, issued_token=None)
