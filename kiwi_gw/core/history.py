"""Reading a source again: who waits for it, and the readers that serve them.

Theory of operation. A subscription below the source's window keeps exact positions and waits. As soon as
its client can be sent to it asks for a place: in the source's window, if that reaches it after all; in a
reader that is near; else it waits for a reader of its own, which it then shares with everyone near it. A
reader has a small window of the same class; its members read it as others read the source's, with cursor,
credits and fragments. Its driver (`runtime.history_task`) reads up to `catch_up_target`, hands over what was
read with `take`, and waits while it does not fit. A place is held only while the client can be sent to: one
that stands still, or is overtaken by the small window, is put back among those who wait, with exact
positions.

The catch-up target is the `starts` of a batch in the middle of the source's window: early enough to be there
still when the reader arrives. Nothing at or beyond it is read from history, so a member that has had
everything up to there goes on in the window with no event missing and none twice. If the window moved on
meanwhile, so does the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import cast

from kiwi_gw.core.hub_interface import Hub
from kiwi_gw.core.positions import ahead, below, earliest, furthest, reached
from kiwi_gw.core.start_resolution import RequestedStart, ResolvedStart, resolve_in_known_range
from kiwi_gw.core.states import SubscriptionInput, SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD, MemoryBudget, Window, WindowEntry
from kiwi_gw.model import Batch, OffsetRange, Positions

NEAR_EVENTS = 65_536
"""How far apart subscriptions may be that share a reader. Those that fell out of a window of the default size
within one turn of it are that near; reading so much in vain takes a fraction of a second."""

GATHER_SECONDS, GATHER_AT_MOST_SECONDS = 0.15, 2.0
"""A reader is opened when for the first of these times no other has come to wait, or when one has waited
for the second: a thousand clients that come back after a restart are to share one reader."""

GATHER_ALONE_SECONDS = 0.02
"""The same instead of the first, where the last that came reads up to an end or page by page: it asks a
question, and is not one of a thousand that come back."""

KNOWN_SECONDS = 1.0
"""For so long what history said it has is taken to be there: a thousand clients that come back one after the
other are not to wait for an answer each."""

STANDSTILL_SECONDS = 0.2
"""A member that has something to read and has not moved for so long cannot be sent to."""

_WAKE_AT_ONCE = 16


class SharedHistoryReader:
    """One place in a source's history, and the subscriptions that read there.

    on_changed: called when its driver may have something to do: room, another member, none any more.
    """

    def __init__(
        self, queue: HistoryQueue, hub: Hub[Subscription], start: Positions, budget: MemoryBudget
    ) -> None:
        self.window = Window(hub.limits.history_events, hub.limits.history_bytes, budget, start)
        self.members: dict[Subscription, tuple[int, float]] = {}  # `seq`, and when it was first there
        self.on_changed: Callable[[], None] = _nothing
        self.closed = False
        self._idle: dict[Subscription, None] = {}
        self._mark: WindowEntry | None = None  # no member is in an entry before it
        self._queue = queue
        self._hub = hub
        self._target: Positions | None = None

    @property
    def positions(self) -> Positions:
        """Where it reads next."""
        return self.window.positions

    @property
    def starving(self) -> bool:
        """Whether a member has had everything that was read, and waits for more."""
        return bool(self._idle)

    @property
    def for_queries(self) -> bool:
        """Whether all of its members have queries."""
        return all(member.group.costs is not None for member in self.members)

    @property
    def arrived(self) -> bool:
        """Whether everything below the catch-up target was read."""
        return reached(self.positions, self.catch_up_target())

    def catch_up_target(self) -> Positions:
        """Read up to here. It never moves back."""
        window = self._hub.window
        if self._target is None or not window.reaches(self._target):
            middle = window.find((window.base + window.head) // 2)
            target = window.positions if middle is None else middle.batch.starts
            self._target = target if self._target is None else furthest(target, self._target)
        return self._target

    @property
    def waits_for_turns(self) -> bool:
        """Say whether some of the slowest members wait for others, and not for their clients."""
        entry = self._slowest()
        return entry is not None and any(map(_awaits_turn, cast("Iterable[Subscription]", entry.parked)))

    def fits(self, batch: Batch) -> bool:
        """Say whether there is room for it without taking what a member has not read yet."""
        window = self.window
        entry = self._slowest()
        if entry is None or not entry.parked:
            return True
        return (
            window.head - entry.base + len(batch) <= window.max_events
            and window.bytes_taken - entry.bytes_before + batch.cost + ENTRY_OVERHEAD <= window.max_bytes
            and not window.short_of_memory
        )

    def take(self, batch: Batch) -> Iterator[None]:
        """Hand over what was read. Yields when it has served some members, so that others get their turn.

        ValueError: it repeats what was taken.
        """
        target, here = self.catch_up_target(), self.positions
        # A position beyond the target is one behind a hole. What the window still holds of that hole is to be
        # sent, so no member may seem to have had it.
        ends = {
            p: min(offset, max(target[p], here.get(p, 0))) if p in target else offset
            for p, offset in batch.starts.items()
        }
        gap = below(batch.gap, target) if batch.gap is not None else None
        batch = replace(batch, starts=ends, gap=gap)
        if not len(batch) and batch.gap is None:
            self.window.reset(batch.starts)
        else:
            entry = self.window.append(batch, self._hub.evicted)
            idle, self._idle = list(self._idle), {}
            for member in idle:
                self.members[member] = member.seq, inf  # it cannot stand still before it is woken
                member.reader.cursor.park(entry)
            for served, member in enumerate(idle, 1):
                if member.history_reader is self:
                    self._record_progress(member)
                # Also one that has lost its place meanwhile: it has to ask for another.
                member.mark_ready()
                if served % _WAKE_AT_ONCE == 0:
                    self._hub.effects.hand_out()
                    yield
            self._hub.effects.hand_out()
            self._slowest()
        self.join()
        yield

    def join(self) -> None:
        """Have those who have had everything go on in the source's window, if it reaches them."""
        for member in list(self._idle):
            self.finished(member)
        self._hub.effects.hand_out()

    def admits(self, here: Positions) -> bool:
        """Say whether one that is at `here` can read on in it, and soon."""
        window, missing = self.window, ahead(here, self.positions)
        if missing > NEAR_EVENTS or not window.reaches(here):
            return False
        # What lies before it must fit in, or it would wait for the slowest of those who read here.
        slowest = self._slowest()
        held = window.head - slowest.base if slowest is not None and slowest.parked else 0
        return not missing or held + missing <= window.max_events

    def admit(self, subscription: Subscription) -> None:
        here = subscription.positions
        subscription.history_reader = self
        subscription.apply(SubscriptionInput.READER_ASSIGNED)
        subscription.reader.cursor.enter(self.window, here)
        entry = self.window.find(subscription.seq)
        if entry is not None and self._mark is not None and entry.base < self._mark.base:
            self._mark = entry
        self._record_progress(subscription)
        if subscription.reader.cursor.at_head:
            self._idle[subscription] = None
        subscription.mark_ready()
        self.on_changed()

    def member_left(self, subscription: Subscription) -> None:
        """Forget a member that has joined the window, lost its place or ended (called by itself)."""
        self.members.pop(subscription, None)
        self._idle.pop(subscription, None)
        self.on_changed()

    def finished(self, subscription: Subscription) -> None:
        """Have a member that has had all that was read join the window, or wait for more (called by
        itself)."""
        if subscription.end_if_reached():
            return  # behind its last event there was only a hole
        if self._hub.window.reaches(subscription.positions):
            self._idle.pop(subscription, None)
            _join_window(subscription)
        else:
            self._idle[subscription] = None
            self.on_changed()

    def sweep(self, now: float) -> None:
        """Put back those who stand still. One whose query takes long stays where it is in no other's way: its
        events would be read again, and evaluated from the beginning."""
        for member, (seq, since) in list(self.members.items()):
            alone = len(self.members) == 1 and not self._queue.starved
            has_moved = member.seq != seq or member in self._idle or _awaits_turn(member)
            if has_moved or (alone and _awaits_query(member)):
                self.members[member] = member.seq, now
            elif now - since >= STANDSTILL_SECONDS:
                member.wait_for_history(member.positions)

    def close(self) -> None:
        """Let go of everything. Those who are still there wait for another reader."""
        if self.closed:
            return
        self.closed = True
        self._queue.closed(self)
        members = list(self.members)
        for member in members:
            member.wait_for_history(member.positions)
        self.window.clear(self._hub.evicted)
        for member in members:
            if member.state is SubscriptionState.HISTORY_WAITING:
                member.mark_ready()  # it asks again as soon as it can be sent to
        self.on_changed()
        self._hub.effects.hand_out()

    def _slowest(self) -> WindowEntry | None:
        """Find the entry that the slowest member is in, or the newest. Encodings of those before it are let
        go: who comes later has them made again, and a long replay holds no more than it needs."""
        entry = self._mark
        if entry is None or entry.base < self.window.base:
            entry = self.window.oldest
        while entry is not None and not entry.parked and entry.next is not None:
            self._hub.memo.forget(entry)
            entry = entry.next
        self._mark = entry
        return entry

    def _record_progress(self, member: Subscription) -> None:
        self.members[member] = member.seq, self._hub.now


