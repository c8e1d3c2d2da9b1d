"""Subscriptions that are not open yet: they wait for their source, or for what its history says of where they
begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.endings import end
from kiwi_gw.core.history import HistoryQueue
from kiwi_gw.core.hub_interface import Hub
from kiwi_gw.core.last_values import LastValues, SnapshotScan
from kiwi_gw.core.notices import Opened, OpenFailed
from kiwi_gw.core.start_resolution import (
    RequestedPositions,
    RequestedStart,
    ResolvedStart,
    check_partition_count,
    resolve,
    resolve_in_window,
    resolve_until,
    skip_unread_partitions,
    start_of_group,
)
from kiwi_gw.core.states import SubscriptionInput
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import CloseReason, Committed, End, OffsetRange, Positions, StartAt


class Openings:
    """Those of one source. timeout: seconds until one is refused that could not be opened."""

    def __init__(self, source: Hub[Subscription], history: HistoryQueue, timeout: float) -> None:
        self._source = source
        self._history = history
        self._timeout = timeout
        self._deadlines: dict[Subscription, float] = {}
        self._starts: dict[Subscription, RequestedStart] = {}
        self._ends: dict[Subscription, End] = {}
        self._asking: set[Subscription] = set()  # for what history says
        self._waiting: deque[Subscription] = deque()  # they came while the source started

    @property
    def starts(self) -> Mapping[Subscription, RequestedStart]:
        """What each has asked for."""
        return self._starts

    def add(
        self, subscription: Subscription, where: RequestedStart, now: float, end: End | None = None
    ) -> None:
        """Take one that is to be opened. end: it depends on where the source ends by then; None: it does
        not."""
        self._deadlines[subscription] = now + self._timeout
        if end is not None:
            self._ends[subscription] = end
        self._starts[subscription] = where

    def remove(self, subscription: Subscription) -> None:
        """Forget one that is open, or closed."""
        self._deadlines.pop(subscription, None)
        self._starts.pop(subscription, None)
        self._ends.pop(subscription, None)
        if subscription in self._asking:
            self._asking.remove(subscription)
            if subscription.closed:
                self._history.on_changed()  # its question may be nobody's any more

    def end_late(self, now: float, *, starting: bool) -> None:
        """Refuse those whose time is up; they may try again. starting: the source does not run yet."""
        late = "started" if starting else "said where that is"
        message = f"the source has not {late} within {self._timeout:g} s"
        for subscription in [item for item, deadline in self._deadlines.items() if now >= deadline]:
            why = self._why_late(subscription)
            words = f"{message}: {why}; try again" if why else message
            end(subscription, CloseReason.FAILED, words, SubscriptionInput.OPEN_FAILED)

    def source_started(self) -> None:
        """Let all that wait begin, with `begin_next`."""
        self._waiting.extend(self._starts)

    def begin_next(self) -> bool:
        """Begin with the next one that waited for the source. False: there is none."""
        if self._waiting:
            subscription = self._waiting.popleft()
            if subscription in self._starts:
                self.begin(subscription)
        return bool(self._waiting)

    def begin(self, subscription: Subscription) -> None:
        """Open one at once, if it is known where it begins, or refuse it; else ask the source's history."""
        source, where = self._source, self._starts[subscription]
        try:
            check_partition_count(where, source.window.positions)
            if self._has_no_end(subscription) and source.info.replayable:
                self._ask(subscription)  # its end is the origin's, maybe further than what came from it
                return
            self._end(subscription, source.window.positions)
            if self._unknown(subscription):
                self._ask(subscription)
                return
            self._check_lineage(subscription)
            if where is StartAt.LATEST:
                _open_at_head(subscription)
            elif where is StartAt.SNAPSHOT and source.last_values is not None:
                _open_with_snapshot(subscription, source.last_values)
            else:
                found = resolve_in_window(where, source.window, source.info, source.expected)
                found = found or self._history.resolve_if_known(where)
                if found is None:
                    self._ask(subscription)
                else:
                    asked = self._ends.get(subscription)
                    _open_at(subscription, skip_unread_partitions(found, asked, source.window.positions))
        except SubscribeRefused as refused:
            _refuse(subscription, refused)

    def resolved(
        self,
        subscription: Subscription,
        offset_range: OffsetRange,
        committed: Mapping[int, int] | None = None,
    ) -> None:
        """Begin where history has answered, if the source can say of which history the positions are; else
        it stays unresolved. `offset_range.first` is what was asked for where that is a time. committed: what
        the group has, where that was asked for."""
        where = self._starts.get(subscription)
        self._end(subscription, offset_range.end)
        if where is StartAt.LATEST or where is StartAt.SNAPSHOT:
            self.begin(subscription)  # it waits for nothing but what is known of its end
        elif where is not None and not self._unknown(subscription):
            known = (
                self._source.window.positions
            )  # of partitions that it has only now, this hub knows nothing
            first = {p: offset for p, offset in offset_range.first.items() if p in known}
            try:
                self._check_lineage(subscription)
                there = OffsetRange(first, offset_range.end)
                if isinstance(where, Committed):
                    where = start_of_group(committed or {}, there)
                found = resolve(where, there, self._source.info)
                found = skip_unread_partitions(found, self._ends.get(subscription), offset_range.end)
            except SubscribeRefused as refused:
                _refuse(subscription, refused)
            else:
                _open_at(subscription, found)

    def refuse(self, subscription: Subscription, refused: SubscribeRefused) -> None:
        """Refuse one, if it is not open yet."""
        if subscription in self._starts:
            _refuse(subscription, refused)

    def _ask(self, subscription: Subscription) -> None:
        """Have history asked for it."""
        self._asking.add(subscription)
        self._history.on_changed()

    def _has_no_end(self, subscription: Subscription) -> bool:
        """Say whether it depends on the source's end where this one's is, and that is not known yet."""
        return subscription in self._ends and subscription.delivery.bounds.until is None

    def _end(self, subscription: Subscription, end: Positions) -> None:
        """Have it end, if that depended on where the source does: there. Of partitions that are newer than
        the source's last start nothing is read."""
        if self._has_no_end(subscription):
            known = self._source.window.positions
            until = resolve_until(self._ends[subscription], end)
            subscription.delivery.end_at({p: offset for p, offset in until.items() if p in known})

    def requested_positions(self, subscription: Subscription) -> list[Positions]:
        """Return the positions that an unopened subscription has brought: where it begins, where it ends."""
        where, until = self._starts.get(subscription), subscription.delivery.bounds.until
        given = [where.positions] if isinstance(where, RequestedPositions) else []
        return given if until is None else [*given, until]

    def _why_late(self, subscription: Subscription) -> str:
        """Say what is not known of its positions, in words; nothing if all is known."""
        lineage = self._source.lineage
        if lineage is None:
            return ""
        return next(filter(None, map(lineage.unknown, self.requested_positions(subscription))), "")

    def _unknown(self, subscription: Subscription) -> bool:
        """Say whether the source must be asked first of which history its positions are."""
        lineage = self._source.lineage
        return lineage is not None and not all(map(lineage.knows, self.requested_positions(subscription)))

    def _check_lineage(self, subscription: Subscription) -> None:
        """Raise SubscribeRefused if its positions are of another history than the source's."""
        lineage = self._source.lineage
        if lineage is not None:
            why = next(filter(None, map(lineage.refuted, self.requested_positions(subscription))), None)
            if why is not None:
                raise SubscribeRefused(RefusalCode.POSITIONS, why)


