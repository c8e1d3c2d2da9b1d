"""One client's reader of one source: a cursor, a balance and a policy. It knows no socket and no protocol.

Theory of operation. A subscription that is LIVE has had everything: its cursor is the head and it is in
its group's `live` set, which fan-out serves directly. As soon as something cannot be sent it is BEHIND:
it is parked in the window's entry that holds its next event and is read with `offer` and `settle` by
whoever serves it (an outlet, or `take` for a request). `offer` says what may be sent now; `settle` says
how many bytes of that were taken: cursor, credits and counters then stand right behind the last event
whose first byte was taken. Eviction only records the exact positions of the next event; what that means
is decided by the policy when the subscription is next read.

Losses add up in a `Loss` until the notice about them is written, which always happens before the next
event: `offer` gives nothing while a notice is due.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping
from math import inf
from typing import TYPE_CHECKING

from kiwi_gw.core.commands import Limit
from kiwi_gw.core.encoding import Wire, wire
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.notices import Ended, Lagged, LimitReached, Opened, OpenFailed
from kiwi_gw.core.offers import Offer, Segment, count, cut, reach
from kiwi_gw.core.outlet import Outlet, Owner
from kiwi_gw.core.states import Input, State, after
from kiwi_gw.core.window import Entry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import CloseReason, Encoded, Interceptor, Joiner, Mode, OverflowPolicy, Positions, Ranges

if TYPE_CHECKING:
    from kiwi_gw.core.feed import Feed, Group

MAX_CREDIT = 2**53 - 1
"""Where a balance saturates: the largest integer that JSON clients hold exactly."""

_MAX_SEGMENTS = 64
"""Entries joined into one offer, at most (the kernel takes 1,024 buffers in a call)."""


class Subscription:
    """See the top of this file. Made by `Feed.subscribe`, ended by `Feed` or by `cancel`."""

    __slots__ = (
        "_deadline",
        "_entry",
        "_evicted_at",
        "_lag_at",
        "_lag_head",
        "_loss",
        "_lost_mark",
        "_since_caught_up",
        "_unknown_mark",
        "_waiting_limit",
        "bad",
        "bytes",
        "capacity",
        "credits",
        "cursor",
        "feed",
        "group",
        "handle",
        "join",
        "lag_due",
        "limits",
        "matched",
        "mode",
        "outlet",
        "owner",
        "plain",
        "policy",
        "scanned",
        "simple",
        "state",
        "threshold",
        "until",
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
        self.feed = feed
        self.group = group
        self.handle = handle
        self.outlet = outlet
        self.owner = owner
        self.mode = mode
        self.credits = min(credits, MAX_CREDIT)
        self.policy = policy
        self.capacity = capacity
        self.threshold = threshold
        self.limits = dict(limits)
        self.until = until
        # Its own, not its group's: the fragments are shared, what is put around them need not be.
        self.join = join
        # simple: only the balance bounds what is sent. plain: and the fragments are sent as they are.
        self.simple = not self.limits and until is None
        self.plain = self.simple and join is None
        self.state = State.OPENING
        self.cursor = -1
        self.lag_due = False
        self.scanned = 0
        self.matched = 0
        self.bad = 0
        self.bytes = 0
        self._entry: Entry | None = None
        self._evicted_at: Positions | None = None
        self._loss: Loss | None = None
        self._since_caught_up = 0
        self._lost_mark = 0
        self._unknown_mark = 0
        self._lag_at = -inf
        self._lag_head = 0
        self._deadline: float | None = None
        self._waiting_limit = False

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
    def closed(self) -> bool:
        return self.state is State.CLOSED

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

    def intercept(self, interceptor: Interceptor | None) -> None:
        """Go on behind another interceptor (None: behind none), otherwise as before, from the next event
        on. Raises SubscribeRefused."""
        if not self.closed:
            # The format may be another member's of the group, but only `join` could differ, and it stays.
            self.feed.regroup(self, wire(self.group.wire.format, interceptor))
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

    def offer(self, max_bytes: int, max_events: int | None = None) -> Offer | None:
        """What may be sent now, at most `max_bytes` (or one event): None if nothing may.

        None also while a lag notice is due (`take_lag` first), or if the policy finds a loss.
        """
        if self.lag_due or not (self.state is State.BEHIND or self.state is State.ENDING):
            return None
        if self._give_up_what_policy_says() or self.closed:
            return None
        if self.cursor >= self.feed.window.head:
            self._at_head()
            return None
        if self._waiting_limit:
            return None
        try:
            return self._assemble(max_bytes, max_events)
        except EncodingFailed as error:
            self.feed.group_failed(self.group, str(error))
            return None

    def _assemble(self, max_bytes: int, max_events: int | None) -> Offer | None:
        allowance = MAX_CREDIT if self.mode is Mode.PUSH else self.credits
        if max_events is not None:
            allowance = min(allowance, max_events)
        join = self.join
        offer = Offer([], 0, 0, [], join is not None)
        ending = self.state is State.ENDING
        while self._entry is not None and (allowance > offer.events or ending) and not self.lag_due:
            cursor = self.cursor
            entry = self._entry if not offer.segments else offer.segments[-1].entry
            segment = self._segment(offer, entry, allowance - offer.events, max_bytes - offer.size)
            if segment is None and self.cursor == cursor:
                break  # complete; where the cursor moved, an event was stepped over: look again
        if not offer.segments or self.lag_due:
            return None
        if join is not None and offer.size:
            frame = join(b"".join(offer.views))
            offer.views, offer.size = [frame], len(frame)
        return offer

    def settle(self, offer: Offer, taken: int) -> bytes:
        """The first `taken` bytes of an offer were taken. Returns the rest of the frame that was cut.

        Its owner may be told of a limit or an end before this returns: that belongs behind the rest.
        """
        tail = b""
        if offer.joined:
            if taken == 0 and offer.size:
                return b""
            tail = b"".join(offer.views)[taken:]
            self.bytes += offer.size
            for segment in offer.segments:
                self._consume(segment, segment.last)
        else:
            for segment in offer.segments:
                size = segment.end - segment.start
                if taken >= size:
                    self.bytes += size
                    self._consume(segment, segment.last)
                    taken -= size
                    continue
                index, tail = cut(segment.encoded, segment.start + taken)
                if index > segment.first:
                    self.bytes += segment.encoded.ends[index - 1] - segment.start
                    self._consume(segment, index)
                break
        self._arrived()
        return tail

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

    def sent(self, encoded: Encoded, events: int, entry: Entry) -> None:
        """Fan-out sent all of an entry directly."""
        self.cursor = entry.end
        self.scanned += len(entry.batch)
        self.matched += events
        self.bad += encoded.bad
        self.bytes += len(encoded.buffer)
        if self.mode is Mode.PULL:
            self.credits -= events

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
        self.feed.dropped[self.policy] += unsent
        self.owner.notify(self, Ended(self.handle, self.feed.info, reason, message, positions, dropped))

    # --- inside ----------------------------------------------------------------------------

    def _segment(self, offer: Offer, entry: Entry, allowance: int, room: int) -> Segment | None:
        """Add the next run of events to an offer; None if the offer is complete."""
        if offer.segments:
            previous = offer.segments[-1]
            if previous.last < len(previous.entry.batch) or len(offer.segments) >= _MAX_SEGMENTS:
                return None
            following = entry.after
            if following is None or self._source_lost(following):
                return None
            entry, first = following, 0
        else:
            first = self.cursor - entry.base
            while first >= len(entry.batch):  # an entry without events
                self._park_after(entry)
                if self.lag_due or self._entry is None:
                    return None
                entry, first = self._entry, 0
        encoded = self.feed.encoded(self.group, entry)
        first_unsendable = bisect_left(encoded.unsendable, first)
        stop = len(entry.batch)
        if first_unsendable < len(encoded.unsendable):
            stop = encoded.unsendable[first_unsendable]
            if stop == first:
                if not offer.segments:
                    self._give_up_unsendable(entry, first)
                return None
        if self.until is not None:
            stop = self._before_until(entry, first, stop)
            if stop == first:
                if not offer.segments:
                    self._pass(entry, first)  # not asked for
                return None
        stop = min(stop, reach(encoded.tally, first, allowance))
        if self.limits:
            stop = self._within_limits(offer, encoded, first, stop)
            if stop == first and not offer.segments:
                self._arrived()  # another subscription has used up a limit that they share
                return None
        start = encoded.ends[first - 1] if first else 0
        fitting = bisect_right(encoded.ends, start + room, first, stop)
        if fitting == first and not offer.segments:
            fitting = first + 1  # one event, whatever its size
        stop = min(stop, fitting)
        if stop == first:
            return None
        end = encoded.ends[stop - 1]
        segment = Segment(entry, encoded, first, stop, start, end)
        offer.segments.append(segment)
        offer.events += count(encoded.tally, first, stop)
        if end > start:
            offer.views.append(memoryview(encoded.buffer)[start:end])
            offer.size += end - start
        return segment

    def _within_limits(self, offer: Offer, encoded: Encoded, first: int, stop: int) -> int:
        for label, limit in self.limits.items():
            offered = sum(count(s.encoded.tally_of(label), s.first, s.last) for s in offer.segments)
            stop = min(stop, reach(encoded.tally_of(label), first, limit.left - offered))
        return stop

    def _consume(self, segment: Segment, upto: int) -> None:
        """The events up to `upto` (an index in the entry) of a segment count as sent."""
        encoded = segment.encoded
        events = count(encoded.tally, segment.first, upto)
        self.cursor = segment.entry.base + upto
        self.scanned += upto - segment.first
        self.matched += events
        if segment.first == 0:
            self.bad += encoded.bad
        if self.mode is Mode.PULL:
            self.credits -= events
        if upto == len(segment.entry.batch):
            self._park_after(segment.entry)
        elif self._entry is not segment.entry:
            self._unpark()
            self._park(segment.entry)
        for label, limit in self.limits.items():
            limit.left -= count(encoded.tally_of(label), segment.first, upto)

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

    def _skip_read(self) -> None:
        """Entering an entry: what the source lost before it is a loss of this subscription."""
        entry = self._entry
        if entry is None or not self._source_lost(entry):
            return
        gap = entry.batch.gap
        self._account(
            entry.lost - self._lost_mark,
            gap.ranges if gap is not None else {},
            unknown=entry.unknown != self._unknown_mark,
        )
        self._lost_mark, self._unknown_mark = entry.lost, entry.unknown

    def _source_lost(self, entry: Entry) -> bool:
        return entry.lost != self._lost_mark or entry.unknown != self._unknown_mark

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

    def _give_up_unsendable(self, entry: Entry, index: int) -> None:
        offset = entry.batch.offsets[index]
        self._account(1, {entry.batch.partitions[index]: (offset, offset)}, unknown=False)
        self._pass(entry, index)

    def _pass(self, entry: Entry, index: int) -> None:
        """Step over one event that is not sent."""
        self.cursor += 1
        if index + 1 == len(entry.batch):
            self._park_after(entry)
        self._arrived()

    def _account(self, dropped: int, ranges: Ranges, *, unknown: bool) -> None:
        loss = self._loss = self._loss or Loss()
        loss.dropped += dropped
        loss.unknown = loss.unknown or unknown
        loss.add_ranges(ranges)
        self._since_caught_up += dropped
        self.feed.dropped[self.policy] += dropped
        self.lag_due = True

    def _before_until(self, entry: Entry, first: int, stop: int) -> int:
        until = self.until or {}
        partitions, offsets = entry.batch.partitions, entry.batch.offsets
        index = first
        while index < stop and offsets[index] < until.get(partitions[index], 0):
            index += 1
        return index

    def _until_reached(self) -> bool:
        here = self.positions
        return all(here.get(p, 0) >= end for p, end in (self.until or {}).items())

    def _park(self, entry: Entry) -> None:
        self._entry = entry
        entry.parked[self] = None

    def _park_after(self, entry: Entry) -> None:
        """Enter what follows an entry, if anything does."""
        self._unpark()
        if entry.after is not None:
            self._park(entry.after)
            self._skip_read()

    def _unpark(self) -> None:
        if self._entry is not None:
            self._entry.parked.pop(self, None)
            self._entry = None
