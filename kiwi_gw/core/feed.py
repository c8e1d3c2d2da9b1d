"""One source's live half: its window, its subscriptions, and the fan-out of what arrives.

Theory of operation. `publish` is the hot path and wakes no task. It appends the batch and then, group by
group (a group has one wire key), asks the memo for the fragments once and gives every subscription that
is at the head and can take it the whole buffer (see `fanout`). It is a generator: it yields when it has used
up its slice of time, so that the caller can let others run.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from dataclasses import dataclass

from kiwi_gw.core import passes
from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.commands import Limit
from kiwi_gw.core.encoding import EncodingMemo, Wire
from kiwi_gw.core.fanout import Group, fan_out
from kiwi_gw.core.history import Replay
from kiwi_gw.core.last_values import LastValues
from kiwi_gw.core.notices import SourceTroubled
from kiwi_gw.core.outlet import Outlet, Owner
from kiwi_gw.core.places import pieces
from kiwi_gw.core.policies import holds
from kiwi_gw.core.starts import Wanted, Where, at_once, begin, check_number, is_past, load
from kiwi_gw.core.states import IN_HISTORY, NOT_LIVE, Input, State
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD, Budget, Entry, Window
from kiwi_gw.core.wire_keys import ChosenKeys
from kiwi_gw.errors import EncodingFailed, SubscribeRefused
from kiwi_gw.model import (
    Batch,
    CloseReason,
    Encoded,
    Extent,
    Gap,
    Lineage,
    Mode,
    OverflowPolicy,
    Positions,
    SourceInfo,
    Start,
    StartAt,
    Traced,
)


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of one source. Times in seconds; `buffer_capacity` 0 means the window's events,
    `lag_threshold` 0 half of a subscription's capacity."""

    window_events: int = 65_536
    window_bytes: int = 64 * 1024 * 1024
    buffer_capacity: int = 0
    lag_threshold: int = 0
    lag_interval: float = 1.0
    overflow: OverflowPolicy = OverflowPolicy.DROP_OLDEST
    subscribe_timeout: float = 5.0
    max_wire_keys: int = 1_000
    wire_keys_identity: int = 250
    wire_keys_connection: int = 64
    direct_bytes: int = 256 * 1024
    slice_seconds: float = 0.005
    history_readers: int = 4
    history_events: int = 65_536
    history_bytes: int = 16 * 1024 * 1024
    allow: Set[OverflowPolicy] = frozenset(OverflowPolicy) - {OverflowPolicy.BLOCK}
    block_timeout: float = 30.0
    block_fallback: OverflowPolicy = OverflowPolicy.DROP_OLDEST
    last_values: bool = False
    last_values_keys: int = 100_000
    last_values_bytes: int = 16 * 1024 * 1024


