"""A place in a window: the number of the next event, the entry that holds it, and what was lost before it.

Theory of operation. A reader that is not at the head is *parked* in the entry that holds its next event, so
that eviction finds it. It walks from entry to entry; what the source itself lost before an entry goes into
the ledger when the entry is entered. While no window holds the next event, `below` says where it is.

A reader that comes from another place (a start in the past, history) has a *resume floor*: it has had every
event below those positions, in another order of the partitions. They are stepped over and count as nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from kiwi_gw.core.lag_ledger import LagLedger
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.positions import above, between, furthest, reached
from kiwi_gw.core.window import ParkedReader, Window, WindowEntry
from kiwi_gw.model import Positions


class WindowCursor:
    """See the top of this file.

    seq: the number of the next event, -1 before there is one. reader: who is parked. lost_mark,
    unknown_mark: what of the window's losses is behind it.
    """

    __slots__ = (
        "_ledger",
        "_lost_mark",
        "_reader",
        "_unknown_mark",
        "below",
        "entry",
        "resume_floor",
        "seq",
        "window",
    )

    def __init__(self, window: Window, ledger: LagLedger, reader: ParkedReader) -> None:
        self.window = window
        self.seq = -1
        self.entry: WindowEntry | None = None
        self.below: Positions | None = None
        self.resume_floor: Positions | None = None
        self._ledger = ledger
        self._reader: ParkedReader | None = reader
        self._lost_mark = 0
        self._unknown_mark = 0

    # --- where it is -----------------------------------------------------------------------

    @property
    def positions(self) -> Positions:
        """Where the next event is."""
        here = self._here()
        return here if self.resume_floor is None else furthest(here, self.resume_floor)

    def _here(self) -> Positions:
        if self.entry is not None:
            return self.entry.batch.positions_at(self.seq - self.entry.base)
        if self.below is not None:
            return self.below
        newest = self.window.newest
        if 0 <= self.seq < self.window.head and newest is not None:
            return newest.batch.starts  # at the head, but fan-out has not come to it yet
        return self.window.positions

    @property
    def at_head(self) -> bool:
        """Whether no event is left in its window."""
        return self.seq >= self.window.head

    @property
    def caught_up(self) -> bool:
        """Whether it has had every event of its window, and knows of everything that the source lost."""
        return self.at_head and not self.misses(self.window)

    def misses(self, known: WindowEntry | Window) -> bool:
        """Say whether the source lost something up to there that this reader does not know of."""
        return known.lost != self._lost_mark or known.unknown != self._unknown_mark

    @property
    def marks(self) -> tuple[int, int]:
        """What of the window's losses is behind it: events, and gaps that cannot be counted."""
        return self._lost_mark, self._unknown_mark

    # --- entering --------------------------------------------------------------------------

    def start_at_head(self) -> None:
        """Begin with the next event that the window takes."""
        self.seq = self.window.head
        self._lost_mark, self._unknown_mark = self.window.lost, self.window.unknown

    def enter(self, window: Window, here: Positions) -> None:
        """Go on in this window from `here`, which it must reach."""
        self.unpark()
        entry = window.entry_at(here)
        known = entry or window  # whatever was lost up to there was lost below `here`
        self.window, self.below = window, None
        self.seq = window.head if entry is None else entry.base
        self._lost_mark, self._unknown_mark = known.lost, known.unknown
        self.resume_floor = here
        if entry is not None:
            self._park(entry)
        self.pass_floor()

    def enter_at(self, window: Window, seq: int, here: Positions, marks: tuple[int, int]) -> bool:
        """Go on in this window with the event of this number, which it has held. Whether it still does; if
        not, the cursor is below it, at `here`."""
        self.unpark()
        self.window, self.seq, self.below = window, seq, None
        self._lost_mark, self._unknown_mark = marks
        if seq < window.base:
            self.below = here
            return False
        entry = window.find_first(seq)
        while entry is not None and (entry.lost, entry.unknown) < marks:  # no event, and known already
            entry = entry.next
        if entry is not None:
            self.park(entry)
        while self.entry is not None and self.at_head:  # no events, but what was lost before them
            self.step(self.entry)
        return True

    def enter_page(self, window: Window, entry: WindowEntry, skipped: int) -> None:
        """Go on in a window of one entry, behind so many of its events."""
        self.unpark()
        self.window, self.seq, self.below = window, skipped, None
        self._lost_mark = self._unknown_mark = 0
        self.park(entry)

    def leave(self, window: Window, here: Positions) -> None:
        """Wait at `here`, until a window is entered. window: the source's."""
        self.unpark()
        self.window, self.below, self.resume_floor = window, here, None

    def close(self) -> None:
        """Read no more."""
        self.unpark()
        self._reader = None

    # --- moving ----------------------------------------------------------------------------

    def park(self, entry: WindowEntry) -> None:
        """Go on in this entry: what the source lost before it is a loss of this reader."""
        self._park(entry)
        if self.misses(entry):
            gap = entry.batch.gap
            dropped, unknown = entry.lost - self._lost_mark, entry.unknown != self._unknown_mark
            self._lost_mark, self._unknown_mark = entry.lost, entry.unknown
            if gap is not None and self.resume_floor is not None:
                gap = above(gap, self.resume_floor)
                dropped, unknown = (gap.count or 0, gap.count is None) if gap is not None else (0, False)
            if dropped or unknown:
                self._ledger.add(dropped, gap.ranges if gap is not None else {}, unknown=unknown)
        if self.resume_floor is not None:
            self.pass_floor()

    def step(self, entry: WindowEntry) -> None:
        """Go on behind this entry."""
        self.unpark()
        if entry.next is not None:
            self.park(entry.next)

    def move(self, entry: WindowEntry, index: int) -> None:
        """Go on with the event of this index in an entry, or behind the entry."""
        self.seq = entry.base + index
        if index == len(entry.batch):
            self.step(entry)
        elif self.entry is not entry:
            self.unpark()
            self._park(entry)

    def unpark(self) -> None:
        """Be in no entry."""
        if self.entry is not None:
            if self._reader is not None:
                self.entry.parked.pop(self._reader, None)
            self.entry = None

    def evicted(self, entry: WindowEntry, positions: Callable[[int], Positions]) -> Positions:
        """Leave an entry that has left the window. Returns where the next event is. positions: of its
        events, by their index."""
        here = positions(self.seq - entry.base)
        self.entry = None
        return here if self.resume_floor is None else furthest(here, self.resume_floor)

    def _park(self, entry: WindowEntry) -> None:
        self.entry = entry
        if self._reader is not None:
            entry.parked[self._reader] = None

    # --- giving up -------------------------------------------------------------------------

    def way_to(self, stop: int) -> tuple[Loss, Positions, tuple[int, int]]:
        """Find what lies before event `stop` of its window, which holds it, and the positions and `marks`
        there. For one without a resume floor."""
        window, entry = self.window, self.window.find(stop)
        known = entry or window  # everything that the source lost up to here
        there = window.positions if entry is None else entry.batch.positions_at(stop - entry.base)
        dropped = stop - self.seq + known.lost - self._lost_mark
        loss = Loss(dropped, known.unknown != self._unknown_mark, between(self.positions, there))
        return loss, there, (known.lost, known.unknown)

    def skip_to(self, entry: WindowEntry | None) -> Loss:
        """Go on with the first event of an entry (None: at the head), and return what lies between. For one
        with a resume floor."""
        loss = self.loss_upto(entry)
        known = entry or self.window
        self.seq = self.window.head if entry is None else entry.base
        self._lost_mark, self._unknown_mark = known.lost, known.unknown
        self.unpark()
        if entry is not None:
            self._park(entry)
        self.pass_floor()
        return loss

    def loss_upto(self, stop: WindowEntry | None) -> Loss:
        """Count what lies between the cursor and the first event of `stop` (None: the head), gaps included.
        Walks over every event: for readers with a resume floor, for whom numbers say nothing."""
        loss = Loss()
        floor = self.resume_floor or {}
        entry = self.entry
        index = 0 if entry is None else self.seq - entry.base
        while entry is not None and entry is not stop:
            loss.add_events(entry.batch, index, floor)
            entry, index = entry.next, 0
            gap = entry.batch.gap if entry is not None else None
            if gap is not None:
                loss.add_gap(above(gap, floor))
        return loss

    def rest_of(self, entry: WindowEntry) -> Loss:
        """Count what is left of an entry that has left the window, and go on behind it."""
        loss = Loss()
        loss.add_events(entry.batch, self.seq - entry.base, self.resume_floor or {})
        self.seq = entry.end
        return loss

    # --- the resume floor ------------------------------------------------------------------

    def pass_floor(self) -> None:
        """Forget the floor in those partitions where no event to come lies below it."""
        if self.resume_floor is not None:
            coming = self.window.positions if self.entry is None else self.entry.batch.starts
            left = {p: offset for p, offset in self.resume_floor.items() if offset > coming.get(p, 0)}
            if len(left) < len(self.resume_floor):
                self.resume_floor = left or None

    def floor_is_idle(self, newest: WindowEntry) -> bool:
        """Say whether no partition with a floor has an event in the newest entry. (Such a reader resumed
        beyond their last events, and it is not known whether any are to come.)"""
        before, after = newest.batch.starts, self.window.positions
        return self.resume_floor is not None and all(before.get(p) == after.get(p) for p in self.resume_floor)

    def above_floor(self, entry: WindowEntry, floor: Positions) -> tuple[int, int]:
        """Find the next run of events that are not below the floor, none where it is behind this entry. The
        cursor moves over what comes before it."""
        size = len(entry.batch)
        following = self.window.positions if entry.next is None else entry.next.batch.starts
        index = size if reached(floor, following) else self.seq - entry.base
        partitions, offsets = entry.batch.partitions, entry.batch.offsets
        while index < size and offsets[index] < floor.get(partitions[index], 0):
            index += 1
        self.move(entry, index)
        stop = index
        while stop < size and offsets[stop] >= floor.get(partitions[stop], 0):
            stop += 1
        return index, stop
