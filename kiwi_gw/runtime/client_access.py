"""Who the client of a connection is, what it may read, and whose shares of the gateway's time it uses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.accounts import ClientAccount, Payer
from kiwi_gw.core.encoding import KeyedFormat, wire
from kiwi_gw.core.start_resolution import is_past
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Action, EventTransform, Identity, Refusal, SourceInfo, Start, WireFormat
from kiwi_gw.runtime.client_identity import who_pays
from kiwi_gw.runtime.ports import AdmissionSlot, GatewayContext


class ClientAccess:
    """identity: who it is for now. number: of its connection. place: None where it is not counted.

    login_seconds: it has shown no credentials yet, and has this long to log in; None: it has.
    """

    __slots__ = ("_account", "_number", "_place", "_world", "identity", "login_seconds")

    def __init__(
        self,
        identity: Identity,
        number: int,
        world: GatewayContext,
        place: AdmissionSlot | None,
        login_seconds: float | None = None,
    ) -> None:
        self.identity = identity
        self.login_seconds = login_seconds
        self._number = number
        self._world = world
        self._place = place
        self._account: ClientAccount | None = None  # made for clients with queries

    @property
    def who(self) -> Hashable:
        """Whose shares it uses (`clients.who_pays`)."""
        client = self._place.client if self._place is not None else None
        return who_pays(self.identity, client, self._number)

    def identify(self, answer: Identity | Refusal) -> Identity | Refusal:
        """Be this one from now on; or say why not, and stay. What it has still counts among the shares of the
        one before, until the rules are applied."""
        if isinstance(answer, Identity) and self._place is not None:
            answer = self._place.identify(answer) or answer
        if isinstance(answer, Identity):
            before, self.login_seconds = self.who, None
            self.identity = answer
            if self.who != before:
                self._leave_account(before)
        return answer

    def leave(self) -> None:
        """Give back what its queries have saved or owe. Nothing happens the second time."""
        self._leave_account(self.who)

    def payer(self, item: KeyedFormat) -> Payer | None:
        """Say whose shares the making of these fragments takes from, None if from no client's."""
        if not item.chosen and not item.takes_turns:
            return None
        who = self.who
        if self._account is None:
            self._account = self._world.account(who)
        return Payer(self._account, who, self._number)

    def wire(self, info: SourceInfo, make: Callable[[SourceInfo], WireFormat]) -> KeyedFormat:
        """Make a wire format of events that this client may see. Raises SubscribeRefused."""
        if self._world.authorize(self.identity, Action.SUBSCRIBE, info) is not None:
            raise unknown_source()  # as for one that does not exist: names cannot be guessed
        transforms = self._world.transforms(self.identity, info)
        if isinstance(transforms, Refusal):
            raise SubscribeRefused(transforms.code, transforms.message)
        if transforms:
            # Declared types tell of members that they may take out, and of none that they add.
            info = replace(info, decode=replace(info.decode, fields=""), members="")
        return wire(make(info), transforms)

    def check_logged_in(self) -> None:
        """Raise SubscribeRefused if it is not known yet who the client is."""
        if self.login_seconds is not None:
            raise SubscribeRefused(RefusalCode.NOT_LOGGED_IN, "log in first")

    def check_start(self, info: SourceInfo, start: Start) -> None:
        """Raise SubscribeRefused where it may not begin in the past."""
        if is_past(start):
            refusal = self._world.authorize(self.identity, Action.REPLAY, info)
            if refusal is not None:
                raise SubscribeRefused(refusal.code, refusal.message)

    def transforms(self, info: SourceInfo, *, past: bool) -> Sequence[EventTransform] | Refusal:
        """Say behind which transforms a subscription goes on under the rules of now, or why it may not.

        past: whether it reads what has been before."""
        answer = self._world.authorize(self.identity, Action.SUBSCRIBE, info)
        if answer is None and past:
            answer = self._world.authorize(self.identity, Action.REPLAY, info)
        return answer or self._world.transforms(self.identity, info)

    # --- inside ----------------------------------------------------------------------------

    def _leave_account(self, who: Hashable) -> None:
        if self._account is not None:
            self._world.account_left(who, self._account)
            self._account = None


def unknown_source() -> SubscribeRefused:
    """Return the answer for a source that does not exist, or not for this client."""
    return SubscribeRefused(RefusalCode.UNKNOWN_SOURCE, "no source has this id")
