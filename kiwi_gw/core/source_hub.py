"""One source's live half: its window, its subscriptions and its life, from its start to its end.

Theory of operation. Here the parts are put together: who is not open yet (`openings`), who is sent the same
bytes (`encoding_groups`), who reads history (`history`), who holds the source (`blocking`). What the source
gives is sent on by `publishing`. Each operation that comes from outside ends by handing out its effects (see
`effects`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.blocking import BlockingReaders
from kiwi_gw.core.commands import LabelLimit, Open
from kiwi_gw.core.delivery import Delivery
from kiwi_gw.core.effects import Effects
from kiwi_gw.core.encoding import EncodingMemo, KeyedFormat, keyed_format
from kiwi_gw.core.encoding_groups import EncodingGroups, Group
from kiwi_gw.core.endings import end
from kiwi_gw.core.frame_writer import FrameWriter, Owner
from kiwi_gw.core.history import HistoryQueue
from kiwi_gw.core.hub_limits import HubLimits, HubState, grant, policies
from kiwi_gw.core.lag_watch import watch_lag
from kiwi_gw.core.last_values import LastValues
from kiwi_gw.core.notices import SourceDegraded
from kiwi_gw.core.openings import Openings
from kiwi_gw.core.position_reports import PositionReports
from kiwi_gw.core.start_resolution import RequestedStart, load_positions, read_start
from kiwi_gw.core.states import IN_HISTORY, NOT_LIVE, SubscriptionInput, SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import MemoryBudget, Window, WindowEntry, tell_parked
from kiwi_gw.core.wire_keys import ChosenKeys
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import (
    CloseReason,
    Committed,
    EventTransform,
    HasLineage,
    Lineage,
    OffsetRange,
    OverflowPolicy,
    Positions,
    SourceInfo,
    StartAt,
    Until,
    UntilOffset,
)

_nothing: Callable[[], None] = lambda: None  # noqa: E731


class SourceHub:
    """See the top of this file.

    clock: monotonic seconds. on_subscribed: called when there is one subscription more; on_freed: when one
    may hold the source no longer; on_deserted: when the last one is over, while it is being closed;
    on_state_changed: when its state is another, or what degrades it. held_by: who holds it by `block` just
    now, in words. lineage_source: the source, while it runs and after it, if it has a lineage.
    """

    def __init__(
        self,
        info: SourceInfo,
        limits: HubLimits,
        memo: EncodingMemo,
        budget: MemoryBudget,
        clock: Callable[[], float],
    ) -> None:
        self.info = info
        self.limits = limits
        self.state = HubState.STARTING
        self.end_reason = CloseReason.ENDED
        self.end_message = "the source has ended"
        self.degradation = ""
        self.window = Window(limits.window_events, limits.window_bytes, budget, {})
        self.expected: Positions = {}  # how far the source will come in any case
        self.dropped: Counter[OverflowPolicy] = Counter()  # events given up, by who gave them up
        self.effects = Effects()
        self.history = HistoryQueue(self, budget)
        self.last_values: LastValues | None = None
        if limits.last_values:
            self.last_values = LastValues(
                limits.last_values_keys, limits.last_values_bytes, budget, self.evicted, clock
            )
        self.on_subscribed = self.on_freed = self.on_deserted = self.on_state_changed = _nothing
        self.lineage_source: HasLineage | None = None
        self.held_by: list[str] = []
        self.subscribers = 0  # that are not closed
        self.bounded: dict[Subscription, None] = {}  # open ones that end somewhere
        self.events_in = 0  # that the source has given
        self.lag_notices = self.events_replayed = self.replaying = 0
        self.policies = policies(limits, replayable=info.replayable)
        self.memo = memo
        chosen = ChosenKeys(limits.max_wire_keys, limits.wire_keys_identity, limits.wire_keys_connection)
        self.blocking = BlockingReaders(self.window, limits.block_timeout, clock)
        self.groups = EncodingGroups(info.id, memo, chosen, self._query_failed)
        self._clock = clock
        self._openings = Openings(self, self.history, limits.subscribe_timeout)
        self._reports = PositionReports()
        # What its subscriptions need of its parts (`hub_interface.Hub`).
        self.end = end
        self.ask_for_history, self.waits_for_history = self.history.enqueue, self.history.is_queued
        self._not_live: dict[Subscription, None] = {}
        self._drained_at: float | None = None  # until when what is left is sent

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def positions(self) -> Positions:
        """Where the next event of the source will be."""
        return self.window.positions

    @property
    def lineage(self) -> Lineage | None:
        return None if self.lineage_source is None else self.lineage_source.lineage

    def dump(self, positions: Positions) -> dict[str, object]:
        """Positions for clients, in the form of the source's codec, with what says of which history."""
        found = self.info.codec.dump(positions)
        if (lineage := self.lineage) is not None:
            found.update(lineage.marks(positions))
        return found

    @property
    def behind(self) -> int:
        """Subscriptions that have not had everything."""
        return len(self._not_live)

    @property
    def over(self) -> bool:
        """Whether the finite source has ended."""
        return self.state is HubState.ENDED

    @property
    def wire_keys(self) -> int:
        return len(self.groups)

    def waiting_for_history(self) -> list[Subscription]:
        """Subscriptions that are below the window and have no place in history."""
        return [item for item in self._not_live if item.state is SubscriptionState.HISTORY_WAITING]

    # --- subscriptions come and go ---------------------------------------------------------

    def subscribe(
        self,
        command: Open,
        keyed: KeyedFormat,
        writer: FrameWriter[Subscription],
        owner: Owner[Subscription],
        payer: Payer | None = None,
    ) -> Subscription:
        """Make a subscription: LIVE at the head, or OPENING while the source starts. A finite source that has
        ended still serves what it holds to those that begin before its end, and closes them there. keyed: the
        wire format that the command has made for this source.

        Raises SubscribeRefused where the source is over, a bound is reached or a wish cannot be met.
        """
        held = self.over and command.start is not StartAt.LATEST
        if self.state not in (HubState.STARTING, HubState.RUNNING) and not held:
            raise SubscribeRefused(self.end_reason.value, self.end_message)
        terms = grant(command, self.limits, self.policies)
        where = read_start(command.start, self.info)
        asked = command.until if isinstance(command.until, Until | UntilOffset) else None
        given = command.until is not None and asked is None
        until = load_positions(command.until, self.info) if given else None
        if where is StartAt.SNAPSHOT and self.last_values is None:
            raise SubscribeRefused(
                RefusalCode.START,
                "the newest events of this source are not kept by key: `window: {last_values: true}` does so",
            )
        group = self.groups.get(keyed, payer)
        framing = keyed.format.framing
        delivery = Delivery(command.mode, command.credits, command.limits, until, framing, command.tally)
        subscription = Subscription(self, group, command.handle, delivery, terms, payer, writer, owner)
        subscription.repeats = command.start is not StartAt.LATEST
        subscription.resumes = isinstance(command.start, Committed)
        subscription.gathers = command.gathers and command.until is None
        self.groups.join(group, payer)
        if terms.policy is OverflowPolicy.BLOCK:
            self.blocking.add(subscription)
        if command.positions_every is not None:
            self._reports.add(subscription, command.positions_every)
        self.subscribers += 1
        self._openings.add(subscription, where, self.now, asked)
        if self.state is not HubState.STARTING:
            self._openings.begin(subscription)
        if self.degradation and not subscription.closed:
            subscription.tell(SourceDegraded(subscription.handle, self.info, self.degradation))
        self.on_subscribed()
        self.effects.hand_out()
        return subscription

    @property
    def unresolved(self) -> Mapping[Subscription, RequestedStart]:
        """Subscriptions that wait until the source's history has said where they begin."""
        return self._openings.starts if self.state in (HubState.RUNNING, HubState.ENDED) else {}

    def resolved(
        self,
        subscription: Subscription,
        offset_range: OffsetRange,
        committed: Mapping[int, int] | None = None,
    ) -> None:
        """Begin where history has answered. See `Openings.resolved`."""
        self._openings.resolved(subscription, offset_range, committed)
        self.effects.hand_out()

    def refuse(self, subscription: Subscription, refused: SubscribeRefused) -> None:
        """Refuse one that waits for what history says."""
        self._openings.refuse(subscription, refused)
        self.effects.hand_out()

    def requested_positions(self, subscription: Subscription) -> list[Positions]:
        """Return the positions that an unopened subscription has brought: where it begins, where it ends."""
        return self._openings.requested_positions(subscription)

    def reconfigure(
        self,
        subscription: Subscription,
        keyed: KeyedFormat,
        limits: Mapping[Hashable, LabelLimit],
        payer: Payer | None = None,
        *,
        fewer: bool = False,
    ) -> None:
        """Go on with other fragments and limits, from the next event on. payer: who is charged for those,
        None: as before. fewer: they are a part of what it had.

        Raises SubscribeRefused, and then it goes on as before.
        """
        if not subscription.closed:
            self.groups.move(subscription, keyed, payer, fewer=fewer)
            if subscription.delivery.reform(limits, keyed.format.framing):
                # Another limit may have been used up with the one that it stopped at.
                subscription.check_reached()
            subscription.read_on()
            self.effects.hand_out()

    def transform(
        self, subscription: Subscription, transforms: Sequence[EventTransform], payer: Payer | None = None
    ) -> None:
        """Go on behind these transforms instead of those before, from the next event on. payer: who is
        charged from then on, None: as before."""
        if not subscription.closed:
            # The format may be another member's of the group, but only `framing` could differ, and it stays.
            keyed = keyed_format(subscription.group.wire.format, transforms)
            self.groups.move(subscription, keyed, payer, all_at_once=True)
            subscription.read_on()
            self.effects.hand_out()

    def report_degraded(self, message: str) -> None:
        """Send all a notice: the source is cut off from its origin, or (an empty message) works again."""
        if message == self.degradation:
            return
        self.degradation = message
        self.on_state_changed()
        for subscription in [*self._openings.starts, *self.groups.live, *self._not_live]:
            subscription.tell(SourceDegraded(subscription.handle, self.info, message))
        self.effects.hand_out()

    # --- the source's life -----------------------------------------------------------------

    def started(self, positions: Positions) -> None:
        """Begin: the source works. positions: of its next event."""
        if self.state is HubState.STARTING:
            self.window.reset(positions)
            self.state = HubState.RUNNING
            self.on_state_changed()
            self._openings.source_started()
        self.begin_some()

    def begin_some(self) -> bool:
        """Begin with those that waited for the source, for a slice of time. Say whether there are more."""
        until = self._clock() + self.limits.slice_seconds
        while more := self._openings.begin_next():
            self.effects.hand_out()
            if self._clock() >= until:
                break
        self.effects.hand_out()
        return more

    def ended(self, message: str = "the source has ended") -> None:
        """End a finite source that is over: all get the rest, then the notice."""
        self._finish(HubState.ENDED, CloseReason.ENDED, message, SubscriptionInput.ENDED, None)

    def removed(self, reason: CloseReason, message: str, drain: float) -> None:
        """End a source that is gone or becomes another: the rest is sent for `drain` seconds at most."""
        self._finish(HubState.REMOVED, reason, message, SubscriptionInput.REMOVED, self.now + drain)

    def failed(self, message: str) -> None:
        """End a source that can never work: nothing more is sent."""
        self._finish(HubState.FAILED, CloseReason.FAILED, message, SubscriptionInput.FAILED, None)

    def withdraw(
        self, subscription: Subscription, message: str, reason: CloseReason = CloseReason.UNAUTHORIZED
    ) -> None:
        """Close one whose client may have nothing more of this source."""
        end(subscription, reason, message, SubscriptionInput.FAILED)
        self.effects.hand_out()

    def sweep(self) -> None:
        """Notice what is due without being read. Call it a few times a second."""
        now = self.now
        self._openings.end_late(now, starting=self.state is HubState.STARTING)
        self.history.sweep(now)
        if self.last_values is not None:
            self.last_values.pages.sweep()
        drained = self._drained_at is not None and now >= self._drained_at
        for subscription in list(self._not_live):
            if drained:
                end(subscription, self.end_reason, self.end_message, SubscriptionInput.POLICY_CLOSE)
            else:
                watch_lag(subscription, now, self.limits.lag_interval)
        self._reports.sweep(now)
        self.effects.hand_out()

    def close(self) -> None:
        """Let go of the memory. Every subscription must be closed."""
        if self.last_values is not None:
            self.last_values.clear()
        self.window.clear(self.evicted)

    # --- inside ----------------------------------------------------------------------------

    def moved(self, subscription: Subscription, old: SubscriptionState, new: SubscriptionState) -> None:
        """Keep in step with a subscription that has changed its state (called by itself)."""
        if old is SubscriptionState.OPENING:
            self._openings.remove(subscription)
            if subscription.delivery.bounds.until is not None:
                self.bounded[subscription] = None
        if new in NOT_LIVE:
            self._not_live[subscription] = None
        else:
            self._not_live.pop(subscription, None)
        if old is SubscriptionState.HISTORY_WAITING:
            self.history.remove(subscription)
        if (new in IN_HISTORY) is not (old in IN_HISTORY):
            self.replaying += 1 if new in IN_HISTORY else -1
            self.history.on_changed()
        if new is SubscriptionState.CLOSED:
            self.subscribers -= 1
            self.bounded.pop(subscription, None)
            self._reports.remove(subscription)
            if self.blocking.remove(subscription):
                self.on_freed()
            self.groups.leave(subscription.group, subscription.payer)
            if not self.subscribers:
                self.on_deserted()

    def drained(self, subscription: Subscription) -> None:
        """Close a subscription that was sent the rest."""
        end(subscription, self.end_reason, self.end_message, SubscriptionInput.JOINED)

    def end_if_over(self, subscription: Subscription) -> None:
        """Have one that reads the window from now on end with it, if the source is over."""
        if self.over:
            end(subscription, self.end_reason, self.end_message, SubscriptionInput.ENDED)

    def group_failed(self, group: Group, message: str) -> None:
        """End the subscriptions of a wire key whose fragments cannot be made."""
        members = [*group.live, *(item for item in self._not_live if item.group is group)]
        for subscription in members:
            end(subscription, CloseReason.FAILED, message, SubscriptionInput.FAILED)

    def _query_failed(self, group: Group, message: str) -> None:
        self.group_failed(group, message)
        self.effects.hand_out()

    def evicted(self, entry: WindowEntry) -> None:
        """Forget an entry that has left the source's window, or that of a reader of history."""
        self.memo.forget(entry)
        tell_parked(entry)

    def _finish(
        self,
        state: HubState,
        reason: CloseReason,
        message: str,
        trigger: SubscriptionInput,
        deadline: float | None,
    ) -> None:
        self.state, self.end_reason, self.end_message = state, reason, message
        self.on_state_changed()
        for subscription in list(self._openings.starts):
            end(subscription, reason, message, trigger)
        for subscription in self.groups.live:
            if subscription.reader.cursor.caught_up:
                end(subscription, reason, message, trigger)
            else:
                subscription.demote()
        for subscription in list(self._not_live):
            end(subscription, reason, message, trigger)  # CLOSED, or ENDING with the rest still to be sent
        self._drained_at = deadline
        self.effects.hand_out()
