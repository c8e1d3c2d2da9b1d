"""The end of a subscription that its client has not wished for: what it did not get, and the notice of it."""

from __future__ import annotations

from typing import Final

from kiwi_gw.core.notices import Ended, OpenFailed
from kiwi_gw.core.states import SubscriptionInput, SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.model import CloseReason

_AT_ITS_PLACE: Final = (
    SubscriptionInput.LIMIT_REACHED,
    SubscriptionInput.UNTIL_REACHED,
    SubscriptionInput.EVENT_FAILED,
)
"""What is behind that place is not lost: it was never to be sent."""


def end(subscription: Subscription, reason: CloseReason, message: str, trigger: SubscriptionInput) -> None:
    """Close it and say why, or let it be sent the rest first: the state table says which."""
    if subscription.closed:
        return
    if subscription.state is SubscriptionState.OPENING:
        subscription.apply(trigger)
        subscription.tell(OpenFailed(subscription.handle, reason.value, message))
        return
    reader, hub = subscription.reader, subscription.hub
    reader.account_superseded()
    here, pending, unknown = subscription.positions, reader.lag.dropped, reader.lag.unknown
    positions = hub.dump(here)
    unsent, uncounted = 0, False
    if trigger not in _AT_ITS_PLACE:
        if subscription.in_history:
            uncounted = subscription.behind > 0
        else:
            unsent, uncounted = reader.unsent(hub.window)
    if subscription.apply(trigger) is not SubscriptionState.CLOSED:
        subscription.mark_ready()  # what is left may be nothing
        return
    reader.cursor.leave(hub.window, here)  # for who looks where it was
    reader.lag.add_unsent(unsent)
    dropped = None if unknown or uncounted else pending + unsent
    subscription.tell(Ended(subscription.handle, hub.info, reason, message, positions, dropped))
