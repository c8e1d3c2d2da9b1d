"""Everything that a subscription promises, against a list of what was produced.

A machine produces batches (with gaps, empty, too large to send, let go half-way), and clients subscribe,
grant, reconfigure, read at random and leave. At the end each client's wire is read from its first byte: whole
frames only, every event in its place or announced as lost before the next one, exactly.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kiwi_gw.core.delivery import MAX_CREDIT
from kiwi_gw.core.encoding import KeyedFormat, keyed_format, weight
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Ended, Lagged, Notice, Opened
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD
from kiwi_gw.model import Batch, CloseReason, Gap, OverflowPolicy, Ranges, WireFormat
from tests.effort import play
from tests.unit.core.fakes import ENDLESS, JOINED, BoundedClient, Event, Place, World, names

PARTITIONS = 3


def is_big(place: Place) -> bool:
    return place[1] % 5 == 3


def is_kept(place: Place) -> bool:
    return (place[0] + place[1]) % 3 == 0


@dataclass(frozen=True)
class Form:
    """Hold a wire format, and what the model knows of it."""

    format: WireFormat
    name: str
    filtered: bool = False
    limited: bool = False

    def yields(self, place: Place) -> bool:
        return not (self.filtered and not is_kept(place)) and not (self.limited and is_big(place))


FORMS = [
    Form(names("a"), "a"),
    Form(names("b"), "b"),
    Form(names("j", framing=JOINED), "j"),
    Form(names("f", keep=is_kept), "f", filtered=True),
    Form(names("g", keep=is_kept, framing=JOINED), "g", filtered=True),
    Form(names("u", big=is_big), "u", limited=True),
    Form(names("v", big=is_big, keep=is_kept), "v", filtered=True, limited=True),
]


@dataclass
class SourceGap:
    """Hold what the source lost before the event with this number."""

    at: int
    count: int | None
    ranges: Ranges


class Reader(BoundedClient):
    """Act as a client with a model of what it should see."""

    def __init__(self, world: World, form: Form) -> None:
        super().__init__()
        self.world = world
        self.forms = [(0, form)]  # from which event on
        self.granted = 0
        self.cancelled = False
        self.since = 0  # given up since it was last caught up
        self.unknown = False
        self.lag_at = -1e9
        self.subscription: Subscription | None = None
        self.told: dict[int, tuple[int, int]] = {}  # head and known losses, when a notice was written

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        self.told[id(notice)] = (len(self.world.made), subscription.seq)
        if isinstance(notice, Lagged):
            known = subscription.hub.window.head - subscription.seq
            assert notice.behind == known
            if notice.dropped is not None:
                self.since += notice.dropped
                if not self.unknown:
                    assert notice.count == notice.behind + self.since
            self.unknown = self.unknown or notice.dropped is None
            if not notice.dropped and notice.dropped is not None:
                assert notice.behind > subscription.reader.terms.threshold, "a notice about nothing"
                assert self.world.clock() - self.lag_at >= 1
            self.lag_at = self.world.clock()
        super().notify(subscription, notice)

    def form_at(self, number: int) -> Form:
        return next(form for start, form in reversed(self.forms) if number >= start)

    @property
    def filtered(self) -> bool:
        return any(form.filtered for _, form in self.forms)


@dataclass
class Walk:
    """Read one client's wire against the list of what was produced."""

    reader: Reader
    made: list[Place]
    gaps: list[SourceGap]
    exact_ranges: bool
    next: int = 0
    gap: int = 0
    dropped: int = 0
    received: list[int] = field(default_factory=list)
    ended: Ended | None = None

    def run(self, first_gap: int) -> None:
        self.gap = first_gap
        number = {place: n for n, place in enumerate(self.made)}
        opened, *items = self.reader.read()
        assert isinstance(opened, Opened)
        for item in items:
            assert self.ended is None, "something follows the end"
            if isinstance(item, Event):
                self.event(item, number[item.place])
            elif isinstance(item, Lagged):
                self.lag(item)
            else:
                assert isinstance(item, Ended)
                self.end(item)

    def event(self, event: Event, number: int) -> None:
        assert number >= self.next, "twice, or out of order"
        assert not any(map(self.yields, range(self.next, number))), "lost without a word"
        assert self.yields(number)
        assert event.name == self.reader.form_at(number).name
        assert all(gap.at > number for gap in self.gaps[self.gap :]), "the source's loss was not announced"
        self.next = number + 1
        self.received.append(number)

    def lag(self, lag: Lagged) -> None:
        head, cursor = self.reader.told[id(lag)]
        assert head - lag.behind == cursor
        self.give_up(cursor, lag.dropped, lag.ranges)
        assert lag.positions.keys() == {str(p) for p in range(PARTITIONS)}

    def end(self, end: Ended) -> None:
        head, _ = self.reader.told[id(end)]
        self.ended = end
        if end.reason is CloseReason.ENDED:
            assert not any(map(self.yields, range(self.next, head)))
            self.next = head
        self.give_up(head, end.dropped, None)

    def give_up(self, upto: int, dropped: int | None, ranges: Ranges | None) -> None:
        """Count `dropped` events as lost before the event `upto`, and after what was seen last."""
        assert upto >= self.next
        between = range(self.next, upto)
        silent = 0 if not self.reader.filtered else sum(not self.yields(n) for n in between)
        must = sum(gap.at < upto for gap in self.gaps[self.gap :])
        may = sum(gap.at <= upto for gap in self.gaps[self.gap :])
        for taken in range(may, must - 1, -1):
            gaps = self.gaps[self.gap : self.gap + taken]
            known = sum(gap.count or 0 for gap in gaps)
            unknown = any(gap.count is None for gap in gaps)
            if (dropped is None) != unknown:
                continue
            most = len(between) + known
            if dropped is not None and not most - silent <= dropped <= most:
                continue
            if ranges is not None and not self.ranges_fit(ranges, between, gaps):
                continue
            self.gap += taken
            break
        else:
            raise AssertionError(
                f"{dropped} lost in {ranges}, but {list(between)} and {self.gaps[self.gap :]}"
            )
        self.next = upto
        self.dropped += dropped or 0

    def ranges_fit(self, ranges: Ranges, between: range, gaps: list[SourceGap]) -> bool:
        true: dict[int, tuple[int, int]] = {}
        whole = [*([(p, (o, o)) for p, o in map(self.made.__getitem__, between)])]
        for partition, (first, last) in [*whole, *(item for gap in gaps for item in gap.ranges.items())]:
            old = true.get(partition, (first, last))
            true[partition] = min(old[0], first), max(old[1], last)
        for partition, offset in (self.made[n] for n in self.received):
            first, last = ranges.get(partition, (0, -1))
            assert not first <= offset <= last, "received, but said to be lost"
        if self.reader.filtered:  # where it stood between two events that it did not get is not on the wire
            true = {p: item for gap in gaps for p, item in gap.ranges.items()}
        if self.reader.filtered or not self.exact_ranges:
            return all(
                p in ranges and ranges[p][0] <= first and last <= ranges[p][1]
                for p, (first, last) in true.items()
            )
        return dict(ranges) == true

    def yields(self, number: int) -> bool:
        return self.reader.form_at(number).yields(self.made[number])


