"""Noticing subscriptions that lag, and saying how much."""

from __future__ import annotations

from kiwi_gw.core.notices import Lagged
from kiwi_gw.core.overflow import OverflowDecision
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.model import OverflowPolicy


def watch_lag(subscription: Subscription, now: float, interval: float) -> None:
    """End one that is over its capacity, if that is its policy; have one that is over its threshold read,
    which begins with a notice. interval: seconds between two notices, at least."""
    reader, window = subscription.reader, subscription.hub.window
    closes = reader.terms.acting is OverflowPolicy.CLOSE and not subscription.in_history
    if closes and reader.decide(window) is OverflowDecision.CLOSE:
        subscription.overflow()
    elif subscription.behind > reader.terms.threshold and reader.lag.may_notice(window.head, now, interval):
        reader.lag.due = True
        subscription.mark_ready()


def take_lag(subscription: Subscription, now: float) -> Lagged:
    """Make the notice that is due, with the numbers of this moment. It must be written at once."""
    reader, hub = subscription.reader, subscription.hub
    if reader.terms.acting is not OverflowPolicy.CLOSE:  # for `prepare` and `watch_lag`: no notice then
        subscription.apply_policy()
    reader.account_superseded()
    loss = reader.lag.announce(now, hub.window.head)
    hub.lag_notices += 1
    behind = subscription.behind
    notice = Lagged(
        handle=subscription.handle,
        source=hub.info,
        behind=behind,
        dropped=None if loss.unknown else loss.dropped,
        count=behind + reader.lag.since_caught_up,
        ranges=loss.ranges,
        positions=hub.dump(subscription.positions),
    )
    if subscription.state is SubscriptionState.LIVE:
        reader.lag.caught_up()
    hub.effects.hand_out()
    return notice
