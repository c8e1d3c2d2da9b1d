"""What happens to a subscription that is too far behind: the overflow policies.

Theory of operation. They act lazily: `give_up` is asked whenever a subscription is next read, and before the
numbers of a notice are made. Only what nobody reads for is found by a sweep (`close`) or by the source that
is about to publish (`block`, see `holds`).

- `replay`: nothing is given up. What leaves the window is read again from the source's history (see
  `history`); `Subscription.keeps` says so.
- `drop_oldest`: goes on with the newest events that its capacity allows.
- `latest`: the same, but the newest event of every key of what it missed comes first (see `passes`).
- `close`: its end.
- `block`: the source waits. What happens when it has waited long enough, the fallback, is one of the others.

These functions are a part of `Subscription` in a file of their own, and use what is inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kiwi_gw.core import passes
from kiwi_gw.core.last_values import Pass
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.places import between
from kiwi_gw.core.states import IN_HISTORY, Input, State
from kiwi_gw.core.window import Entry
from kiwi_gw.model import CloseReason, OverflowPolicy, Ranges

if TYPE_CHECKING:
    from kiwi_gw.core.subscription import Subscription


def acting(subscription: Subscription) -> OverflowPolicy:
    """What happens to it when it is too far behind, the source not being held (any more)."""
    policy = subscription.policy
    return subscription.feed.limits.block_fallback if policy is OverflowPolicy.BLOCK else policy


def give_up(subscription: Subscription) -> bool:
    """Let the policy act. Whether something was given up (a notice is then due)."""
    if not _has_a_say(subscription):
        return False
    policy = acting(subscription)
    if policy is OverflowPolicy.CLOSE and _over_capacity(subscription):
        _close(subscription)
        return False
    subscription.keeps = policy is OverflowPolicy.REPLAY
    return _drop_oldest(subscription)


def closed_unread(subscription: Subscription) -> bool:
    """Policy `close` for one that nobody reads. Whether it has ended it."""
    if (
        acting(subscription) is OverflowPolicy.CLOSE
        and _has_a_say(subscription)
        and _over_capacity(subscription)
    ):
        _close(subscription)
        return True
    return False


def holds(subscription: Subscription, events: int, cost: int) -> bool:
    """Say whether by policy `block` the source must wait before it publishes so many events, which take so
    many bytes of the window, or something would be lost. One that has granted no credit holds it only for a
    time."""
    entry, window = subscription._entry, subscription.feed.window
    if entry is None or subscription.state is not State.BEHIND or subscription.window is not window:
        return False
    full = (
        window.head - subscription.cursor + events > subscription.capacity
        or window.taken - entry.before + cost > window.max_bytes
        or window.short_of_memory
    )
    if not full or subscription.cursor == window.head or subscription._may_be_sent:
        subscription._blocked_since = None
        return full and subscription.cursor < window.head
    if subscription._blocked_since is None:
        subscription._blocked_since = subscription.feed.now
    return subscription.feed.now - subscription._blocked_since < subscription.feed.limits.block_timeout


def drop_rest(subscription: Subscription, entry: Entry) -> None:
    """The entry of one with a floor leaves the window: that is settled now, while its events can be
    counted."""
    if acting(subscription) is OverflowPolicy.CLOSE and not subscription.keeps:
        subscription._entry = entry
        _close(subscription)
        return
    loss = Loss()
    loss.add_events(entry.batch, subscription.cursor - entry.base, subscription.floor or {})
    if loss.dropped:
        subscription._account(loss.dropped, loss.ranges, unknown=False)
    subscription.cursor = entry.end
    if entry.after is not None:
        subscription._park(entry.after)
        subscription._skip_read()


def _has_a_say(subscription: Subscription) -> bool:
    """Whether it is so far behind that its policy has a say."""
    if subscription.state in IN_HISTORY or subscription._progress is not None:
        return False
    evicted = subscription._evicted_at is not None
    if subscription.keeps and not evicted:
        if acting(subscription) is not OverflowPolicy.REPLAY and subscription.behind <= subscription.capacity:
            subscription.keeps = False  # it has come from where it began to where its policy holds
        return False
    return evicted or subscription.behind > subscription.capacity


def _over_capacity(subscription: Subscription) -> bool:
    behind, base = subscription.behind, subscription.feed.window.base
    return behind > subscription.capacity or subscription.cursor < base


def _close(subscription: Subscription) -> None:
    message = f"more than {subscription.capacity} events behind"
    subscription.end(CloseReason.OVERFLOW, message, Input.POLICY_CLOSE)


def _drop_oldest(subscription: Subscription) -> bool:
    """Go on with the newest events that its capacity allows. Whether anything was given up."""
    window = subscription.feed.window
    old, old_cursor = subscription.positions, subscription.cursor
    cursor = max(old_cursor, window.base, window.head - subscription.capacity)
    entry = window.find(cursor)
    known = entry or window  # everything that the source lost up to here
    if subscription.floor is not None:
        return _drop_upto(subscription, entry)
    there = window.positions if entry is None else entry.batch.positions_at(cursor - entry.base)
    dropped = cursor - old_cursor + known.lost - subscription._lost_mark
    unknown = known.unknown != subscription._unknown_mark
    index = subscription.feed.last_values if acting(subscription) is OverflowPolicy.LATEST else None
    newest = 0
    ranges: Ranges = between(old, there)
    if index is not None:
        newest, ranges = index.held(old_cursor, cursor, ranges)
    if newest:
        dropped -= newest
        passes.begin(subscription, Pass(old_cursor, cursor, old, there, known.lost, known.unknown, newest))
    else:
        subscription._enter_at(cursor, there, known.lost, known.unknown)
    if not dropped and not unknown:
        return False  # what was evicted held no event
    subscription._account(dropped, ranges, unknown=unknown)
    if entry is None and not newest:
        subscription._at_head()
    return True


def _drop_upto(subscription: Subscription, entry: Entry | None) -> bool:
    """The same for one with a floor, to the beginning of an entry, event by event."""
    if entry is subscription._entry:
        return False
    loss = subscription._loss_upto(entry)
    known = entry or subscription.window
    subscription.cursor = subscription.window.head if entry is None else entry.base
    subscription._lost_mark, subscription._unknown_mark = known.lost, known.unknown
    subscription._unpark()
    if entry is not None:
        subscription._park(entry)
    subscription._pass_floor()
    if loss.dropped or loss.unknown:
        subscription._account(loss.dropped, loss.ranges, unknown=loss.unknown)
    if entry is None:
        subscription._at_head()
    return subscription.lag_due
