"""A subscription's way through the newest event of every key, which then leads into the source's window.

So begins one that asked for a snapshot, and so goes on one with policy `latest` that is too far behind. It
reads page by page, from a window of the page's own which it shares with others, at its client's pace.

These functions are a part of `Subscription` in a file of their own, and use what is inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kiwi_gw.core.last_values import LastValues, Pass
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.states import Input, State

if TYPE_CHECKING:
    from kiwi_gw.core.subscription import Subscription


def open_with_snapshot(subscription: Subscription, index: LastValues) -> None:
    """The source runs: begin with the newest event of every key."""
    window = subscription.feed.window
    if subscription.apply(Input.JOINED) is State.BEHIND:
        head = window.positions
        here = index.starts(head)
        begin(subscription, Pass(0, window.head, here, head, window.lost, window.unknown, None))
        subscription._opened()
        if not subscription.closed:
            subscription.outlet.wake(subscription)


def begin(subscription: Subscription, progress: Pass) -> None:
    """Read what the pass says, from its positions on."""
    subscription._unpark()
    subscription._evicted_at = progress.here
    subscription._progress = progress
    if subscription.feed.last_values is not None:
        subscription.feed.last_values.begin(progress)
    next_page(subscription)


def next_page(subscription: Subscription) -> None:
    """Read the next events of the pass; behind the last of them, go on in the source's window."""
    progress, index = subscription._progress, subscription.feed.last_values
    if progress is None:
        return
    progress.here = subscription.positions
    _turn_page(subscription)
    found = index.page(progress) if index is not None else None
    account_gone(subscription)
    if found is not None:
        page, skipped = found
        page.readers += 1
        entry = page.entry
        subscription._page, subscription.window = page, page.window
        subscription.cursor, subscription._evicted_at = skipped, None
        subscription._lost_mark = subscription._unknown_mark = 0
        subscription._park(entry)
    else:
        _end(subscription)
        subscription._enter_at(progress.stop, progress.positions, progress.lost, progress.unknown)


def account_gone(subscription: Subscription) -> None:
    """What was superseded before it came to its page is given up: what superseded it is still to come."""
    progress = subscription._progress
    if progress is not None and progress.gone.dropped:
        gone, progress.gone = progress.gone, Loss()
        subscription._account(gone.dropped, gone.ranges, unknown=False)


def leave(subscription: Subscription) -> None:
    """It is closed."""
    _turn_page(subscription)
    _end(subscription)


def _end(subscription: Subscription) -> None:
    progress, index = subscription._progress, subscription.feed.last_values
    subscription._progress = None
    if progress is not None and index is not None:
        index.end(progress)


def _turn_page(subscription: Subscription) -> None:
    """Let go of the page that was read."""
    subscription._unpark()
    page, index = subscription._page, subscription.feed.last_values
    if page is not None and index is not None:
        subscription._page = None
        subscription.window = subscription.feed.window
        index.pages.left(page)