class HistoryQueue:
    """The history of one source, from the side of those who read it.

    on_changed: called when there is something new to do for what opens readers.
    """

    def __init__(self, hub: Hub[Subscription], budget: MemoryBudget) -> None:
        self.readers: list[SharedHistoryReader] = []
        self.on_changed: Callable[[], None] = _nothing
        self.opened = 0
        self._hub = hub
        self._budget = budget
        self._waiting: dict[Subscription, None] = {}
        self._gathers_since = self._last_came = 0.0
        self._gather_seconds = GATHER_SECONDS
        self._offset_range: OffsetRange | None = None
        self._asked_at = -inf

    # --- where to begin --------------------------------------------------------------------

    def set_offset_range(self, offset_range: OffsetRange, asked_at: float) -> None:
        """Note what history can be read again, as it was when that was asked."""
        self._offset_range, self._asked_at = offset_range, asked_at

    def resolve_if_known(self, where: RequestedStart) -> ResolvedStart | None:
        """Find where that is, if it is in what history had a moment ago; None: it must be asked."""
        if self._offset_range is None or self._hub.now - self._asked_at >= KNOWN_SECONDS:
            return None
        return resolve_in_known_range(where, self._offset_range, self._hub.window.positions)

    # --- who waits -------------------------------------------------------------------------

    @property
    def opens_in(self) -> float | None:
        """Seconds until a reader is to be opened for those who wait; None where none is."""
        if not self._waiting or len(self.readers) >= self._hub.limits.history_readers:
            return None
        at = min(self._last_came + self._gather_seconds, self._gathers_since + GATHER_AT_MOST_SECONDS)
        return max(0.0, at - self._hub.now)

    @property
    def starved(self) -> bool:
        """Whether some wait and no further reader may be opened."""
        return bool(self._waiting) and len(self.readers) >= self._hub.limits.history_readers

    def is_queued(self, subscription: Subscription) -> bool:
        return subscription in self._waiting

    def enqueue(self, subscription: Subscription) -> None:
        """Find a place for a subscription below the window that can be sent to, or have it wait for one."""
        if subscription not in self._waiting and not self._assign_reader(subscription):
            self._last_came = self._hub.now
            self._gather_seconds = GATHER_SECONDS if subscription.gathers else GATHER_ALONE_SECONDS
            if not self._waiting:
                self._gathers_since = self._last_came
            self._waiting[subscription] = None
            self.on_changed()
            if self.starved:
                for reader in self.readers:
                    if not reader.members:
                        reader.on_changed()  # it is in others' way

    def remove(self, subscription: Subscription) -> None:
        """Let one wait no longer (called by itself)."""
        self._waiting.pop(subscription, None)

    def open(self) -> SharedHistoryReader | None:
        """Make a reader for the one that has waited longest, and for all who are near; None if none waits or
        there are enough readers. It begins with the earliest position of them."""
        if len(self.readers) >= self._hub.limits.history_readers:
            return None
        self._assign_readers()
        first = next(iter(self._waiting), None)
        if first is None:
            self._hub.effects.hand_out()
            return None
        here = start = first.positions
        near: list[Subscription] = []
        for other in self._waiting:
            there = other.positions
            if ahead(there, here) + ahead(here, there) <= NEAR_EVENTS:
                near.append(other)
                start = earliest(start, there)
        reader = SharedHistoryReader(self, self._hub, start, self._budget)
        self.readers.append(reader)
        self.opened += 1
        for subscription in near:
            reader.admit(subscription)
        self._hub.effects.hand_out()
        return reader

    def pass_by(self) -> None:
        """Look whether some who wait are near a reader now: readers move on."""
        self._assign_readers()
        self._hub.effects.hand_out()

    def _assign_readers(self) -> None:
        for subscription in list(self._waiting):
            self._assign_reader(subscription)

    def closed(self, reader: SharedHistoryReader) -> None:
        """Forget a reader that is gone (called by itself)."""
        self.readers.remove(reader)
        self.on_changed()

    def sweep(self, now: float) -> None:
        for reader in list(self.readers):
            reader.sweep(now)
        # What drives a reader may be stopped half-way: none who can be sent to is to wait in vain.
        for subscription in self._hub.waiting_for_history():
            subscription.read_on()

    def close(self) -> None:
        """Have all wait while the source is not to be read; what it had may be gone when it is again."""
        self._offset_range = None
        for reader in list(self.readers):
            reader.close()

    def _assign_reader(self, subscription: Subscription) -> bool:
        here = subscription.positions
        if self._hub.window.reaches(here):
            _join_window(subscription)
            return True
        for reader in self.readers:
            if reader.admits(here):
                reader.admit(subscription)
                return True
        return False


def _awaits_query(member: Subscription) -> bool:
    """Say whether what is next is postponed: its query is being evaluated."""
    entry = member.reader.cursor.entry
    return entry is not None and member.group.awaited(entry)


def _awaits_turn(member: Subscription) -> bool:
    """Say whether it would be sent something if others were not before it."""
    return member.writer.awaits_turn and member.readable


def _join_window(subscription: Subscription) -> None:
    """Read on in the source's window, which reaches where history has brought it."""
    hub, cursor = subscription.hub, subscription.reader.cursor
    cursor.enter(hub.window, subscription.positions)
    subscription.apply(SubscriptionInput.JOINED)
    if not hub.over and cursor.at_head:
        subscription.join_head()  # it would not be found there when the next batch comes
    subscription.hub.end_if_over(subscription)
    subscription.mark_ready()


def _nothing() -> None:
    """Do nothing: it is not driven yet."""
