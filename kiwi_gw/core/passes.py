"""A subscription's way through the newest event of every key, which then leads into the source's window.

So begins one that asked for a snapshot, and so goes on one with policy `latest` that is too far behind. It
reads page by page, from a window of the page's own, at its client's pace.

These functions are a part of `Subscription` in a file of their own, and use what is inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kiwi_gw.core.last_values import LastValues, Pass
from kiwi_gw.core.places import between
from kiwi_gw.core.states import Input, State
from kiwi_gw.model import Positions

if TYPE_CHECKING:
    from kiwi_gw.core.subscription import Subscription


def open_with_snapshot(subscription: Subscription, index: LastValues) -> None:
    """The source runs: begin with the newest event of every key."""
    window = subscription.feed.window
    if subscription.apply(Input.JOINED) is State.BEHIND:
        progress = Pass(0, window.head, window.positions, window.lost, window.unknown, None)
        begin(subscription, progress, index.starts(window.positions))
        subscription._opened()
        if not subscription.closed:
            subscription.outlet.wake(subscription)


def begin(subscription: Subscription, progress: Pass, here: Positions) -> None:
    """Read what the pass says, from positions `here` on."""
    subscription._unpark()
    subscription._evicted_at = here
    subscription._progress = progress
    next_page(subscription)


def next_page(subscription: Subscription) -> None:
    """Read the next events of the pass; behind the last of them, go on in the source's window."""
    progress, index = subscription._progress, subscription.feed.last_values
    here = subscription.positions
    turn_page(subscription)
    page = index.page(progress, here) if progress is not None and index is not None else None
    if page is not None and len(page):
        subscription._page = subscription.window = subscription.feed.private_window(page)
        subscription.cursor, subscription._evicted_at = 0, None
        subscription._lost_mark = subscription._unknown_mark = 0
        oldest = subscription._page.oldest
        if oldest is not None:
            subscription._park(oldest)
    elif progress is not None:
        subscription._progress = None
        subscription._enter_at(progress.stop, progress.positions, progress.lost, progress.unknown)
        if progress.left:  # superseded on the way: what superseded it is still to come
            subscription._account(progress.left, between(here, progress.positions), unknown=False)


def turn_page(subscription: Subscription) -> None:
    """Let go of the page that was read."""
    subscription._unpark()
    if subscription._page is not None:
        subscription._page.clear(subscription.feed.evicted)
        subscription._page = None
        subscription.window = subscription.feed.window
