"""One client's reader of one source: a cursor, a balance and a policy. It knows no socket and no protocol.

Theory of operation. A subscription that is LIVE has had everything: its cursor is at the head and it is in
its group's `live` set, which fan-out serves directly. As soon as something cannot be sent it is BEHIND: it is
parked in the window's entry that holds its next event, and is read at its client's pace with `prepare` and
`commit`. `prepare` says what may be sent now; `commit` says how many bytes of that were taken: cursor,
credits and counters then stand right behind the last event whose first byte was taken. Eviction only records
the exact positions of the next event; what that means is decided when the subscription is next read (see
`overflow`). A loss is announced before the next event: `prepare` gives nothing while a notice is due.

Operations that come from outside end by handing out their effects; those of the core do not (see `effects`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import InitVar, dataclass, field

from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.assembly import AssemblyOutcome
from kiwi_gw.core.delivery import Delivery
from kiwi_gw.core.encoding import EncodingGroup
from kiwi_gw.core.frame_writer import SILENCE, FrameWriter, Owner
from kiwi_gw.core.hub_interface import Hub, MemberReader
from kiwi_gw.core.notices import LimitReached, Notice
from kiwi_gw.core.overflow import OverflowDecision, OverflowTerms
from kiwi_gw.core.positions import ahead
from kiwi_gw.core.prepared import Prepared
from kiwi_gw.core.states import IN_HISTORY, NOT_LIVE, READING, SubscriptionInput, SubscriptionState, after
from kiwi_gw.core.subscription_reader import SubscriptionReader
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.errors import EncodingFailed, EventFailed
from kiwi_gw.model import CloseReason, OverflowPolicy, Positions


@dataclass(slots=True, eq=False, repr=False)
class Subscription:
    """See the top of this file. Made by `SourceHub.subscribe`, ended by it or by `cancel`.

    began: the first event of the source's window that it may know of; all, if it began in the past. repeats:
    it began in the past, and has not had everything since. resumes: that past is where a group committed.
    gathers: as `Open` has it. history_reader: what it reads history from.
    """

    hub: Hub[Subscription]
    group: EncodingGroup[Subscription]
    handle: Hashable
    own_delivery: InitVar[Delivery]
    terms: InitVar[OverflowTerms]
    payer: Payer | None
    writer: FrameWriter[Subscription]
    owner: Owner[Subscription]
    reader: SubscriptionReader = field(init=False)
    history_reader: MemberReader[Subscription] | None = None
    state: SubscriptionState = SubscriptionState.OPENING
    began: int = 0
    repeats: bool = False
    resumes: bool = False
    gathers: bool = True

    def __post_init__(self, own_delivery: Delivery, terms: OverflowTerms) -> None:
        self.reader = SubscriptionReader(self.hub.window, terms, own_delivery, self.hub.dropped, self)

    # --- what anyone may ask ---------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self.state is SubscriptionState.CLOSED

    @property
    def delivery(self) -> Delivery:
        """What it may be sent, and what it was."""
        return self.reader.delivery

    @property
    def seq(self) -> int:
        """The number of its next event in the window that it reads, -1 before it is open."""
        return self.reader.cursor.seq

    @property
    def behind(self) -> int:
        """Events of the source between its next event and the head; in history: offsets."""
        window = self.hub.window
        return ahead(window.positions, self.positions) if self.in_history else self.reader.behind(window)

    @property
    def in_history(self) -> bool:
        """Whether it is below the source's window."""
        return self.state in IN_HISTORY

    @property
    def positions(self) -> Positions:
        """Where the next event is."""
        return self.reader.positions

    @property
    def lag_due(self) -> bool:
        """Whether a notice is to be written before the next event (`take_lag`)."""
        return self.reader.lag.due

    @property
    def readable(self) -> bool:
        """Whether there is a notice due, or something to `prepare`, as far as is known without looking."""
        if self.state is SubscriptionState.HISTORY_WAITING and self.hub.waits_for_history(self):
            return self.lag_due
        return self.reader.readable(self.state)

    def add_credit(self, n: int) -> int:
        """Add credit, saturating at 2^53 - 1. Returns the balance before anything of it is used."""
        balance = self.delivery.add_credit(n)
        if self.state in NOT_LIVE:
            self.mark_ready()
        self.hub.effects.hand_out()
        return balance

    def read_on(self) -> None:
        """Have it read, if there is something."""
        if self.readable:
            self.mark_ready()

    def cancel(self, trigger: SubscriptionInput = SubscriptionInput.UNSUBSCRIBE) -> None:
        """End it by the client's wish or with its connection: its owner gets no notice more."""
        self.owner = SILENCE
        if not self.closed:
            self.apply(trigger)
            self.hub.effects.hand_out()

    # --- reading ---------------------------------------------------------------------------

    def prepare(self, max_bytes: int, max_events: int | None = None) -> Prepared | None:
        """Prepare at most `max_bytes` (or one event) to be sent now: None if nothing may, or a lag notice is
        due (`take_lag` first). What was prepared is to be committed before anything else is done."""
        prepared = self._prepare(max_bytes, max_events)
        if prepared is None:
            self.hub.effects.hand_out()
        return prepared

    def _prepare(self, max_bytes: int, max_events: int | None) -> Prepared | None:
        if self.state is SubscriptionState.HISTORY_WAITING and not self.delivery.waits_for_client:
            self.hub.ask_for_history(self)
        if self.lag_due or self.state not in READING or self.apply_policy():
            return None
        try:
            while self._has_more():
                ending = self.state is SubscriptionState.ENDING
                found = self.reader.prepare(self.group.encoded, max_bytes, max_events, ending=ending)
                if not isinstance(found, AssemblyOutcome):
                    return found
                self.check_reached()
        except EventFailed as error:
            self.delivery.decode_errors += 1
            self.hub.end(self, CloseReason.FAILED, str(error), SubscriptionInput.EVENT_FAILED)
        except EncodingFailed as error:
            self.hub.group_failed(self.group, str(error))
        return None

    def _has_more(self) -> bool:
        """Say whether there is something to read, here or in the window that it then goes on with."""
        cursor = self.reader.cursor
        while self.state in READING and cursor.at_head:
            window = cursor.window
            self.join_head()
            if cursor.window is window:
                return False
        return self.state in READING and not self.lag_due and not self.delivery.stopped

    def commit(self, prepared: Prepared, taken: int) -> bytes:
        """Go on behind the first `taken` bytes of it. Returns the rest of the frame that was cut: that
        belongs before the notices that its owner may get (a limit, an end) before this returns."""
        rest = self.consume(prepared, taken)
        self.hub.effects.hand_out()
        return rest

    def consume(self, prepared: Prepared, taken: int) -> bytes:
        """Do the same for fan-out, which hands out the effects itself."""
        sent, reader = prepared.taken(taken), self.reader
        if sent.segments:
            events, finished = reader.consume(sent)
            if self.history_reader is not None:
                self.hub.events_replayed += events
                if finished:
                    self.history_reader.on_changed()
            elif reader.terms.policy is OverflowPolicy.BLOCK:
                self.hub.on_freed()
        self.check_reached()
        return sent.rest

    def fall_behind(self, entry: WindowEntry) -> None:
        """Be LIVE no longer: its next event is in `entry`, which it could not be sent whole."""
        self.apply(SubscriptionInput.FULL)
        self.reader.cursor.park(entry)

    def demote(self) -> None:
        """Have it read on from the window: it is LIVE, but not served yet by the fan-out under way."""
        newest = self.hub.window.newest
        if newest is not None:
            self.fall_behind(newest)

    def check_reached(self) -> None:
        """Look where it has come to: limits that are used up, the end, the head."""
        reached = self.delivery.take_reached_limit()
        if reached == (None,):
            self.hub.end(self, CloseReason.LIMIT, "the limit is reached", SubscriptionInput.LIMIT_REACHED)
        elif reached is not None:
            self.tell(LimitReached(self.handle, reached[0]))
        if not self.end_if_reached() and self.state in READING and self.reader.cursor.at_head:
            self.join_head()

    def end_if_reached(self) -> bool:
        """End it if it has come to the end that was asked for, also where no event was left before that.
        Returns whether it is over."""
        if not self.closed and self.reader.until_reached:
            message = "the end that was asked for is reached"
            self.hub.end(self, CloseReason.UNTIL, message, SubscriptionInput.UNTIL_REACHED)
        return self.closed

    def join_head(self) -> None:
        """Join the head, or end, as no event is left where it reads; but not before a notice that is due."""
        if self.end_if_reached():
            return
        cursor = self.reader.cursor
        if not self.reader.next_page(self.hub.window):  # it does not hold the next event any more
            if self._is_read_again:
                self.wait_for_history(self.positions)
            else:
                self.apply_policy()
            self.mark_ready()
        if self.state is SubscriptionState.HISTORY:
            if self.history_reader is not None:
                self.history_reader.finished(self)
        elif self.state not in READING or not cursor.at_head or self.reader.snapshot is not None:
            pass  # it has gone on elsewhere
        elif self.state is not SubscriptionState.ENDING:
            self.apply(SubscriptionInput.JOINED)
        elif not self.lag_due:
            self.hub.drained(self)

    # --- too far behind --------------------------------------------------------------------

    def apply_policy(self) -> bool:
        """Let the policy act. Returns whether nothing may be read: something was given up, or it is over."""
        if self.state in IN_HISTORY:
            return False
        reader = self.reader
        decision = reader.apply_policy(self.hub.window, self.hub.last_values)
        if decision is OverflowDecision.KEEP:
            return self.closed
        if decision is OverflowDecision.CLOSE:
            self.overflow()
        elif reader.cursor.at_head and reader.snapshot is None:
            self.join_head()
        return True

    def evicted(self, entry: WindowEntry, positions: Callable[[int], Positions]) -> None:
        """Leave an entry that has left its window, with its next event. positions: of an event of it."""
        here = self.reader.cursor.evicted(entry, positions)
        if self._is_read_again:
            self.wait_for_history(here)
        elif not self.reader.evicted(entry, here):
            self.overflow()

    @property
    def _is_read_again(self) -> bool:
        """Whether what leaves the window is read again from history."""
        again = self.reader.rereads and self.hub.info.replayable and self.state is SubscriptionState.BEHIND
        return again or self.state is SubscriptionState.HISTORY

    def overflow(self) -> None:
        """End it: that is its policy."""
        words = self.hub.limits.overflow_words
        message = words or f"more than {self.reader.terms.capacity} events behind"
        self.hub.end(self, CloseReason.OVERFLOW, message, SubscriptionInput.POLICY_CLOSE)

    def wait_for_history(self, here: Positions) -> None:
        """Have it read on at `here`, below the source's window, when it gets a place in history."""
        self.reader.cursor.leave(self.hub.window, here)
        self.apply(
            SubscriptionInput.FULL if self.state is SubscriptionState.HISTORY else SubscriptionInput.EVICTED
        )

    def apply(self, trigger: SubscriptionInput) -> SubscriptionState:
        """Move by the state table, and keep what depends on the state in step."""
        old, new = self.state, after(self.state, trigger)
        if new is old:
            return new
        self.state = new
        if old is SubscriptionState.LIVE:
            self.group.live.pop(self, None)
        elif old is SubscriptionState.HISTORY and self.history_reader is not None:
            self.history_reader.member_left(self)
            self.history_reader = None
        if new is SubscriptionState.LIVE:
            self.reader.caught_up()
            self.repeats = False
            self.group.live[self] = None
        elif new is SubscriptionState.CLOSED:
            self.reader.close()
        self.hub.moved(self, old, new)
        return new

    def tell(self, notice: Notice) -> None:
        """Send its owner a notice, when the operation is done."""
        self.hub.effects.add(lambda: self.owner.notify(self, notice))

    def mark_ready(self) -> None:
        """Have its writer know that there is something to read, when the operation is done."""
        self.hub.effects.add(self.wake)

    def wake(self) -> None:
        """Tell its writer that there is something to read."""
        if not self.closed:
            self.writer.mark_ready(self)
