"""The reading half of a subscription: its parts put together, without its states, its owner and its hub.

Theory of operation. Where the cursor is, what may be delivered from there, what was given up and how far the
reader is through a snapshot are four parts. What concerns more than one of them is here: where the next
event is, how far behind it is, what the overflow policy decides and what that does to the cursor. What comes
of it (a notice, an end, another state) is the subscription's: this says what happened, and calls no other.
"""

from __future__ import annotations

from collections import Counter

from kiwi_gw.core.assembly import AssemblyOutcome, EncodeEntry, assemble
from kiwi_gw.core.delivery import Delivery
from kiwi_gw.core.lag_ledger import LagLedger
from kiwi_gw.core.last_values import LastValues, SnapshotScan
from kiwi_gw.core.overflow import OverflowDecision, OverflowTerms, decide, newest_allowed
from kiwi_gw.core.positions import ahead, furthest, reached
from kiwi_gw.core.prepared import Prepared, SentPart
from kiwi_gw.core.snapshot_reader import SnapshotReader
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.window import ParkedReader, Window, WindowEntry
from kiwi_gw.core.window_cursor import WindowCursor
from kiwi_gw.model import OverflowPolicy, Positions


class SubscriptionReader:
    """See the top of this file. `window` is the source's, everywhere.

    parked: what is found in the window's entries. rereads: what leaves the window is read again; always with
    policy `replay`, with another one while it is on its way from a start in the past. waited_for: its policy
    is `block`, and the source has not waited too long for it (see `blocking`).
    """

    __slots__ = ("cursor", "delivery", "lag", "rereads", "snapshot", "terms", "waited_for")

    def __init__(
        self,
        window: Window,
        terms: OverflowTerms,
        delivery: Delivery,
        dropped_by: Counter[OverflowPolicy],
        parked: ParkedReader,
    ) -> None:
        self.terms = terms
        self.delivery = delivery
        self.lag = LagLedger(dropped_by, terms.policy)
        self.cursor = WindowCursor(window, self.lag, parked)
        self.snapshot: SnapshotReader | None = None
        self.rereads = terms.acting is OverflowPolicy.REPLAY
        self.waited_for = terms.policy is OverflowPolicy.BLOCK

    # --- where it is -----------------------------------------------------------------------

    @property
    def positions(self) -> Positions:
        """Where the next event is."""
        here = self.cursor.positions
        # The pages of a snapshot know nothing of what lies before them.
        return here if self.snapshot is None else furthest(self.snapshot.scan.here, here)

    def behind(self, window: Window) -> int:
        """Count the events between the next event and the head. Of a reader that comes from another place,
        whose events have not been counted: offsets, but no more than there are events; a source's offsets
        need not follow one another."""
        cursor = self.cursor
        if cursor.resume_floor is not None:
            offsets = ahead(window.positions, self.positions)
            return min(offsets, window.head - cursor.seq) if cursor.window is window else offsets
        if self.snapshot is not None:
            return self.snapshot.behind(cursor) + window.head - self.snapshot.scan.stop
        return window.head - cursor.seq if cursor.seq >= 0 else 0

    def unsent(self, window: Window) -> tuple[int, bool]:
        """Count the events it has not had, and say whether that is not all of it."""
        if self.cursor.resume_floor is not None:
            loss = self.cursor.loss_upto(None)
            return loss.dropped, loss.unknown
        lost, unknown = self.cursor.marks
        if self.snapshot is not None:
            lost, unknown = self.snapshot.scan.lost, self.snapshot.scan.unknown
        return self.behind(window) + window.lost - lost, window.unknown != unknown

    @property
    def until_reached(self) -> bool:
        """Whether it has had all that was asked for."""
        until = self.delivery.bounds.until
        return until is not None and reached(self.positions, until)

    def readable(self, state: SubscriptionState) -> bool:
        """Say whether in this state a notice is due or there is something to `prepare`, as far as is known
        without looking."""
        if self.lag.due:
            return True
        at_head, waits = self.cursor.at_head, self.delivery.waits_for_client
        if state is SubscriptionState.HISTORY_WAITING:
            return not waits
        if state is SubscriptionState.HISTORY:
            return not at_head and not waits
        if state is SubscriptionState.BEHIND:
            return at_head or not waits
        # What is left may be nothing that costs credit, and then it ends.
        return state is SubscriptionState.ENDING and (at_head or not self.delivery.stopped)

    def prepare(
        self, encode: EncodeEntry, max_bytes: int, max_events: int | None, *, ending: bool
    ) -> Prepared | AssemblyOutcome | None:
        """Put together what may be sent now. See `assemble`."""
        delivery = self.delivery
        allowance = delivery.allowance(max_events)
        return assemble(
            self.cursor,
            delivery.bounds,
            self.lag,
            encode,
            max_bytes,
            allowance,
            framing=delivery.framing,
            ending=ending,
        )

    def consume(self, sent: SentPart) -> tuple[int, bool]:
        """Count what was sent, which is something, and go on behind it. Returns how many events had bytes,
        and whether it was the rest of an entry."""
        delivery, events, finished = self.delivery, 0, False
        delivery.bytes += sent.size
        for segment, upto in sent.segments:
            events += delivery.sent(segment, upto)
            finished = finished or upto == len(segment.entry.batch)
        self.cursor.move(segment.entry, upto)  # nothing was lost between two segments
        return events, finished

    def caught_up(self) -> None:
        """Be at the head, with everything before it had."""
        self.cursor.unpark()
        self.cursor.pass_floor()
        self.rereads = self.terms.acting is OverflowPolicy.REPLAY
        self.lag.caught_up()

    # --- too far behind --------------------------------------------------------------------

    def decide(self, window: Window) -> OverflowDecision:
        """Say what the policy wants of one that is not in history."""
        if self.snapshot is not None:
            return OverflowDecision.KEEP
        evicted = self.cursor.below is not None
        lost = evicted and self.cursor.seq < window.base
        decision = decide(self.terms, self.behind(window), evicted=evicted, lost=lost, rereads=self.rereads)
        if decision is OverflowDecision.SETTLE:
            self.rereads = False
        elif self.waited_for and not evicted:
            return OverflowDecision.KEEP
        return decision

    def apply_policy(self, window: Window, index: LastValues | None) -> OverflowDecision:
        """Do what the policy says of one that is not in history, but not CLOSE. Returns KEEP if nothing was
        given up. index: of the newest event of every key."""
        decision = self.decide(window)
        if decision is OverflowDecision.CLOSE:
            return decision
        if decision is OverflowDecision.DROP or decision is OverflowDecision.SNAPSHOT:
            dropped = self._drop(window, index if decision is OverflowDecision.SNAPSHOT else None)
            return decision if dropped else OverflowDecision.KEEP
        return OverflowDecision.KEEP

    def _drop(self, window: Window, index: LastValues | None) -> bool:
        """Go on with the newest events that its capacity allows. index: and with the newest of every key
        before them. Returns whether anything was given up."""
        cursor = self.cursor
        self.rereads = self.terms.acting is OverflowPolicy.REPLAY
        stop = newest_allowed(cursor.seq, window.base, window.head, self.terms.capacity)
        if cursor.resume_floor is not None:
            entry = window.find(stop)
            if entry is not cursor.entry:
                self.lag.add_loss(cursor.skip_to(entry))
            return self.lag.due
        loss, there, marks = cursor.way_to(stop)
        newest = 0
        if index is not None:
            newest, loss.ranges = index.held(cursor.seq, stop, loss.ranges)
            loss.dropped -= newest
        if index is not None and newest:
            scan = SnapshotScan(cursor.seq, stop, self.positions, there, *marks, newest)
            self.begin_snapshot(window, index, scan)
        else:
            cursor.enter_at(window, stop, there, marks)
        self.lag.add_loss(loss)  # without dropped events: what was evicted held none
        return bool(loss.dropped or loss.unknown)

    def evicted(self, entry: WindowEntry, here: Positions) -> bool:
        """Lose an entry that leaves the window, with the next event, at `here`: it is not read again. Returns
        False if that is more than the policy allows."""
        cursor = self.cursor
        if cursor.resume_floor is None:
            cursor.below = here
        elif self.terms.acting is OverflowPolicy.CLOSE and not self.rereads:
            cursor.entry = entry  # for the last time: what it has not had is counted from here
            return False
        else:
            self._drop_rest(entry)
        return True

    def _drop_rest(self, entry: WindowEntry) -> None:
        """Give up the rest of an entry that leaves the window, while its events can be counted."""
        self.lag.add_loss(self.cursor.rest_of(entry))
        if entry.next is not None:
            self.cursor.park(entry.next)

    # --- the newest event of every key -----------------------------------------------------

    def begin_snapshot(self, window: Window, index: LastValues, scan: SnapshotScan) -> bool:
        """Read what the scan says, from its positions on. See `next_page`."""
        self.cursor.leave(window, scan.here)
        self.snapshot = SnapshotReader(index, scan)
        return self.next_page(window)

    def next_page(self, window: Window) -> bool:
        """Read the next events of the snapshot; behind the last of them, go on in the window. False: that
        does not hold them any more."""
        while self.cursor.entry is not None:  # entries without events
            self.cursor.step(self.cursor.entry)
        snapshot = self.snapshot
        if snapshot is None or snapshot.next_page(self.cursor, self.positions, self.lag):
            return True
        self.snapshot, scan = None, snapshot.scan
        return self.cursor.enter_at(window, scan.stop, scan.positions, (scan.lost, scan.unknown))

    def account_superseded(self) -> None:
        """Count what was superseded before it came to its page."""
        if self.snapshot is not None:
            self.snapshot.account_superseded(self.lag)

    def close(self) -> None:
        """Read no more."""
        if self.snapshot is not None:
            self.snapshot.close(self.cursor)
            self.snapshot = None
        self.cursor.close()
        self.lag.due = False  # what was not announced is in the notice of its end
