"""Holding the source: policy `block`, for subscriptions that are over their capacity."""

from __future__ import annotations

from collections.abc import Callable

from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD, Window
from kiwi_gw.model import Batch, batch_pieces


class BlockingReaders:
    """The subscriptions of one source with policy `block`. While there are any, its window gives up nothing
    for another one that needs memory.

    timeout: seconds for which one that waits for its client (it has granted no credit) holds the source.
    clock: monotonic seconds.
    """

    def __init__(self, window: Window, timeout: float, clock: Callable[[], float]) -> None:
        self._window = window
        self._timeout = timeout
        self._clock = clock
        self._since: dict[Subscription, float | None] = {}  # since when it has waited for its client

    def add(self, subscription: Subscription) -> None:
        self._since[subscription] = None
        self._window.keep(True)

    def remove(self, subscription: Subscription) -> bool:
        """Forget it. Returns whether it was one of them."""
        found = self._since.pop(subscription, self) is not self
        if found and not self._since:
            self._window.keep(False)
        return found

    def holding(self, batch: Batch) -> list[Subscription]:
        """Find those that the first piece of this batch must wait for, or something would be lost."""
        if not self._since:
            return []
        piece, now = next(batch_pieces(batch)), self._clock()
        cost = piece.cost + ENTRY_OVERHEAD
        return [item for item in list(self._since) if self._holds(item, len(piece), cost, now)]

    def _holds(self, subscription: Subscription, events: int, cost: int, now: float) -> bool:
        window, cursor = self._window, subscription.reader.cursor
        if (
            cursor.entry is None
            or subscription.state is not SubscriptionState.BEHIND
            or cursor.window is not window
        ):
            return False
        full = (
            window.head - cursor.seq + events > subscription.reader.terms.capacity
            or window.head - cursor.entry.base + events > window.max_events
            or window.taken - cursor.entry.before + cost > window.max_bytes
            or window.short_of_memory
        )
        subscription.reader.waited_for = True
        if not full or cursor.at_head or not subscription.delivery.waits_for_client:
            self._since[subscription] = None
            return full and not cursor.at_head
        since = self._since[subscription]
        if since is None:
            since = self._since[subscription] = now
        subscription.reader.waited_for = now - since < self._timeout
        return subscription.reader.waited_for
