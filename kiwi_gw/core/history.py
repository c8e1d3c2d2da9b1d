"""Reading a source again: who waits for it, and the readers that serve them.

Theory of operation. A subscription below the source's window keeps exact positions and waits. As soon as
its client can be sent to it asks for a place: in the source's window, if that reaches it after all; in a
reader that is near; else it waits for a reader of its own, which it then shares with everyone near it. A
reader has a small window of the same class; its members read it as others read the source's, with cursor,
credits and fragments. Whoever drives it (`runtime.history`) reads up to `aim`, hands over what was read with
`take`, and waits while it does not fit. A place is held only while the client can be sent to: who stands
still, or is overtaken by the small window, is put back among those who wait, with exact positions.

The aim is the `starts` of a batch in the middle of the source's window: early enough to be there still when
the reader arrives. Nothing at or beyond the aim is read from history, so a member that has had everything
up to there goes on in the window with no event missing and none twice. If the window moved on meanwhile,
so does the aim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from kiwi_gw.core.places import ahead, below, furthest, nearest, reached
from kiwi_gw.core.starts import Begin, Where, within
from kiwi_gw.core.states import State
from kiwi_gw.core.window import ENTRY_OVERHEAD, Budget, Entry, Window
from kiwi_gw.model import Batch, Extent, Positions

if TYPE_CHECKING:
    from kiwi_gw.core.feed import Feed
    from kiwi_gw.core.subscription import Subscription

NEAR_EVENTS = 65_536
"""How far apart subscriptions may be that share a reader. Those that fell out of a window of the default size
within one turn of it are that near; reading so much in vain takes a fraction of a second."""

GATHER_SECONDS, GATHER_AT_MOST_SECONDS = 0.15, 2.0
"""A reader is opened when for the first of these times nobody new has come to wait, or when somebody has
waited for the second: a thousand clients that come back after a restart are to share one reader."""

KNOWN_SECONDS = 1.0
"""For so long what history said it has is taken to be there: a thousand clients that come back one after the
other are not to wait for an answer each."""

STANDSTILL_SECONDS = 0.2
"""A member that has something to read and has not moved for so long cannot be sent to."""

_WAKE_AT_ONCE = 16


class SharedReader:
    """One place in a source's history, and the subscriptions that read there.

    changed: called when its driver may have something to do: room, another member, none any more.
    """

    def __init__(self, replay: Replay, feed: Feed, start: Positions, budget: Budget) -> None:
        self.window = Window(feed.limits.history_events, feed.limits.history_bytes, budget, start)
        self.members: dict[Subscription, tuple[int, float]] = {}  # cursor, and when it was first seen there
        self.changed: Callable[[], None] = _nothing
        self.closed = False
        self._idle: dict[Subscription, None] = {}
        self._mark: Entry | None = None  # no member is in an entry before it
        self._replay = replay
        self._feed = feed
        self._aim: Positions | None = None

    @property
    def positions(self) -> Positions:
        """Where it reads next."""
        return self.window.positions

    @property
    def starving(self) -> bool:
        """Whether a member has had everything that was read, and waits for more."""
        return bool(self._idle)

    @property
    def arrived(self) -> bool:
        """Whether everything below the aim was read."""
        return reached(self.positions, self.aim())

    def aim(self) -> Positions:
        """Read up to here. It never moves back."""
        window = self._feed.window
        if self._aim is None or not window.reaches(self._aim):
            middle = window.find((window.base + window.head) // 2)
            aim = window.positions if middle is None else middle.batch.starts
            self._aim = aim if self._aim is None else furthest(aim, self._aim)
        return self._aim

    def fits(self, batch: Batch) -> bool:
        """Whether there is room for it without taking what a member has not read yet."""
        window = self.window
        entry = self._slowest()
        if entry is None or not entry.parked:
            return True
        return (
            window.head - entry.base + len(batch) <= window.max_events
            and window.taken - entry.before + batch.cost + ENTRY_OVERHEAD <= window.max_bytes
            and not window.short_of_memory
        )

    def take(self, batch: Batch) -> Iterator[None]:
        """Hand over what was read. Yields when it has served some members, so that others get their turn.

        ValueError: it repeats what was taken.
        """
        aim, here = self.aim(), self.positions
        # A position beyond the aim is one behind a hole. What the window still holds of that hole is to be
        # sent, so nobody may seem to have had it.
        ends = {
            p: min(offset, max(aim[p], here.get(p, 0))) if p in aim else offset
            for p, offset in batch.starts.items()
        }
        gap = below(batch.gap, aim) if batch.gap is not None else None
        batch = replace(batch, starts=ends, gap=gap)
        if not len(batch) and batch.gap is None:
            self.window.reset(batch.starts)
        else:
            entry = self.window.append(batch, self._feed.evicted)
            idle, self._idle = list(self._idle), {}
            for member in idle:
                self.members[member] = member.cursor, inf  # it cannot stand still before it is woken
                member.read_on(entry)
            for served, member in enumerate(idle, 1):
                if member.place is self:
                    self._seen(member)
                # Also one that has lost its place meanwhile: it has to ask for another.
                if not member.closed:
                    member.outlet.wake(member)
                    if served % _WAKE_AT_ONCE == 0:
                        yield
            self._slowest()
        self.join()
        yield

    def join(self) -> None:
        """Those who have had everything go on in the source's window, if it reaches them."""
        for member in list(self._idle):
            self.finished(member)

    def admits(self, here: Positions) -> bool:
        """Whether one that is at `here` can read on in it, and soon."""
        window, missing = self.window, ahead(here, self.positions)
        if missing > NEAR_EVENTS or not window.reaches(here):
            return False
        # What lies before it must fit in, or it would wait for the slowest of those who read here.
        slowest = self._slowest()
        held = window.head - slowest.base if slowest is not None and slowest.parked else 0
        return not missing or held + missing <= window.max_events

    def admit(self, subscription: Subscription) -> None:
        subscription.take_place(self)
        entry = self.window.find(subscription.cursor)
        if entry is not None and self._mark is not None and entry.base < self._mark.base:
            self._mark = entry
        self._seen(subscription)
        if subscription.cursor == self.window.head:
            self._idle[subscription] = None
        subscription.outlet.wake(subscription)
        self.changed()

    def left(self, subscription: Subscription) -> None:
        """A member has joined the window, lost its place or ended (called by itself)."""
        self.members.pop(subscription, None)
        self._idle.pop(subscription, None)
        self.changed()

    def finished(self, subscription: Subscription) -> None:
        """A member has had all that was read (called by itself): it joins the window, or waits for more."""
        if self._feed.window.reaches(subscription.positions):
            self._idle.pop(subscription, None)
            subscription.join_window()
        else:
            self._idle[subscription] = None
            self.changed()

    def sweep(self, now: float) -> None:
        """Put back those who stand still. One whose query takes long stays where it is in nobody's way: its
        events would be read again, and evaluated from the beginning."""
        for member, (cursor, since) in list(self.members.items()):
            alone = len(self.members) == 1 and not self._replay.starved
            if member.cursor != cursor or member in self._idle or (alone and member.awaits_query):
                self.members[member] = member.cursor, now
            elif now - since >= STANDSTILL_SECONDS:
                member.lose_place()

    def close(self) -> None:
        """Let go of everything. Those who are still there wait for another reader."""
        if self.closed:
            return
        self.closed = True
        self._replay.closed(self)
        members = list(self.members)
        for member in members:
            member.lose_place()
        self.window.clear(self._feed.evicted)
        for member in members:
            if member.state is State.HISTORY_WAITING:
                member.outlet.wake(member)  # it asks again as soon as it can be sent to
        self.changed()

    def _slowest(self) -> Entry | None:
        """The entry that the slowest member is in, or the newest. Encodings of those before it are let go:
        whoever comes later has them made again, and a long replay holds no more than it needs."""
        entry = self._mark
        if entry is None or entry.base < self.window.base:
            entry = self.window.oldest
        while entry is not None and not entry.parked and entry.after is not None:
            self._feed.read_by_all(entry)
            entry = entry.after
        self._mark = entry
        return entry

    def _seen(self, member: Subscription) -> None:
        self.members[member] = member.cursor, self._feed.now


