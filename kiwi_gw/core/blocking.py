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
        # At which event, and since when, it has waited for its client.
        self._since: dict[Subscription, tuple[int, float] | None] = {}

    def add(self, subscription: Subscription) -> None:
        self._since[subscription] = None
        self._window.pin(True)

    def remove(self, subscription: Subscription) -> bool:
        """Forget it. Returns whether it was one of them."""
        found = self._since.pop(subscription, self) is not self
        if found and not self._since:
            self._window.pin(False)
        return found

    def holding(self, batch: Batch) -> list[Subscription]:
        """Find those that the first piece of this batch must wait for, or something would be lost."""
        if not self._since:
            return []
        piece = next(batch_pieces(batch))
        now = self._clock()
        return [item for item in list(self._since) if self._holds(item, piece, now)]

    def _holds(self, subscription: Subscription, piece: Batch, now: float) -> bool:
        reader = subscription.reader
        if not self._overruns(subscription, piece):
            self._since[subscription] = None
            reader.waited_for = True
            return False
        if not subscription.delivery.waits_for_client:
            self._since[subscription] = None
            reader.waited_for = True
            return True
        seq = reader.cursor.seq
        since = self._since[subscription]
        if since is None or since[0] != seq:  # what it grants now and then it uses up at once
            since = self._since[subscription] = seq, now
        reader.waited_for = now - since[1] < self._timeout
        return reader.waited_for

    def _overruns(self, subscription: Subscription, piece: Batch) -> bool:
        """Say whether it would be too far behind with this piece, or lose something for it."""
        window, reader = self._window, subscription.reader
        cursor, snapshot = reader.cursor, reader.snapshot
        if subscription.state is not SubscriptionState.BEHIND:
            return False
        seq, entry = cursor.seq, cursor.entry
        if entry is None or cursor.window is not window:  # it reads a snapshot, or has lost its next event
            seq = max(window.base, seq if snapshot is None else snapshot.scan.stop)
            entry = window.find(seq)
        if entry is None:
            return False
        events = len(piece)
        return (
            window.head - seq + events > reader.terms.capacity
            or window.head - entry.base + events > window.max_events
            or window.bytes_taken - entry.bytes_before + piece.cost + ENTRY_OVERHEAD > window.max_bytes
            or window.short_of_memory
        )
