"""What a subscription has given up and was not announced yet, and when it is due a notice that it lags."""

from __future__ import annotations

from collections import Counter
from math import inf

from kiwi_gw.core.loss import Loss
from kiwi_gw.model import OverflowPolicy, Ranges


class LagLedger:
    """The losses of one subscription between two notices.

    due: a notice is to be written before the next event. since_caught_up: given up since it last had
    everything. dropped_by: the source's totals, by policy.
    """

    __slots__ = (
        "_dropped_by",
        "_noticed_at",
        "_noticed_head",
        "_pending",
        "_policy",
        "due",
        "since_caught_up",
    )

    def __init__(self, dropped_by: Counter[OverflowPolicy], policy: OverflowPolicy) -> None:
        self._dropped_by = dropped_by
        self._policy = policy
        self._pending: Loss | None = None
        self._noticed_at = -inf
        self._noticed_head = 0
        self.due = False
        self.since_caught_up = 0

    @property
    def dropped(self) -> int:
        """Given up and not announced yet, as far as it can be counted."""
        return self._pending.dropped if self._pending is not None else 0

    @property
    def unknown(self) -> bool:
        """Whether some of what was given up cannot be counted."""
        return self._pending is not None and self._pending.unknown

    def add(self, dropped: int, ranges: Ranges, *, unknown: bool = False) -> None:
        """Note that so much was given up: it is announced before anything else is sent."""
        loss = self._pending = self._pending or Loss()
        loss.dropped += dropped
        loss.unknown = loss.unknown or unknown
        loss.add_ranges(ranges)
        self.since_caught_up += dropped
        self._dropped_by[self._policy] += dropped
        self.due = True

    def add_loss(self, loss: Loss) -> None:
        """Note a loss, if it is one."""
        if loss.dropped or loss.unknown:
            self.add(loss.dropped, loss.ranges, unknown=loss.unknown)

    def add_unsent(self, events: int) -> None:
        """Count events that are announced with the end itself."""
        self._dropped_by[self._policy] += events

    def announce(self, now: float, head: int) -> Loss:
        """Begin anew, and return what is to be announced. head: of the source's window."""
        loss, self._pending = self._pending or Loss(), None
        self.due = False
        self._noticed_at, self._noticed_head = now, head
        return loss

    def caught_up(self) -> None:
        """Begin to count anew, unless a notice is still to be written."""
        if not self.due:
            self.since_caught_up = 0

    def may_notice(self, head: int, now: float, interval: float) -> bool:
        """Say whether one that is over its threshold is due a notice: something new came, and it got none
        within `interval` seconds."""
        return not self.due and head != self._noticed_head and now - self._noticed_at >= interval
