"""One client's reader of one source: a cursor, a balance and a policy. It knows no socket and no protocol.

Theory of operation. A subscription that is LIVE has had everything: its cursor is the head and it is in
its group's `live` set, which fan-out serves directly. As soon as something cannot be sent it is BEHIND:
it is parked in the window's entry that holds its next event and is read at its client's pace (see
`reading`). Eviction only records the exact positions of the next event; what that means is decided by the
policy when the subscription is next read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf
from typing import TYPE_CHECKING

from kiwi_gw.core.commands import Limit
from kiwi_gw.core.encoding import Wire
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.notices import Ended, Lagged, LimitReached, Opened, OpenFailed
from kiwi_gw.core.outlet import Outlet, Owner
from kiwi_gw.core.reading import MAX_CREDIT, Reading
from kiwi_gw.core.states import Input, State, after
from kiwi_gw.core.window import Entry
from kiwi_gw.model import CloseReason, Joiner, Mode, OverflowPolicy, Positions

if TYPE_CHECKING:
    from kiwi_gw.core.feed import Feed, Group


class Subscription(Reading):
    """See the top of this file. Made by `Feed.subscribe`, ended by `Feed` or by `cancel`."""

    __slots__ = (
        "_deadline",
        "_evicted_at",
        "_lag_at",
        "_lag_head",
        "capacity",
        "handle",
        "outlet",
        "owner",
        "policy",
        "threshold",
    )

    def __init__(
        self,
        feed: Feed,
        group: Group,
        handle: Hashable,
        outlet: Outlet,
        owner: Owner,
        mode: Mode,
        credits: int,  # noqa: A002
        policy: OverflowPolicy,
        capacity: int,
        threshold: int,
        limits: Mapping[Hashable, Limit],
        until: Positions | None,
        join: Joiner | None,
    ) -> None:
        super().__init__(feed, group, mode, credits, limits, until, join)
        self.handle = handle
        self.outlet = outlet
        self.owner = owner
        self.policy = policy
        self.capacity = capacity
        self.threshold = threshold
        self._evicted_at: Positions | None = None
        self._lag_at = -inf
        self._lag_head = 0
        self._deadline: float | None = None

    # --- what anyone may ask ---------------------------------------------------------------

    @property
    def behind(self) -> int:
        """Events of the source between the cursor and the head."""
        return self.feed.window.head - self.cursor if self.cursor >= 0 else 0

    @property
    def positions(self) -> Positions:
        """Where the next event is."""
        if self._entry is not None:
            return self._entry.batch.positions_at(self.cursor - self._entry.base)
        if self._evicted_at is not None:
            return self._evicted_at
        window = self.feed.window
        newest = window.newest
        if self.state is State.LIVE and self.cursor < window.head and newest is not None:
            return newest.batch.starts  # fan-out has not come to it yet
        return window.positions

    @property
    def caught_up(self) -> bool:
        """Whether it has had everything, and knows of everything that the source lost."""
        window = self.feed.window
        return (
            self.cursor >= window.head
            and self._lost_mark == window.lost
            and self._unknown_mark == window.unknown
        )

    @property
    def dropped(self) -> int:
        """Given up and not announced yet, as far as it can be counted."""
        return self._loss.dropped if self._loss is not None else 0

    @property
    def readable(self) -> bool:
        """Whether `take_lag` or `offer` has something to do, as far as is known without looking."""
        if self.lag_due:
            return not self.closed
        if self.state is not State.BEHIND and self.state is not State.ENDING:
            return False
        if self.cursor >= self.feed.window.head:
            return True
        # ENDING: what is left may be nothing that costs credit, and then it ends.
        return not self._waiting_limit and (
            self.mode is Mode.PUSH or self.credits > 0 or self.state is State.ENDING
        )

    # --- commands --------------------------------------------------------------------------

    def grant(self, n: int) -> int:
        """Add credit, saturating at 2^53 - 1. Returns the balance before anything of it is used."""
        self.credits = balance = min(self.credits + n, MAX_CREDIT)
        if self.state is State.BEHIND or self.state is State.ENDING:
            self.outlet.wake(self)
        return balance

    def recast(self, item: Wire, limits: Mapping[Hashable, Limit]) -> None:
        """Go on with other fragments and limits, from the next event on. Raises SubscribeRefused."""
        if self.closed:
            return
        self.feed.regroup(self, item)
        self.join = item.format.join
        self.limits = dict(limits)
        self.simple = not self.limits and self.until is None
        self.plain = self.simple and self.join is None
        self._waiting_limit = False
        if self.readable:
            self.outlet.wake(self)

    def cancel(self, item: Input = Input.UNSUBSCRIBE) -> None:
        """End it by the client's wish or with its connection; no notice."""
        self.apply(item)

    # --- state -----------------------------------------------------------------------------

    def apply(self, item: Input) -> State:
        """Move by the state table, and keep what depends on the state in step."""
        old, new = self.state, after(self.state, item)
        if new is old:
            return new
        self.state = new
        if old is State.LIVE:
            self.group.live.pop(self, None)
        if new is State.LIVE:
            self._unpark()
            if not self.lag_due:
                self._since_caught_up = 0
            self.group.live[self] = None
        elif new is State.CLOSED:
            self._unpark()
            self.lag_due = False  # what was not announced is in the notice of its end
        self.feed.moved(self, old, new)
        return new

    def open_at_head(self) -> None:
        """The source runs: begin with its next event."""
        window = self.feed.window
        self.cursor = window.head
        self._lost_mark, self._unknown_mark = window.lost, window.unknown
        if self.apply(Input.OPENED) is not State.LIVE:
            return  # cancelled by what its owner was told of another one
        info = self.feed.info
        positions = info.codec.dump(self.positions)
        self.owner.notify(self, Opened(self.handle, info, positions, self.policy, self.capacity))
        self._arrived()  # it may have been asked for nothing

    def fall_behind(self, entry: Entry, item: Input = Input.FULL) -> None:
        """LIVE no longer: its next event is in `entry`, which it could not be sent whole."""
        if self.apply(item) is State.BEHIND:
            self._park(entry)
            self._skip_read()

    def evicted(self, positions: Positions) -> None:
        """The entry with its next event has left the window; `positions` are those of that event."""
        self._entry = None
        if self._evicted_at is None:
            self._evicted_at = positions

    # --- reading ---------------------------------------------------------------------------

    def take(self, max_events: int, max_bytes: int) -> bytes:
        """Read as a request does: the bytes of what may be read now, b"" if nothing may.

        The owner is told of a loss before the bytes that follow it are returned; a limit or an end that
        it is told of meanwhile comes after them.
        """
        while True:
            if self.lag_due:
                self.owner.notify(self, self.take_lag(self.feed.now))
            offer = self.offer(max_bytes, max_events)
            if offer is not None:
                data = b"".join(offer.views)
                self.settle(offer, len(data))
                if data:
                    return data
            elif not self.lag_due:
                return b""

    # --- lag -------------------------------------------------------------------------------

    def take_lag(self, now: float) -> Lagged:
        """The notice that is due, with the numbers of this moment. It must be written at once."""
        if self.policy is not OverflowPolicy.CLOSE:  # that is for `offer` and `sweep`: no notice follows it
            self._give_up_what_policy_says()
        loss = self._loss or Loss()
        self._loss = None
        self.lag_due = False
        self._lag_at, self._lag_head = now, self.feed.window.head
        self.feed.lag_notices += 1
        notice = Lagged(
            handle=self.handle,
            source=self.feed.info,
            behind=self.behind,
            dropped=None if loss.unknown else loss.dropped,
            count=self.behind + self._since_caught_up,
            ranges=loss.ranges,
            positions=self.feed.info.codec.dump(self.positions),
        )
        if self.state is State.LIVE:
            self._since_caught_up = 0
        return notice

    def sweep(self, now: float, interval: float) -> None:
        """What nobody reads for must be noticed too: policy `close`, lag over the threshold, deadlines."""
        if self._deadline is not None and now >= self._deadline:
            self.end(self.feed.end_reason, self.feed.end_message, Input.POLICY_CLOSE)
            return
        behind = self.behind
        if self.policy is OverflowPolicy.CLOSE and self._over_capacity():
            self._close_for_overflow()
            return
        if (
            behind > self.threshold
            and not self.lag_due
            and self.feed.window.head != self._lag_head
            and now - self._lag_at >= interval
        ):
            self.lag_due = True
            self.outlet.wake(self)

    def set_deadline(self, deadline: float) -> None:
        """How long what is left of a removed source may still be sent."""
        self._deadline = deadline

    def end(self, reason: CloseReason, message: str, item: Input) -> None:
        """Close it, and tell its owner why, and what it did not get."""
        if self.closed:
            return
        if self.state is State.OPENING:
            self.apply(item)
            self.owner.notify(self, OpenFailed(self.handle, reason.value, message))
            return
        window = self.feed.window
        positions = self.feed.info.codec.dump(self.positions)
        loss = self._loss or Loss()
        unsent, unknown = 0, loss.unknown
        if item is not Input.LIMIT_REACHED and item is not Input.UNTIL_REACHED:
            unsent = self.behind + window.lost - self._lost_mark
            unknown = unknown or window.unknown != self._unknown_mark
        if self.apply(item) is not State.CLOSED:
            self.outlet.wake(self)  # what is left may be nothing
            return
        dropped = None if unknown else loss.dropped + unsent
        self.feed.events_dropped += unsent
        self.owner.notify(self, Ended(self.handle, self.feed.info, reason, message, positions, dropped))

    # --- inside ----------------------------------------------------------------------------

    def _arrived(self) -> None:
        """After reading: limits that are used up, the end, the head."""
        for label in [label for label, limit in self.limits.items() if limit.left <= 0]:
            # Told of one, its owner may have recast or ended this.
            if not self.closed and self.limits.pop(label, None) is not None:
                if label is None:
                    self.end(CloseReason.LIMIT, "the limit is reached", Input.LIMIT_REACHED)
                    return
                self._waiting_limit = True
                self.owner.notify(self, LimitReached(self.handle, label))
        if self.until is not None and not self.closed and self._until_reached():
            self.end(CloseReason.UNTIL, "the end that was asked for is reached", Input.UNTIL_REACHED)
            return
        if self.state in (State.BEHIND, State.ENDING) and self.cursor >= self.feed.window.head:
            self._at_head()

    def _at_head(self) -> None:
        """No event is left: join the head, or end, but not before a notice that is due."""
        while self._entry is not None:  # entries without events
            self._park_after(self._entry)
        if self.state is not State.ENDING:
            self.apply(Input.JOINED)
        elif not self.lag_due:
            self.end(self.feed.end_reason, self.feed.end_message, Input.JOINED)

    def _close_for_overflow(self) -> None:
        message = f"more than {self.capacity} events behind"
        self.end(CloseReason.OVERFLOW, message, Input.POLICY_CLOSE)

    def _over_capacity(self) -> bool:
        return self.behind > self.capacity or self.cursor < self.feed.window.base

    def _give_up_what_policy_says(self) -> bool:
        """Whether something was given up (a notice is then due)."""
        over = self._over_capacity()
        if not over and self._evicted_at is None:
            return False
        if over and self.policy is OverflowPolicy.CLOSE:
            self._close_for_overflow()
            return False
        window = self.feed.window
        old, old_cursor = self.positions, self.cursor
        self.cursor = max(old_cursor, window.base, window.head - self.capacity)
        self._evicted_at = None
        self._unpark()
        entry = window.find(self.cursor)
        if entry is not None:
            self._park(entry)
        known = entry or window  # everything that the source lost up to here
        dropped = self.cursor - old_cursor + known.lost - self._lost_mark
        unknown = known.unknown != self._unknown_mark
        self._lost_mark, self._unknown_mark = known.lost, known.unknown
        if not dropped and not unknown:
            return False  # what was evicted held no event
        new = self.positions
        ranges = {p: (old.get(p, 0), new[p] - 1) for p in new if new[p] > old.get(p, 0)}
        self._account(dropped, ranges, unknown=unknown)
        if entry is None:
            self._at_head()
        return True

    def _until_reached(self) -> bool:
        here = self.positions
        return all(here.get(p, 0) >= end for p, end in (self.until or {}).items())