class Replay:
    """The history of one source, from the side of those who read it.

    changed: called when there is something new to do for whoever opens readers.
    """

    def __init__(self, feed: Feed, budget: Budget) -> None:
        self.readers: list[SharedReader] = []
        self.changed: Callable[[], None] = _nothing
        self.opened = 0
        self._feed = feed
        self._budget = budget
        self._waiting: dict[Subscription, None] = {}
        self._gathers_since = self._last_came = 0.0
        self._extent: Extent | None = None
        self._asked_at = -inf

    # --- where to begin --------------------------------------------------------------------

    def has(self, extent: Extent, asked_at: float) -> None:
        """What history can be read again, as it was when that was asked."""
        self._extent, self._asked_at = extent, asked_at

    def begin(self, where: Where) -> Begin | None:
        """Where that is, if it is in what history had a moment ago; None: it must be asked."""
        if self._extent is None or self._feed.now - self._asked_at >= KNOWN_SECONDS:
            return None
        return within(where, self._extent, self._feed.window.positions)

    # --- who waits -------------------------------------------------------------------------

    @property
    def opens_in(self) -> float | None:
        """Seconds until a reader is to be opened for those who wait; None where none is."""
        if not self._waiting or len(self.readers) >= self._feed.limits.history_readers:
            return None
        at = min(self._last_came + GATHER_SECONDS, self._gathers_since + GATHER_AT_MOST_SECONDS)
        return max(0.0, at - self._feed.now)

    @property
    def starved(self) -> bool:
        """Whether somebody waits and no further reader may be opened."""
        return bool(self._waiting) and len(self.readers) >= self._feed.limits.history_readers

    def asked(self, subscription: Subscription) -> bool:
        return subscription in self._waiting

    def ask(self, subscription: Subscription) -> None:
        """A subscription below the window can be sent to, and wants to read on."""
        if subscription not in self._waiting and not self._place(subscription):
            self._last_came = self._feed.now
            if not self._waiting:
                self._gathers_since = self._last_came
            self._waiting[subscription] = None
            self.changed()
            if self.starved:
                for reader in self.readers:
                    if not reader.members:
                        reader.changed()  # it is in others' way

    def withdrawn(self, subscription: Subscription) -> None:
        """It waits no longer (called by itself)."""
        self._waiting.pop(subscription, None)

    def open(self) -> SharedReader | None:
        """A reader for whoever has waited longest, and for all who are near; None if nobody waits or there
        are enough readers. It begins with the earliest position of them."""
        if len(self.readers) >= self._feed.limits.history_readers:
            return None
        self.pass_by()
        first = next(iter(self._waiting), None)
        if first is None:
            return None
        here = start = first.positions
        near: list[Subscription] = []
        for other in self._waiting:
            there = other.positions
            if ahead(there, here) + ahead(here, there) <= NEAR_EVENTS:
                near.append(other)
                start = nearest(start, there)
        reader = SharedReader(self, self._feed, start, self._budget)
        self.readers.append(reader)
        self.opened += 1
        for subscription in near:
            if subscription in self._waiting:  # an earlier one's turn may have ended it
                reader.admit(subscription)
        return reader

    def pass_by(self) -> None:
        """Readers move on: some who wait may be near one now."""
        for subscription in list(self._waiting):
            if subscription in self._waiting:
                self._place(subscription)

    def closed(self, reader: SharedReader) -> None:
        """A reader is gone (called by itself)."""
        self.readers.remove(reader)
        self.changed()

    def sweep(self, now: float) -> None:
        for reader in list(self.readers):
            reader.sweep(now)
        # Whoever drives a reader may be stopped half-way: nobody who can be sent to is to wait in vain.
        for subscription in self._feed.waiting_for_history():
            if subscription.readable:
                subscription.outlet.wake(subscription)

    def close(self) -> None:
        """The source is not to be read now: everyone waits, and what it had may be gone when it is."""
        self._extent = None
        for reader in list(self.readers):
            reader.close()

    def _place(self, subscription: Subscription) -> bool:
        here = subscription.positions
        if self._feed.window.reaches(here):
            subscription.join_window()
            return True
        for reader in self.readers:
            if reader.admits(here):
                reader.admit(subscription)
                return True
        return False


def _nothing() -> None:
    """Nobody drives it yet."""
