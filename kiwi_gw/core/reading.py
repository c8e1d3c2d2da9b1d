"""Reading on from a place in a window: what may be sent now, and what was sent.

Theory of operation. A reader that is not at the head is parked in the window's entry that holds its next
event, and is read with `offer` and `settle` by whoever serves it (an outlet, or `take` for a request).
`offer` says what may be sent now; `settle` says how many bytes of that were taken: cursor, credits and
counters then stand right behind the last event whose first byte was taken.

Losses add up in a `Loss` until the notice about them is written, which always happens before the next
event: `offer` gives nothing while a notice is due.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from kiwi_gw.core.commands import Limit
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.offers import Offer, Segment, count, cut, nearest, reach
from kiwi_gw.core.places import above, reached
from kiwi_gw.core.states import State
from kiwi_gw.core.window import Entry, Window
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Encoded, Joiner, Mode, OverflowPolicy, Positions, Ranges

if TYPE_CHECKING:
    from kiwi_gw.core.fanout import Group
    from kiwi_gw.core.feed import Feed
    from kiwi_gw.core.history import SharedReader

MAX_CREDIT = 2**53 - 1
"""Where a balance saturates: the largest integer that JSON clients hold exactly."""

_MAX_SEGMENTS = 64
"""Entries joined into one offer, at most (the kernel takes 1,024 buffers in a call)."""


class Reading(ABC):
    """The reading half of a `Subscription`, which is the only thing that is one."""

    __slots__ = (
        "_entry",
        "_evicted_at",
        "_loss",
        "_lost_mark",
        "_since_caught_up",
        "_unknown_mark",
        "_waiting_limit",
        "bad",
        "blocks",
        "bytes",
        "credits",
        "cursor",
        "feed",
        "floor",
        "group",
        "join",
        "lag_due",
        "limits",
        "matched",
        "mode",
        "place",
        "plain",
        "policy",
        "scanned",
        "simple",
        "state",
        "until",
        "window",
    )

    def __init__(
        self,
        feed: Feed,
        group: Group,
        mode: Mode,
        credits: int,  # noqa: A002
        policy: OverflowPolicy,
        limits: Mapping[Hashable, Limit],
        until: Positions | None,
        join: Joiner | None,
    ) -> None:
        self.feed = feed
        # What it reads from: the source's window, or for a time another one (`history`, `last_values`).
        # The marks below are about the losses that this window knows of.
        self.window: Window = feed.window
        self.place: SharedReader | None = None  # where it reads history
        # Events below it were had elsewhere (by another reader, in another order of the partitions):
        # they are stepped over, and count as nothing.
        self.floor: Positions | None = None
        self.group = group
        self.mode = mode
        self.credits = min(credits, MAX_CREDIT)
        self.policy = policy
        self.limits = dict(limits)
        self.until = until
        # Its own, not its group's: the fragments are shared, what is put around them need not be.
        self.join = join
        # simple: only the balance bounds what is sent. plain: and the fragments are sent as they are.
        self.simple = self.plain = False
        self._simplify()
        self.state = State.OPENING
        self.cursor = -1
        self.lag_due = False
        self.blocks = False  # the source may be waiting for it
        self.scanned = 0
        self.matched = 0
        self.bad = 0
        self.bytes = 0
        self._entry: Entry | None = None
        # Where its next event is while no window that it reads from holds it.
        self._evicted_at: Positions | None = None
        self._loss: Loss | None = None
        self._since_caught_up = 0
        self._lost_mark = 0
        self._unknown_mark = 0
        self._waiting_limit = False

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    # --- what depends on its state and policy ----------------------------------------------

    @abstractmethod
    def evicted(self, positions: Positions) -> None:
        """The entry with its next event has left the window; `positions` are those of that event."""

    @abstractmethod
    def _reads(self) -> bool:
        """Whether its state lets it read; if it does not, it may from now on wait until it does."""

    @abstractmethod
    def _give_up_what_policy_says(self) -> bool:
        """Whether something was given up (a notice is then due)."""

    @abstractmethod
    def _arrived(self) -> None:
        """After reading: limits that are used up, the end, the head."""

    @abstractmethod
    def _at_head(self) -> None:
        """No event is left: join the head, or end, but not before a notice that is due."""

    def _simplify(self) -> None:
        self.simple = not self.limits and self.until is None and self.floor is None
        self.plain = self.simple and self.join is None

    # --- where it stands -------------------------------------------------------------------

    def _enter(self, window: Window, here: Positions) -> None:
        """Go on reading in this window from `here`, which it must reach."""
        self._unpark()
        entry = window.entry_at(here)
        known = entry or window  # whatever was lost up to there was lost below `here`
        self.window = window
        self._evicted_at = None
        self.cursor = window.head if entry is None else entry.base
        self._lost_mark, self._unknown_mark = known.lost, known.unknown
        self.floor = here
        self._simplify()
        if entry is not None:
            self._park(entry)
        self._pass_floor()

    def _pass_floor(self) -> None:
        """Forget the floor in those partitions where no event to come lies below it."""
        if self.floor is not None:
            coming = self.window.positions if self._entry is None else self._entry.batch.starts
            left = {p: offset for p, offset in self.floor.items() if offset > coming.get(p, 0)}
            if len(left) < len(self.floor):
                self.floor = left or None
                self._simplify()

    def untouched(self, entry: Entry) -> bool:
        """Whether all of the newest entry is to be sent as it is, though there is a floor: the partitions
        below it are idle. (It resumed beyond their last events, and nobody knows if any are to come.)"""
        floor = self.floor
        if floor is None or self.limits or self.until is not None or self.join is not None:
            return False
        before, after = entry.batch.starts, self.window.positions
        return all(before.get(p) == after.get(p) for p in floor)

    # --- reading ---------------------------------------------------------------------------

    @property
    def awaits_query(self) -> bool:
        """Whether what is next is postponed: its query is being evaluated."""
        return self._entry is not None and self.feed.awaited(self.group, self._entry)

    def offer(self, max_bytes: int, max_events: int | None = None) -> Offer | None:
        """What may be sent now, at most `max_bytes` (or one event): None if nothing may.

        None also while a lag notice is due (`take_lag` first), or if the policy finds a loss.
        """
        if self.lag_due or not self._reads():
            return None
        if self._give_up_what_policy_says() or self.closed or not self._more() or self._waiting_limit:
            return None
        try:
            return self._assemble(max_bytes, max_events)
        except EncodingFailed as error:
            self.feed.group_failed(self.group, str(error))
            return None

    def _more(self) -> bool:
        """Whether there is something to read, here or in the window that it then goes on with."""
        while self.cursor >= self.window.head:
            window = self.window
            self._at_head()
            if self.window is window:
                return False
        return not (self.lag_due or self.closed)

    def _assemble(self, max_bytes: int, max_events: int | None) -> Offer | None:
        allowance = MAX_CREDIT if self.mode is Mode.PUSH else self.credits
        if max_events is not None:
            allowance = min(allowance, max_events)
        join = self.join
        offer = Offer([], 0, 0, [], join is not None)
        ending = self.state is State.ENDING
        while self._entry is not None and (allowance > offer.events or ending) and not self.lag_due:
            before = self.window, self._entry, self.cursor
            entry = self._entry if not offer.segments else offer.segments[-1].entry
            segment = self._segment(offer, entry, allowance - offer.events, max_bytes - offer.size)
            if segment is None and (self.window, self._entry, self.cursor) == before:
                break  # complete; where it moved, an event was stepped over: look again
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

    def sent(self, encoded: Encoded, events: int, entry: Entry) -> None:
        """Fan-out sent all of an entry directly."""
        self.cursor = entry.end
        self.scanned += len(entry.batch)
        self.matched += events
        self.bad += encoded.bad
        self.bytes += len(encoded.buffer)
        if self.mode is Mode.PULL:
            self.credits -= events

    def _segment(self, offer: Offer, entry: Entry, allowance: int, room: int) -> Segment | None:
        """Add the next run of events to an offer; None if the offer is complete."""
        if offer.segments:
            if self.floor is not None:
                return None
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
        stop = len(entry.batch)
        if self.floor is not None:
            first, stop = self._above_floor(entry, first, self.floor)
            if first == stop:
                return None
        encoded = self.feed.encoded(self.group, entry, wait=not offer.segments)
        if encoded is None:
            return None
        first_unsendable = bisect_left(encoded.unsendable, first)
        if first_unsendable < len(encoded.unsendable):
            stop = min(stop, encoded.unsendable[first_unsendable])
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

    def _loss_upto(self, stop: Entry | None) -> Loss:
        """What lies between the cursor and the first event of `stop` (None: the head), gaps included.
        Walks over every event: for readers with a floor, for whom sequence numbers say nothing."""
        loss = Loss()
        floor = self.floor or {}
        entry = self._entry
        index = 0 if entry is None else self.cursor - entry.base
        while entry is not None and entry is not stop:
            loss.add_events(entry.batch, index, floor)
            entry, index = entry.after, 0
            gap = entry.batch.gap if entry is not None else None
            if gap is not None:
                loss.add_gap(above(gap, floor))
        return loss

    def _above_floor(self, entry: Entry, first: int, floor: Positions) -> tuple[int, int]:
        """The next run of events that are not below the floor, none where it is behind this entry. The
        cursor moves over what comes before it."""
        size = len(entry.batch)
        following = self.window.positions if entry.after is None else entry.after.batch.starts
        index = size if reached(floor, following) else first
        partitions, offsets = entry.batch.partitions, entry.batch.offsets
        while index < size and offsets[index] < floor.get(partitions[index], 0):
            index += 1
        self.cursor = entry.base + index
        if index == size:
            self._park_after(entry)
            self._arrived()
            return size, size
        stop = index + 1
        while stop < size and offsets[stop] >= floor.get(partitions[stop], 0):
            stop += 1
        return index, stop

    def _within_limits(self, offer: Offer, encoded: Encoded, first: int, stop: int) -> int:
        for label, limit in self.limits.items():
            offered = sum(count(s.encoded.tally_of(label), s.first, s.last) for s in offer.segments)
            stop = min(stop, nearest(encoded.tally_of(label), first, limit.left - offered))
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
        if self.place is not None:
            self.feed.events_replayed += events
            if upto == len(segment.entry.batch):
                self.place.changed()
        elif self.blocks:
            self.feed.freed()
        if upto == len(segment.entry.batch):
            self._park_after(segment.entry)
        elif self._entry is not segment.entry:
            self._unpark()
            self._park(segment.entry)
        for label, limit in self.limits.items():
            limit.left -= count(encoded.tally_of(label), segment.first, upto)

    def _skip_read(self) -> None:
        """Entering an entry: what the source lost before it is a loss of this subscription."""
        entry = self._entry
        if entry is None:
            return
        if self._source_lost(entry):
            gap = entry.batch.gap
            dropped, unknown = entry.lost - self._lost_mark, entry.unknown != self._unknown_mark
            self._lost_mark, self._unknown_mark = entry.lost, entry.unknown
            if gap is not None and self.floor is not None:
                gap = above(gap, self.floor)
                dropped, unknown = (gap.count or 0, gap.count is None) if gap is not None else (0, False)
            if dropped or unknown:
                self._account(dropped, gap.ranges if gap is not None else {}, unknown=unknown)
        if self.floor is not None:
            self._pass_floor()

    def _source_lost(self, entry: Entry) -> bool:
        return entry.lost != self._lost_mark or entry.unknown != self._unknown_mark

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
        """So much was given up: it is announced before anything else is sent."""
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