class FeedState(enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    REMOVED = "removed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """What a subscription asks for. `capacity` and `overflow` None: the source's own."""

    handle: Hashable
    wire: Wire
    mode: Mode
    credits: int
    limits: Mapping[Hashable, Limit]
    overflow: OverflowPolicy | None = None
    capacity: int | None = None
    until: Positions | None = None
    start: Start = StartAt.LATEST
    report_every: float | None = None
    payer: Payer | None = None


class Feed:
    """See the top of this file.

    clock: monotonic seconds.
    """

    def __init__(
        self,
        info: SourceInfo,
        limits: FeedLimits,
        memo: EncodingMemo,
        budget: Budget,
        clock: Callable[[], float],
    ) -> None:
        self.info = info
        self.limits = limits
        self.state = FeedState.STARTING
        self.end_reason = CloseReason.ENDED
        self.end_message = "the source has ended"
        self.trouble = ""
        self.window = Window(limits.window_events, limits.window_bytes, budget, {})
        self.dropped: Counter[OverflowPolicy] = Counter()  # events given up, by who gave them up
        self.chosen_keys = ChosenKeys(
            limits.max_wire_keys, limits.wire_keys_identity, limits.wire_keys_connection
        )
        self.replay = Replay(self, budget)
        self.last_values: LastValues | None = None
        if limits.last_values:
            self.last_values = LastValues(
                limits.last_values_keys, limits.last_values_bytes, budget, self.evicted, clock
            )
        self.freed: Callable[[], None] = _nothing  # called when a subscription may hold the source no longer
        self.traced: Traced | None = None  # the source, while it runs and after it, if it is
        self.held_by: list[str] = []  # who holds it by `block` just now, in words
        self._budget = budget
        self.lag_notices = 0
        self.events_in = 0
        self.events_sent = 0
        self.events_replayed = 0
        self.replaying = 0
        # What a subscription may ask for: what is allowed, and this source can do.
        self.policies = {limits.overflow, *limits.allow}
        if not info.replayable:
            self.policies.discard(OverflowPolicy.REPLAY)
        if not limits.last_values:
            self.policies.discard(OverflowPolicy.LATEST)
        self.memo = memo
        self._evaluations = memo.evaluations
        self._clock = clock
        self._groups: dict[Hashable, Group] = {}
        self._opening: dict[Subscription, float] = {}
        self._starts: dict[Subscription, Where] = {}
        self._unbegun: deque[Subscription] = deque()  # they came while the source started
        self._blocking: dict[Subscription, None] = {}
        self._reporting: dict[Subscription, None] = {}
        self._not_live: dict[Subscription, None] = {}
        self._size = 0

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def positions(self) -> Positions:
        """Where the next event of the source will be."""
        return self.window.positions

    @property
    def lineage(self) -> Lineage | None:
        return None if self.traced is None else self.traced.lineage

    def dump(self, positions: Positions) -> dict[str, object]:
        """Positions for clients, in the form of the source's codec, with what says of which history."""
        found = self.info.codec.dump(positions)
        if (lineage := self.lineage) is not None:
            found.update(lineage.marks(positions))
        return found

    @property
    def subscribers(self) -> int:
        """Subscriptions that are not closed."""
        return self._size

    @property
    def events_dropped(self) -> int:
        """Events that subscriptions have given up."""
        return sum(self.dropped.values())

    @property
    def behind(self) -> int:
        """Subscriptions that have not had everything."""
        return len(self._not_live)

    @property
    def over(self) -> bool:
        """Whether the finite source has ended."""
        return self.state is FeedState.ENDED

    @property
    def wire_keys(self) -> int:
        return len(self._groups)

    def waiting_for_history(self) -> list[Subscription]:
        """Subscriptions that are below the window and have no place in history."""
        return [item for item in self._not_live if item.state is State.HISTORY_WAITING]

    # --- subscriptions come and go ---------------------------------------------------------

    def subscribe(self, request: Request, outlet: Outlet, owner: Owner) -> Subscription:
        """A new subscription: LIVE at the head, or OPENING while the source starts. A finite source that has
        ended still serves what it holds to those that begin before its end, which they are then told of.

        Raises SubscribeRefused where the source is over, a bound is reached or a wish cannot be met.
        """
        held = self.over and request.start is not StartAt.LATEST
        if self.state not in (FeedState.STARTING, FeedState.RUNNING) and not held:
            raise SubscribeRefused(self.end_reason.value, self.end_message)
        policy = request.overflow or self.limits.overflow
        if policy not in self.policies:
            offered = ", ".join(item.value for item in OverflowPolicy if item in self.policies)
            raise SubscribeRefused("overflow", f"{policy.value} is not available here; there is {offered}")
        most = min(self.limits.buffer_capacity or self.limits.window_events, self.limits.window_events)
        capacity = max(1, min(request.capacity or most, most))
        threshold = min(self.limits.lag_threshold or max(1, capacity // 2), capacity)
        where = load(request.start, self.info)
        if where is StartAt.SNAPSHOT and self.last_values is None:
            raise SubscribeRefused("start", "the newest events of this source are not kept by key")
        subscription = Subscription(
            self,
            self._group(request.wire, request.payer),
            request.handle,
            outlet,
            owner,
            request.mode,
            request.credits,
            policy,
            capacity,
            threshold,
            request.limits,
            request.until,
            request.wire.format.join,
            request.report_every,
            request.payer,
        )
        subscription.repeats = is_past(request.start)
        self._join(subscription.group, request.payer)
        if subscription.blocks:
            self._blocking[subscription] = None
        if request.report_every is not None:
            self._reporting[subscription] = None
        self._size += 1
        self._opening[subscription] = self.now + self.limits.subscribe_timeout
        self._starts[subscription] = where
        if self.state is not FeedState.STARTING:
            self._begin(subscription)
        if self.trouble and not subscription.closed:
            owner.notify(subscription, SourceTroubled(subscription.handle, self.info, self.trouble))
        return subscription

    @property
    def unresolved(self) -> Mapping[Subscription, Where]:
        """Subscriptions that wait until the source's history has said where they begin."""
        return self._starts if self.state in (FeedState.RUNNING, FeedState.ENDED) else {}

    def resolved(self, subscription: Subscription, extent: Extent) -> None:
        """Begin where history has answered, if the source can say of which history the positions are; else
        the subscription stays `unresolved`. `extent.first` is what was asked for where that is a time."""
        where = self._starts.get(subscription)
        if where is StartAt.LATEST or where is StartAt.SNAPSHOT:
            self._begin(subscription)  # it waits for nothing but what is known of its end
        elif where is not None and not self._unknown(subscription) and not self._refuted(subscription):
            known = self.window.positions  # of partitions that it has only now, this feed knows nothing
            first = {p: offset for p, offset in extent.first.items() if p in known}
            try:
                found = begin(where, Extent(first, extent.end), self.info)
            except SubscribeRefused as refused:
                subscription.refuse(refused.code, str(refused))
            else:
                subscription.open_at(found.positions, found.missing)
                self._end_if_over(subscription)

    def given(self, subscription: Subscription) -> list[Positions]:
        """Return the positions that an unopened subscription has brought: where it begins, where it ends."""
        where = self._starts.get(subscription)
        given = [where.positions] if isinstance(where, Wanted) else []
        return given if subscription.until is None else [*given, subscription.until]

    def _begin(self, subscription: Subscription) -> None:
        where = self._starts[subscription]
        try:
            check_number(where, self.window.positions)
        except SubscribeRefused as refused:
            subscription.refuse(refused.code, str(refused))
            return
        if self._unknown(subscription):
            self.replay.changed()
            return
        if self._refuted(subscription):
            return
        if where is StartAt.LATEST:
            subscription.open_at_head()
            return
        if where is StartAt.SNAPSHOT and self.last_values is not None:
            passes.open_with_snapshot(subscription, self.last_values)
            self._end_if_over(subscription)
            return
        try:
            found = at_once(where, self.window, self.info)
        except SubscribeRefused as refused:
            subscription.refuse(refused.code, str(refused))
            return
        found = found or self.replay.begin(where)
        if found is None:
            self.replay.changed()
        else:
            subscription.open_at(found.positions, found.missing)
            self._end_if_over(subscription)

    def _end_if_over(self, subscription: Subscription) -> None:
        """It has come after the end: it gets what there is."""
        if self.over:
            subscription.end(self.end_reason, self.end_message, Input.ENDED)

    def _unknown(self, subscription: Subscription) -> bool:
        """Say whether the source must be asked first of which history its positions are."""
        lineage = self.lineage
        return lineage is not None and not all(map(lineage.knows, self.given(subscription)))

    def _refuted(self, subscription: Subscription) -> bool:
        """Refuse it if its positions are of another history than the source's. Returns whether it was."""
        lineage = self.lineage
        if lineage is None:
            return False
        why = next(filter(None, map(lineage.refuted, self.given(subscription))), None)
        if why is not None:
            subscription.refuse("positions", why)
        return why is not None

    def regroup(
        self,
        subscription: Subscription,
        item: Wire,
        payer: Payer | None = None,
        *,
        all_at_once: bool = False,
        fewer: bool = False,
    ) -> None:
        """Give a subscription another wire key. payer: of that, None: as before. all_at_once: all others are
        about to get another one, too. fewer: it asks for less than before.

        Raises SubscribeRefused, and then it has the old one, as if nothing had been asked.
        """
        old, paid = subscription.group, subscription.payer
        payer = payer or paid
        group = self._group(item, payer, old, counted=not all_at_once, fewer=fewer)
        if old is group and payer == paid:
            return
        if subscription.state is State.LIVE and not subscription.caught_up:
            self._demote(subscription)  # fan-out is on its way, and would look for it in the old group
        live = subscription in old.live
        self._join(group, payer)
        self._leave(old, paid)
        subscription.group, subscription.payer = group, payer
        if live and old is not group:
            del old.live[subscription]
            group.live[subscription] = None

    def moved(self, subscription: Subscription, old: State, new: State) -> None:
        """A subscription changed its state (called by itself)."""
        if old is State.OPENING:
            self._opening.pop(subscription, None)
            self._starts.pop(subscription, None)
        if new in NOT_LIVE:
            self._not_live[subscription] = None
        else:
            self._not_live.pop(subscription, None)
        if old is State.HISTORY_WAITING:
            self.replay.withdrawn(subscription)
        if (new in IN_HISTORY) is not (old in IN_HISTORY):
            self.replaying += 1 if new in IN_HISTORY else -1
            self.replay.changed()
        if new is State.CLOSED:
            self._size -= 1
            self.events_sent += subscription.matched
            self._reporting.pop(subscription, None)
            if self._blocking.pop(subscription, self) is None:
                self.freed()
            self._leave(subscription.group, subscription.payer)

    def troubled(self, message: str) -> None:
        """The source is cut off from its origin, or (an empty message) works again: everyone is told."""
        if message == self.trouble:
            return
        self.trouble = message
        live = [item for group in self._groups.values() for item in group.live]
        for subscription in [*self._opening, *live, *self._not_live]:
            if not subscription.closed:
                notice = SourceTroubled(subscription.handle, self.info, message)
                subscription.owner.notify(subscription, notice)

    # --- the source's life -----------------------------------------------------------------

    def started(self, positions: Positions) -> None:
        """The source works; `positions` is where its next event will be."""
        if self.state is FeedState.STARTING:
            self.window.reset(positions)
            self.state = FeedState.RUNNING
            self._unbegun.extend(self._opening)
        self.begin_some()

    def begin_some(self) -> bool:
        """Begin with those that waited for the source, for a slice of time. Say whether there are more."""
        until = self._clock() + self.limits.slice_seconds
        while self._unbegun:
            subscription = self._unbegun.popleft()
            if subscription in self._starts:
                self._begin(subscription)
            if self._clock() >= until:
                break
        return bool(self._unbegun)

    def publish(self, batch: Batch) -> Iterator[None]:
        """Take a batch and send it to everyone who can take it, piece by piece. Yields between them, and when
        it has run for a slice. Nothing more of it is taken once the source is stopped.

        ValueError: it repeats what was taken.
        """
        todo = pieces(batch)
        piece = next(todo, None)
        try:
            while piece is not None and self.state is FeedState.RUNNING:
                taken, piece = piece, next(todo, None)
                yield from self._publish(taken)
                if piece is not None:
                    yield
        except GeneratorExit:  # the caller gave up half-way: the rest is read from the window
            while piece is not None and self.state is FeedState.RUNNING:
                self._take(piece)
                self._demote_unserved()
                piece = next(todo, None)
            raise

    def _publish(self, batch: Batch) -> Iterator[None]:
        entry = self._take(batch)
        until = self._turned()
        done = False
        try:
            for group in sorted(self._groups.values(), key=_evaluated):
                if not group.live:
                    continue
                waiting = list(group.live)
                waiting.reverse()
                try:
                    encoded = self._encoded(entry, group, keep=len(group.live) < group.size, wait=True)
                except EncodingFailed as error:
                    self.group_failed(group, str(error))
                    continue
                if encoded is None:  # its query is postponed: they are woken when the fragments are there
                    for subscription in waiting:
                        if subscription.cursor == entry.base and subscription.state is State.LIVE:
                            subscription.fall_behind(entry)
                    if self._clock() >= until:
                        yield
                        until = self._turned()
                    continue
                for _ in fan_out(entry, group, encoded, waiting, self.limits.direct_bytes, self.memo):
                    if self._clock() >= until:
                        yield
                        until = self._turned()
            done = True
        finally:
            if not done:
                self._demote_unserved()

    def _take(self, batch: Batch) -> Entry:
        entry = self.window.append(batch, self.evicted)
        self.events_in += len(batch)
        if self.last_values is not None:
            self.last_values.update(entry)
        return entry

    def _demote_unserved(self) -> None:
        """Have whoever was not served the newest entry read it from the window."""
        unserved = [s for g in self._groups.values() for s in g.live if not s.caught_up]
        for subscription in unserved:
            self._demote(subscription)
        for subscription in unserved:
            subscription.outlet.wake(subscription)

    def holders(self, batch: Batch) -> list[Subscription]:
        """The subscriptions that this batch must wait for (policy `block`)."""
        if not self._blocking:
            return []
        cost = sum(piece.cost + ENTRY_OVERHEAD for piece in pieces(batch))
        return [subscription for subscription in self._blocking if holds(subscription, len(batch), cost)]

    def ended(self) -> None:
        """The finite source is over: everyone gets the rest, then the notice."""
        self._finish(FeedState.ENDED, CloseReason.ENDED, "the source has ended", Input.ENDED, None)

    def removed(self, reason: CloseReason, message: str, drain: float) -> None:
        """The source is gone or becomes another: the rest is sent for `drain` seconds at most."""
        self._finish(FeedState.REMOVED, reason, message, Input.REMOVED, self.now + drain)

    def failed(self, message: str) -> None:
        """The source can never work: nothing more is sent."""
        self._finish(FeedState.FAILED, CloseReason.FAILED, message, Input.FAILED, None)

    def withdraw(self, subscription: Subscription, message: str) -> None:
        """The client has lost its right to this source."""
        subscription.end(CloseReason.UNAUTHORIZED, message, Input.FAILED)

    def sweep(self) -> None:
        """Call it a few times a second: what nobody reads for is noticed here."""
        now = self.now
        for subscription, deadline in list(self._opening.items()):
            if now >= deadline:
                message = self._late(subscription)
                subscription.end(CloseReason.FAILED, message, Input.OPEN_FAILED)
        self.replay.sweep(now)
        if self.last_values is not None:
            self.last_values.pages.sweep()
        for subscription in list(self._not_live):
            subscription.sweep(now, self.limits.lag_interval)
        for subscription in list(self._reporting):
            if subscription.state is not State.OPENING:
                subscription.report(now)

    def _late(self, subscription: Subscription) -> str:
        """Say why a subscription is not open yet whose time is up. It may be tried again."""
        late = "started" if self.state is FeedState.STARTING else "said where that is"
        message = f"the source has not {late} within {self.limits.subscribe_timeout:g} s"
        lineage = self.lineage
        if lineage is None:
            return message
        unknown = next(filter(None, map(lineage.unknown, self.given(subscription))), "")
        return f"{message}: {unknown}; try again" if unknown else message

    def close(self) -> None:
        """Let go of the memory. Every subscription must be closed."""
        if self.last_values is not None:
            self.last_values.clear()
        self.window.clear(self.evicted)

    # --- inside ----------------------------------------------------------------------------

    def encoded(self, group: Group, entry: Entry, *, wait: bool) -> Encoded | None:
        """Return the fragments of an entry for a reader that is behind; None: not yet. wait: it is parked
        there, and is woken then; without, nothing is made of a query."""
        return self._encoded(entry, group, keep=True, wait=wait)

    def awaited(self, group: Group, entry: Entry) -> bool:
        """Whether the fragments of an entry are being made."""
        return self._evaluations is not None and self._evaluations.awaited(entry, group)

    def _encoded(self, entry: Entry, group: Group, *, keep: bool, wait: bool) -> Encoded | None:
        if group.costs is None or self._evaluations is None:
            return self.memo.encoded(entry, group.wire, keep=keep)
        return self._evaluations.encoded(self.memo, self, entry, group, keep=keep, wait=wait)

    def _turned(self) -> float:
        """Others have had their turn. Returns until when this one may go on."""
        if self._evaluations is not None:
            self._evaluations.turned()
        return self._clock() + self.limits.slice_seconds

    def read_by_all(self, entry: Entry) -> None:
        """Nobody is known who needs the fragments of this entry."""
        self.memo.forget(entry)

    def _demote(self, subscription: Subscription) -> None:
        """LIVE, but not served yet by the fan-out that is on its way: it reads on from the window."""
        newest = self.window.newest
        if newest is not None:
            subscription.fall_behind(newest)

    def _group(
        self,
        item: Wire,
        payer: Payer | None,
        leaving: Group | None = None,
        *,
        counted: bool = True,
        fewer: bool = False,
    ) -> Group:
        """The group of a wire key. leaving: the one that is left when this one is joined. counted: whether it
        may be one too many; fewer: as in `ChosenKeys.check`.

        Raises SubscribeRefused.
        """
        group = self._groups.get(item.key)
        if counted and item.format.chosen and (group is None or group is not leaving):
            self.chosen_keys.check(group, payer, leaving, fewer=fewer)
        if group is None:
            costs = None
            if item.format.steps is not None and self._evaluations is not None:
                costs = self._evaluations.costs(self.info.id, item.key)
            group = self._groups[item.key] = Group(item, costs)
        return group

    def _join(self, group: Group, payer: Payer | None) -> None:
        group.size += 1
        if group.costs is not None:
            group.costs.joined(payer)
        if group.wire.format.chosen:
            self.chosen_keys.joined(group, payer)

    def _leave(self, group: Group, payer: Payer | None) -> None:
        group.size -= 1
        if group.costs is not None:
            group.costs.left(payer)
        if group.wire.format.chosen:
            self.chosen_keys.left(group, payer)
        if group.size == 0:
            self._groups.pop(group.wire.key, None)
            if self._evaluations is not None:
                self._evaluations.emptied(self.info.id, group)

    def group_failed(self, group: Group, message: str) -> None:
        """End the subscriptions of a wire key whose fragments cannot be made."""
        members = [*group.live, *(item for item in self._not_live if item.group is group)]
        for subscription in members:
            subscription.end(CloseReason.FAILED, message, Input.FAILED)

    def evicted(self, entry: Entry) -> None:
        """An entry has left the source's window, or that of a reader of history."""
        self.memo.forget(entry)
        if not entry.parked:
            return
        positions: dict[int, Positions] = {}
        for subscription in list(entry.parked):
            index = subscription.cursor - entry.base
            if index not in positions:
                positions[index] = entry.batch.positions_at(index)
            subscription.evicted(positions[index])
        entry.parked.clear()

    def _finish(
        self,
        state: FeedState,
        reason: CloseReason,
        message: str,
        item: Input,
        deadline: float | None,
    ) -> None:
        self.state, self.end_reason, self.end_message = state, reason, message
        for subscription in list(self._opening):
            subscription.end(reason, message, item)
        for group in list(self._groups.values()):
            for subscription in list(group.live):
                if subscription.caught_up:
                    subscription.end(reason, message, item)
                else:
                    self._demote(subscription)
        for subscription in list(self._not_live):
            subscription.end(reason, message, item)  # CLOSED, or ENDING with the rest still to be sent
            if deadline is not None and not subscription.closed:
                subscription.set_deadline(deadline)


def lost(ranges: Mapping[int, tuple[int, int]], positions: Positions, count: int | None) -> Batch:
    """A batch without events that announces what the source itself lost before `positions`."""
    return Batch(positions, (), (), {}, 0, Gap(ranges, count))


def _evaluated(group: Group) -> bool:
    """Sort key: whoever has no query does not wait until those of others are evaluated."""
    return group.costs is not None


def _nothing() -> None:
    """The source does not wait."""
