"""One client's reader of one source: a cursor, a balance and a policy. It knows no socket and no protocol.

Theory of operation. A subscription that is LIVE has had everything: its cursor is the head and it is in
its group's `live` set, which fan-out serves directly. As soon as something cannot be sent it is BEHIND:
it is parked in the window's entry that holds its next event and is read at its client's pace (see
`reading`). Eviction only records the exact positions of the next event; what that means is decided by the
policy when the subscription is next read (see `policies`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf
from typing import TYPE_CHECKING

from kiwi_gw.core import passes, policies
from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.commands import Limit
from kiwi_gw.core.encoding import Wire, wire
from kiwi_gw.core.last_values import Pass
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.notices import Ended, Lagged, LimitReached, Opened, OpenFailed, PositionsAre
from kiwi_gw.core.outlet import Outlet, Owner
from kiwi_gw.core.pages import Page
from kiwi_gw.core.places import ahead, furthest, reached
from kiwi_gw.core.reading import MAX_CREDIT, Reading
from kiwi_gw.core.states import IN_HISTORY, NOT_LIVE, READING, Input, State, after
from kiwi_gw.core.window import Entry
from kiwi_gw.model import CloseReason, Interceptor, Joiner, Mode, OverflowPolicy, Positions, Ranges

if TYPE_CHECKING:
    from kiwi_gw.core.fanout import Group
    from kiwi_gw.core.feed import Feed
    from kiwi_gw.core.history import SharedReader


class Subscription(Reading):
    """See the top of this file. Made by `Feed.subscribe`, ended by `Feed` or by `cancel`."""

    __slots__ = (
        "_blocked_since",
        "_deadline",
        "_lag_at",
        "_lag_head",
        "_page",
        "_progress",
        "_reported",
        "_reported_at",
        "began",
        "capacity",
        "handle",
        "keeps",
        "outlet",
        "owner",
        "payer",
        "repeats",
        "report_every",
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
        report_every: float | None = None,
        payer: Payer | None = None,
    ) -> None:
        super().__init__(feed, group, mode, credits, policy, limits, until, join)
        self.handle = handle
        self.outlet = outlet
        self.owner = owner
        self.payer = payer
        self.capacity = capacity
        self.threshold = threshold
        # keeps: what leaves the window is read again. Always with policy `replay`; with another one while
        # it is on its way from a start in the past, until it has been within its capacity.
        self.keeps = policies.acting(self) is OverflowPolicy.REPLAY
        # began: the first event of the source's window that it may know of; all, if it began in the past.
        self.began = 0
        # repeats: it began in the past, and has not had everything since.
        self.repeats = False
        self.blocks = policy is OverflowPolicy.BLOCK
        self.report_every = report_every
        self._reported: Positions | None = None
        self._reported_at = -inf
        self._blocked_since: float | None = None
        self._progress: Pass | None = None
        self._page: Page | None = None
        self._lag_at = -inf
        self._lag_head = 0
        self._deadline: float | None = None

    # --- what anyone may ask ---------------------------------------------------------------

    @property
    def behind(self) -> int:
        """Events of the source between its next event and the head. In history, and on its way out of it,
        where nobody has counted them: offsets, which is more where compaction has left holes."""
        if self.state in IN_HISTORY or self.floor is not None:
            return ahead(self.feed.window.positions, self.positions)
        if self._progress is not None:
            rest = self.window.head - self.cursor + (self._progress.left or 0)
            return rest + self.feed.window.head - self._progress.stop
        return self.feed.window.head - self.cursor if self.cursor >= 0 else 0

    @property
    def positions(self) -> Positions:
        """Where the next event is."""
        here = self._here()
        return here if self.floor is None else furthest(here, self.floor)

    def _here(self) -> Positions:
        here = self._there()
        # The pages of a pass know nothing of what lies before them.
        return here if self._progress is None else furthest(self._progress.here, here)

    def _there(self) -> Positions:
        if self._entry is not None:
            return self._entry.batch.positions_at(self.cursor - self._entry.base)
        if self._evicted_at is not None:
            return self._evicted_at
        window = self.window
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
        state = self.state
        if state is State.HISTORY_WAITING:
            return self._may_be_sent and not self.feed.replay.asked(self)
        if state is State.HISTORY:
            return self.cursor < self.window.head and self._may_be_sent
        if state is not State.BEHIND and state is not State.ENDING:
            return False
        if self.cursor >= self.window.head:
            return True
        # ENDING: what is left may be nothing that costs credit, and then it ends.
        return not self._waiting_limit and (self._may_be_sent or state is State.ENDING)

    @property
    def _may_be_sent(self) -> bool:
        return not self._waiting_limit and (self.mode is Mode.PUSH or self.credits > 0)

    # --- commands --------------------------------------------------------------------------

    def grant(self, n: int) -> int:
        """Add credit, saturating at 2^53 - 1. Returns the balance before anything of it is used."""
        self.credits = balance = min(self.credits + n, MAX_CREDIT)
        if self.state in NOT_LIVE:
            self.outlet.wake(self)
        return balance

    def recast(
        self,
        item: Wire,
        limits: Mapping[Hashable, Limit],
        payer: Payer | None = None,
        *,
        fewer: bool = False,
    ) -> None:
        """Go on with other fragments and limits, from the next event on. payer: who is charged for those,
        None: as before. fewer: they are a part of what it had.

        Raises SubscribeRefused, and then it goes on as before.
        """
        if self.closed:
            return
        self.feed.regroup(self, item, payer, fewer=fewer)
        self.join = item.format.join
        self.limits = dict(limits)
        self._simplify()
        self._waiting_limit = False
        if self.readable:
            self.outlet.wake(self)

    def intercept(self, interceptor: Interceptor | None, payer: Payer | None = None) -> None:
        """Go on behind another interceptor (None: behind none), otherwise as before, from the next event
        on. payer: who is charged from then on, None: as before."""
        if not self.closed:
            # The format may be another member's of the group, but only `join` could differ, and it stays.
            self.feed.regroup(self, wire(self.group.wire.format, interceptor), payer, all_at_once=True)
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
        elif old is State.HISTORY and self.place is not None:
            self.place.left(self)
            self.place = None
        if new is State.CLOSED:
            passes.leave(self)
        if new is State.LIVE:
            self._unpark()
            self.repeats = False
            self.keeps = policies.acting(self) is OverflowPolicy.REPLAY
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
        self.cursor = self.began = window.head
        self._lost_mark, self._unknown_mark = window.lost, window.unknown
        if self.apply(Input.OPENED) is not State.LIVE:
            return  # cancelled by what its owner was told of another one
        self._opened()

    def open_at(self, positions: Positions, missing: Ranges) -> None:
        """The source runs: begin with the events at these positions, in the window or below it. missing:
        what was asked for and is gone."""
        window = self.feed.window
        self.keeps = True
        if window.reaches(positions):
            self._enter(window, positions)
            moved = self.apply(Input.JOINED)
        else:
            self._evicted_at = positions
            moved = self.apply(Input.EVICTED)
        if moved is State.CLOSED:
            return
        self._opened()
        if missing and not self.closed:
            self._account(0, missing, unknown=True)
        if not self.closed:
            self.outlet.wake(self)

    def refuse(self, code: str, message: str) -> None:
        """The source runs, but it cannot begin where it was asked to."""
        if self.apply(Input.OPEN_FAILED) is State.CLOSED:
            self.owner.notify(self, OpenFailed(self.handle, code, message))

    def _opened(self) -> None:
        info = self.feed.info
        positions = self.feed.dump(self.positions)
        self.owner.notify(self, Opened(self.handle, info, positions, self.policy, self.capacity))
        if not self.closed:
            self._arrived()  # it may have been asked for nothing

    def fall_behind(self, entry: Entry, item: Input = Input.FULL) -> None:
        """LIVE no longer: its next event is in `entry`, which it could not be sent whole."""
        if self.apply(item) is State.BEHIND:
            self._park(entry)
            self._skip_read()

    def evicted(self, positions: Positions) -> None:
        """The entry with its next event has left the window; `positions` are those of that event."""
        entry, self._entry = self._entry, None
        if self.floor is not None:
            positions = furthest(positions, self.floor)
        if self.state is State.HISTORY:
            self.lose_place(positions)
        elif self.keeps and self.feed.info.replayable and self.state is State.BEHIND:
            self._leave_window(positions)
            self.apply(Input.EVICTED)
        elif self.floor is not None and entry is not None:
            policies.drop_rest(self, entry)
        elif self._evicted_at is None:
            self._evicted_at = positions

    # --- history ---------------------------------------------------------------------------

    def take_place(self, reader: SharedReader) -> None:
        """Read on from a reader of history, whose window reaches its positions (called by that)."""
        here = self.positions
        self.place = reader
        self.apply(Input.PLACE_GRANTED)
        self._enter(reader.window, here)

    def lose_place(self, here: Positions | None = None) -> None:
        """It cannot be sent to, or others are to have their turn: wait for a place again."""
        self._leave_window(self.positions if here is None else here)
        self.apply(Input.FULL)

    def join_window(self) -> None:
        """History has brought it to what the source's window reaches: read on there."""
        here = self.positions
        self._enter(self.feed.window, here)
        self.apply(Input.JOINED)
        if self.feed.over:
            self.end(self.feed.end_reason, self.feed.end_message, Input.ENDED)
        elif self.cursor >= self.window.head:
            self._at_head()  # nobody would find it there when the next batch comes
        self.outlet.wake(self)

    def read_on(self, entry: Entry) -> None:
        """History goes on behind what it had: there is more to read."""
        self._park(entry)
        self._skip_read()

    def _leave_window(self, here: Positions) -> None:
        self._unpark()
        self._evicted_at = here
        self.window = self.feed.window
        self.floor = None
        self._simplify()

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
        if policies.acting(self) is not OverflowPolicy.CLOSE:  # for `offer` and `sweep`: no notice then
            policies.give_up(self)
        passes.account_gone(self)
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
            positions=self.feed.dump(self.positions),
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
        if policies.closed_unread(self):
            return
        if (
            behind > self.threshold
            and not self.lag_due
            and self.feed.window.head != self._lag_head
            and now - self._lag_at >= interval
        ):
            self.lag_due = True
            self.outlet.wake(self)

    def report(self, now: float) -> None:
        """Say where it is, if that is due and has changed."""
        if self.report_every is not None and now - self._reported_at >= self.report_every:
            here = self.positions
            if here != self._reported:
                self._reported, self._reported_at = dict(here), now
                info = self.feed.info
                self.owner.notify(self, PositionsAre(self.handle, info, self.feed.dump(here)))

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
        passes.account_gone(self)
        positions = self.feed.dump(self.positions)
        loss = self._loss or Loss()
        unsent, unknown = 0, loss.unknown
        if item is not Input.LIMIT_REACHED and item is not Input.UNTIL_REACHED:
            unsent, uncounted = self._unsent()
            unknown = unknown or uncounted
        if self.apply(item) is not State.CLOSED:
            self.outlet.wake(self)  # what is left may be nothing
            return
        dropped = None if unknown else loss.dropped + unsent
        self.feed.dropped[self.policy] += unsent
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
        if self.state in READING and self.cursor >= self.window.head:
            self._at_head()

    def _at_head(self) -> None:
        """No event is left: join the head, or end, but not before a notice that is due."""
        while self._entry is not None:  # entries without events
            self._park_after(self._entry)
        if self._progress is not None:
            passes.next_page(self)
        if self.state is State.HISTORY:
            if self.place is not None:
                self.place.finished(self)
        elif self.state not in READING or self.cursor < self.window.head or self._progress is not None:
            pass  # it has gone on elsewhere
        elif self.state is not State.ENDING:
            self._pass_floor()
            self.apply(Input.JOINED)
        elif not self.lag_due:
            self.end(self.feed.end_reason, self.feed.end_message, Input.JOINED)

    def _reads(self) -> bool:
        if self.state is State.HISTORY_WAITING and self._may_be_sent:
            self.feed.replay.ask(self)
        return self.state in READING

    def _until_reached(self) -> bool:
        return reached(self.positions, self.until or {})

    def _unsent(self) -> tuple[int, bool]:
        """How many events it has not had, and whether that is not all of it or cannot be said."""
        if self.state in IN_HISTORY:
            return 0, self.behind > 0
        if self.floor is not None:
            loss = self._loss_upto(None)
            return loss.dropped, loss.unknown
        window, progress = self.feed.window, self._progress
        lost = self._lost_mark if progress is None else progress.lost
        unknown = self._unknown_mark if progress is None else progress.unknown
        return self.behind + window.lost - lost, window.unknown != unknown

    _give_up_what_policy_says = policies.give_up

    def _enter_at(self, cursor: int, here: Positions, lost: int, unknown: int) -> None:
        """Go on in the source's window with the event of this number, which it holds or has held."""
        window = self.feed.window
        self._unpark()
        self.window, self.cursor, self._evicted_at = window, cursor, None
        self._lost_mark, self._unknown_mark = lost, unknown
        if cursor >= window.base:
            entry = window.find(cursor)
            if entry is not None:
                self._park(entry)
                self._skip_read()
        elif self.keeps and self.feed.info.replayable:
            self._leave_window(here)
            self.apply(Input.EVICTED)
            self.outlet.wake(self)
        else:
            self._evicted_at = here
            policies.give_up(self)
            self.outlet.wake(self)