@dataclass(frozen=True)
class Wish:
    form: Form
    credit: int | None
    capacity: int | None
    room: int
    close: bool


WISHES = st.builds(
    Wish,
    form=st.sampled_from([FORMS[0], FORMS[0], *FORMS]),
    credit=st.none() | st.integers(0, 3),
    capacity=st.none() | st.integers(1, 40),
    room=st.sampled_from([ENDLESS, 0, 20, 100]),
    close=st.integers(0, 4).map(lambda n: n == 0),
)

partitions = st.lists(st.integers(0, PARTITIONS - 1), max_size=10)


class Machine(RuleBasedStateMachine):
    @initialize(
        window=st.integers(4, 30),
        entries=st.integers(2, 20),
        memory=st.sampled_from([ENDLESS, 6_000]),
        memo=st.sampled_from([ENDLESS, 600]),
        holes=st.integers(0, 3).map(lambda n: n == 0),
        wishes=st.lists(WISHES, min_size=2, max_size=5),
    )
    def begin(
        self, window: int, entries: int, memory: int, memo: int, wishes: list[Wish], *, holes: bool
    ) -> None:
        limits = HubLimits(
            window_events=window, window_bytes=entries * ENTRY_OVERHEAD, direct_bytes=120, slice_seconds=0
        )
        self.world = World(limits, memory, memo, start=dict.fromkeys(range(PARTITIONS), 0))
        self.readers: list[Reader] = []
        self.first_gap: dict[Reader, int] = {}
        self.gaps: list[SourceGap] = []
        self.holes = holes
        self.steps: Generator[Batch | None] | None = None
        for wish in wishes:
            self.subscribe(wish)

    # --- the source ---

    def publish(self, places: list[int], gap: Gap | None = None, hole: int = 0) -> None:
        self.finish()
        if gap is not None:
            self.gaps.append(SourceGap(len(self.world.made), gap.count, gap.ranges))
        batch = self.world.batch(places, gap=gap, hole=hole)
        self.steps = publish(self.world.hub, batch)
        next(self.steps, None)

    def finish(self) -> None:
        for _ in self.steps or ():
            pass
        self.steps = None
        self.look()

    @rule(places=partitions, hole=st.integers(0, 2))
    def produce_more(self, places: list[int], hole: int) -> None:
        self.produce([*places, 0, 1], hole)

    @rule(places=partitions, hole=st.integers(0, 2))
    def produce(self, places: list[int], hole: int) -> None:
        self.publish(places, hole=hole if self.holes else 0)
        self.finish()

    @rule(
        places=partitions,
        partition=st.integers(0, PARTITIONS - 1),
        size=st.integers(1, 5),
        known=st.booleans(),
    )
    def lose(self, places: list[int], partition: int, size: int, *, known: bool) -> None:
        first = self.world.next[partition]
        self.publish(places, Gap({partition: (first, first + size - 1)}, size if known else None))
        self.finish()

    @rule(places=partitions)
    def produce_slowly(self, places: list[int]) -> None:
        self.publish(places)

    @precondition(lambda self: self.steps is not None)
    @rule()
    def go_on(self) -> None:
        next(self.steps, None)  # type: ignore[arg-type]

    @precondition(lambda self: self.steps is not None)
    @rule()
    def abandon(self) -> None:
        self.steps.close()  # type: ignore[union-attr]
        self.steps = None

    @rule(seconds=st.sampled_from([0.1, 0.9, 1.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # --- the clients ---

    @precondition(lambda self: len(self.readers) < 8)
    @rule(wish=WISHES)
    def subscribe(self, wish: Wish) -> None:
        reader = Reader(self.world, wish.form)
        self.readers.append(reader)
        self.first_gap[reader] = len(self.gaps)
        reader.granted = wish.credit or 0
        reader.subscription = self.world.subscribe(
            reader,
            wish.form.format,
            credit=wish.credit,
            capacity=wish.capacity,
            overflow=OverflowPolicy.CLOSE if wish.close else None,
        )
        reader.room = wish.room

    def pick(self, which: int) -> Reader:
        return self.readers[which % len(self.readers)]

    @rule(which=st.integers(0, 7), n=st.sampled_from([1, 2, 7, 50, MAX_CREDIT]))
    def grant(self, which: int, n: int) -> None:
        reader = self.pick(which)
        if reader.subscription and not reader.subscription.closed and self.pulls(reader):
            used = reader.granted - reader.subscription.delivery.credits
            reader.granted = min(reader.granted - used + n, MAX_CREDIT) + used
            assert reader.subscription.add_credit(n) == reader.granted - used

    @rule(which=st.integers(0, 7), room=st.sampled_from([0, 1, 5, 13, 40, 150, 1000]))
    def read_some(self, which: int, room: int) -> None:
        reader = self.pick(which)
        reader.room = room
        reader.writer.drain()

    @rule(which=st.integers(0, 7))
    def read_all(self, which: int) -> None:
        reader = self.pick(which)
        reader.room = ENDLESS
        reader.writer.drain()

    @rule(which=st.integers(0, 7), form=st.sampled_from(FORMS))
    def reconfigure(self, which: int, form: Form) -> None:
        reader = self.pick(which)
        if reader.subscription and not reader.subscription.closed:
            reader.forms.append((reader.subscription.seq, form))
            reader.subscription.hub.reconfigure(reader.subscription, _wire(form), {})

    @rule(which=st.integers(0, 40))
    def unsubscribe(self, which: int) -> None:
        if which < len(self.readers):
            reader = self.readers[which]
            assert reader.subscription is not None
            if not reader.subscription.closed:
                reader.subscription.cancel()
                reader.cancelled = True

    def pulls(self, reader: Reader) -> bool:
        return reader.subscription is not None and reader.subscription.delivery.mode.value == "pull"

    @invariant()
    def look(self) -> None:
        if not hasattr(self, "world"):
            return
        for reader in self.readers:
            subscription = reader.subscription
            if (
                subscription is not None
                and subscription.state is SubscriptionState.LIVE
                and not subscription.lag_due
            ):
                reader.since, reader.unknown = 0, False

    @invariant()
    def memory_adds_up(self) -> None:
        if not hasattr(self, "world"):
            return
        hub, memo = self.world.hub, self.world.memo
        held = hub.window._entries[hub.window._first :]
        kept = sum(weight(made) for entry in held for made in entry.encodings.values())
        assert memo.bytes == kept
        assert len(memo._order) == sum(len(entry.encodings) for entry in held)
        assert self.world.budget.used == hub.window.bytes + memo.bytes
        assert len(memo._order) <= 1 or memo.bytes <= memo._max_bytes
        if len(held) > 1:
            assert len(hub.window) <= hub.limits.window_events
            assert hub.window.bytes <= hub.limits.window_bytes

    @invariant()
    def counters_add_up(self) -> None:
        if not hasattr(self, "world"):
            return
        hub = self.world.hub
        open_ones = [r.subscription for r in self.readers if r.subscription and not r.subscription.closed]
        assert hub.subscribers == len(open_ones)
        assert hub.wire_keys == len({s.group.wire.key for s in open_ones})
        assert hub.behind == sum(s.state is SubscriptionState.BEHIND for s in open_ones)
        for subscription in open_ones:
            assert subscription.delivery.credits >= 0
            live = subscription in subscription.group.live
            assert live == (subscription.state is SubscriptionState.LIVE)
            if live and self.steps is None:
                assert subscription.reader.cursor.caught_up, "at the head, but left behind"
            parked = [e for e in hub.window._entries[hub.window._first :] if subscription in e.parked]
            assert len(parked) <= (not live)
            if subscription.seq >= hub.window.base and not live and subscription.reader.cursor.below is None:
                (entry,) = parked
                assert entry.base <= subscription.seq <= entry.end

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.finish()
        for reader in self.readers:
            reader.room = ENDLESS
            reader.writer.drain()
            subscription = reader.subscription
            assert subscription is not None
            assert subscription.closed or not subscription.readable
            if self.pulls(reader) and not subscription.closed:
                assert subscription.delivery.credits == reader.granted - subscription.delivery.matched
                assert subscription.state is SubscriptionState.LIVE or subscription.delivery.credits == 0
                reader.granted = reader.granted - subscription.delivery.credits + MAX_CREDIT
                subscription.add_credit(MAX_CREDIT)
            assert subscription.state in (SubscriptionState.LIVE, SubscriptionState.CLOSED)
        self.world.hub.ended()
        lost = 0
        for reader in self.readers:
            subscription = reader.subscription
            assert subscription is not None
            assert subscription.closed
            walk = Walk(reader, self.world.made, self.gaps, exact_ranges=not self.holes)
            walk.next = reader.told[id(reader.notices[0])][0]
            walk.run(self.first_gap[reader])
            assert reader.cancelled == (walk.ended is None)
            assert subscription.delivery.matched == len(walk.received)
            if self.pulls(reader):
                assert len(walk.received) <= reader.granted
            lost += walk.dropped
        if not any(gap.count is None for gap in self.gaps) and not any(r.cancelled for r in self.readers):
            assert sum(self.world.hub.dropped.values()) == lost
        self.world.hub.close()
        assert self.world.budget.used == self.world.memo.bytes == 0
        assert self.world.hub.wire_keys == self.world.hub.subscribers == self.world.hub.behind == 0


def _wire(form: Form) -> KeyedFormat:
    return keyed_format(form.format)


def test_every_client_gets_or_is_told_of_everything() -> None:
    play(Machine, 70, 50)