def _open_at_head(subscription: Subscription) -> None:
    """Begin with the next event of the source."""
    subscription.reader.cursor.start_at_head()
    subscription.began = subscription.seq
    subscription.apply(SubscriptionInput.OPENED)
    _opened(subscription)


def _open_at(subscription: Subscription, found: ResolvedStart) -> None:
    """Begin with the events at these positions, in the window or below it."""
    window, reader = subscription.hub.window, subscription.reader
    reader.rereads = True
    if window.reaches(found.positions):
        reader.cursor.enter(window, found.positions)
        subscription.apply(SubscriptionInput.JOINED)
    else:
        subscription.wait_for_history(found.positions)
    _opened(subscription)
    if found.missing and not subscription.closed:
        reader.lag.add(0, found.missing, unknown=True)
    _come_late(subscription)


def _open_with_snapshot(subscription: Subscription, index: LastValues) -> None:
    """Begin with the newest event of every key."""
    window = subscription.hub.window
    subscription.apply(SubscriptionInput.JOINED)
    here = index.starts(window.positions)
    scan = SnapshotScan(0, window.head, here, window.positions, window.lost, window.unknown, None)
    subscription.reader.begin_snapshot(window, index, scan)
    _opened(subscription)
    _come_late(subscription)


def _opened(subscription: Subscription) -> None:
    hub, terms = subscription.hub, subscription.reader.terms
    begin, until = subscription.positions, subscription.delivery.bounds.until
    positions = hub.dump(begin)
    subscription.tell(
        Opened(subscription.handle, hub.info, positions, terms.policy, terms.capacity, begin, until)
    )
    subscription.check_reached()  # it may have been asked for nothing


def _come_late(subscription: Subscription) -> None:
    """Read what there is; after the source's end that is all."""
    subscription.mark_ready()
    subscription.hub.end_if_over(subscription)


def _refuse(subscription: Subscription, refused: SubscribeRefused) -> None:
    """Refuse one that cannot begin where it was asked to."""
    subscription.apply(SubscriptionInput.OPEN_FAILED)
    subscription.tell(OpenFailed(subscription.handle, refused.code, str(refused)))
