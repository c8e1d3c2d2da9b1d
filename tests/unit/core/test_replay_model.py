"""Replay against a list of what was produced.

A machine produces, compacts and deletes; clients begin in the past or fall out of the window, read at random
speeds and with credits, and get and lose places in readers that are stepped at random. At the end each
client's wire is read from its first byte: every event once and in the order of its partition, and what is
missing was compacted away, or announced before the next event of its partition.
"""

from __future__ import annotations

from collections.abc import Generator

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kiwi_gw.core.delivery import MAX_CREDIT
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Ended, Lagged, Opened, OpenFailed
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD
from kiwi_gw.model import AtPositions, Batch, Gap, OverflowPolicy, Ranges, Start, StartAt
from tests.effort import play
from tests.unit.core.fakes import (
    ENDLESS,
    JOINED,
    REPLAYABLE,
    BoundedClient,
    Event,
    Place,
    World,
    names,
)
from tests.unit.core.past import Driver, Past, drive

PARTITIONS = 3
FORMS = [names("a"), names("a"), names("j", framing=JOINED)]


class Reader(BoundedClient):
    """Read with a bounded appetite."""

    def __init__(self) -> None:
        super().__init__()
        self.granted = 0
        self.cancelled = False
        self.subscription: Subscription | None = None

    @property
    def pulls(self) -> bool:
        return self.subscription is not None and self.subscription.delivery.mode.value == "pull"


class Walk:
    """Read one wire against what was produced."""

    def __init__(self, machine: Machine, reader: Reader) -> None:
        self.machine = machine
        self.next: dict[int, int] = {}
        self.lost: dict[int, list[tuple[int, int]]] = {p: [] for p in range(PARTITIONS)}
        self.dropped: int | None = 0
        self.got = 0
        self.skipped = 0
        self.ended: Ended | None = None
        told = reader.read()
        if not told:
            assert reader.cancelled  # before it was known where it begins
            return
        opened, *items = told
        if isinstance(opened, OpenFailed):
            assert not items
            return
        assert isinstance(opened, Opened)
        self.next = self.places_of(opened.positions)
        self.first = dict(self.next)
        for item in items:
            assert self.ended is None
            if isinstance(item, Event):
                self.event(item.place)
            elif isinstance(item, Lagged):
                self.give_up(item.dropped, item.ranges)
                self.check_positions(self.places_of(item.positions))
            else:
                assert isinstance(item, Ended)
                self.ended = item
                if item.dropped == 0:  # else what is lost is counted there, but has no ranges
                    self.check_positions(self.places_of(item.positions))

    def places_of(self, positions: object) -> dict[int, int]:
        return dict(REPLAYABLE.codec.load(positions))

    def check_positions(self, said: dict[int, int]) -> None:
        """Check that a client that resumes there misses nothing and gets nothing twice."""
        assert said.keys() == self.next.keys()
        for partition, offset in said.items():
            assert offset >= self.next[partition], "behind what was sent"
            self.pass_over(partition, offset)

    def event(self, place: Place) -> None:
        partition, offset = place
        assert place in self.machine.past.made
        assert offset >= self.next[partition], "twice, or out of order"
        assert not any(first <= offset <= last for first, last in self.lost[partition]), "said to be lost"
        self.pass_over(partition, offset)
        self.next[partition] = offset + 1
        self.got += 1

    def pass_over(self, partition: int, offset: int) -> None:
        for missing in range(self.next[partition], offset):
            place = (partition, missing)
            if place in self.machine.past.made or place in self.machine.past.unreadable:
                announced = any(first <= missing <= last for first, last in self.lost[partition])
                assert announced or place in self.machine.past.compacted, f"{place} lost without a word"
                self.skipped += not announced
        self.next[partition] = max(self.next[partition], offset)

    def give_up(self, dropped: int | None, ranges: Ranges) -> None:
        for partition, (first, last) in ranges.items():
            assert first >= self.next[partition] or last < self.first[partition], (
                "said to be lost, but it was sent"
            )
            self.lost[partition].append((first, last))
        if self.dropped is not None:
            self.dropped = None if dropped is None else self.dropped + dropped


wheres = st.one_of(
    st.just("latest"),
    st.just("earliest"),
    st.lists(st.integers(0, 100), min_size=PARTITIONS, max_size=PARTITIONS),
)


class Machine(RuleBasedStateMachine):
    @initialize(
        window=st.integers(4, 30),
        entries=st.integers(2, 20),
        history=st.integers(3, 12),
        readers=st.integers(1, 3),
        memory=st.sampled_from([ENDLESS, ENDLESS, 12_000]),
        clean=st.booleans(),
    )
    def begin(
        self, window: int, entries: int, history: int, readers: int, memory: int, *, clean: bool
    ) -> None:
        limits = HubLimits(
            window_events=window,
            window_bytes=entries * ENTRY_OVERHEAD,
            direct_bytes=120,
            slice_seconds=0,
            history_readers=readers,
            history_events=history,
            overflow=OverflowPolicy.REPLAY,
        )
        start = dict.fromkeys(range(PARTITIONS), 0)
        self.world = World(limits, memory, start=start, info=REPLAYABLE)
        self.past = Past(self.world)
        self.clean = clean  # nothing is compacted: everything adds up
        self.readers: list[Reader] = []
        self.drivers: list[Driver] = []
        self.steps: Generator[Batch | None] | None = None
        self.seen = 0

    # --- the source ---

    def publish(self, places: list[int], **options: object) -> None:
        self.finish()
        self.steps = publish(self.world.hub, self.world.batch(places, **options))  # type: ignore[arg-type]
        self.past.made.update(self.world.made[self.seen :])
        self.seen = len(self.world.made)
        next(self.steps, None)

    def finish(self) -> None:
        for _ in self.steps or ():
            pass
        self.steps = None

    partitions = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=10)

    @rule(places=partitions, hole=st.sampled_from([0, 0, 2]))
    def produce(self, places: list[int], hole: int) -> None:
        self.publish(places, hole=hole)
        self.finish()

    @rule(places=partitions)
    def produce_more(self, places: list[int]) -> None:
        for _ in range(5):
            self.publish(places)
        self.finish()

    @rule(places=partitions)
    def produce_slowly(self, places: list[int]) -> None:
        self.publish(places)

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.integers(1, 4), known=st.booleans())
    def lose(self, partition: int, size: int, *, known: bool) -> None:
        """Lose what the source could not read; nor can its history."""
        first = self.world.next[partition]
        lost = [(partition, first + n) for n in range(size)]
        self.past.unreadable.update(lost)
        self.publish([partition], gap=Gap({partition: (first, first + size - 1)}, size if known else None))
        self.finish()

    @precondition(lambda self: not self.clean and self.world.made)
    @rule(which=st.lists(st.integers(0, 400), max_size=6))
    def compact(self, which: list[int]) -> None:
        self.past.compacted.update(self.world.made[n % len(self.world.made)] for n in which)

    @rule(partition=st.integers(0, PARTITIONS - 1), share=st.floats(0, 1))
    def delete(self, partition: int, share: float) -> None:
        first, end = self.past.first[partition], self.world.next[partition]
        self.past.first[partition] = first + int((end - first) * share)

    @rule(seconds=st.sampled_from([0.1, 0.25, 1.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # --- those who read history ---

    @rule()
    def open_reader(self) -> None:
        reader = self.world.hub.history.open()
        if reader is not None:
            self.drivers.append(Driver(self.past, reader))

    @rule(which=st.integers(0, 5), size=st.integers(1, 9), times=st.integers(1, 6))
    def step(self, which: int, size: int, times: int) -> None:
        for _ in range(times):
            if self.drivers:
                self.drivers[which % len(self.drivers)].step(size)

    @rule()
    def step_all(self) -> None:
        self.open_reader()
        drive(self.drivers)
        self.world.hub.history.pass_by()

    @rule(which=st.integers(0, 5))
    def hand_over(self, which: int) -> None:
        readers = self.world.hub.history.readers
        if readers:
            readers[which % len(readers)].close()

    @rule()
    def restart(self) -> None:
        self.world.hub.history.close()

    @rule()
    def resolve(self) -> None:
        for subscription in list(self.world.hub.unresolved):
            self.world.hub.resolved(subscription, self.past.offset_range)

    # --- the clients ---

    @precondition(lambda self: len(self.readers) < 8)
    @rule(
        where=wheres,
        form=st.sampled_from(FORMS),
        credit=st.none() | st.integers(0, 3),
        capacity=st.none() | st.integers(1, 20),
        room=st.sampled_from([ENDLESS, 0, 20, 100]),
        policy=st.sampled_from(
            [OverflowPolicy.REPLAY] * 3 + [OverflowPolicy.DROP_OLDEST, OverflowPolicy.CLOSE]
        ),
        skip=st.booleans(),
    )
    def subscribe(
        self,
        where: str | list[int],
        form: object,
        credit: int | None,
        capacity: int | None,
        room: int,
        policy: OverflowPolicy,
        *,
        skip: bool,
    ) -> None:
        reader = Reader()
        self.readers.append(reader)
        reader.granted = credit or 0
        start: Start
        if isinstance(where, str):
            start = StartAt(where)
        else:
            shares = enumerate(where)
            start = AtPositions({str(p): self.world.next[p] * share // 100 for p, share in shares}, skip)
        reader.subscription = self.world.subscribe(
            reader,
            form,  # type: ignore[arg-type]
            credit=credit,
            capacity=capacity,
            overflow=policy,
            start=start,
        )
        reader.room = room

    def pick(self, which: int) -> Reader | None:
        return self.readers[which % len(self.readers)] if self.readers else None

    @rule(which=st.integers(0, 7), n=st.sampled_from([1, 2, 7, 50]))
    def grant(self, which: int, n: int) -> None:
        reader = self.pick(which)
        if reader and reader.subscription and not reader.subscription.closed and reader.pulls:
            reader.granted += n
            reader.subscription.add_credit(n)

    @rule(which=st.integers(0, 7), room=st.sampled_from([0, 1, 13, 40, 150, 1000]))
    def read_some(self, which: int, room: int) -> None:
        reader = self.pick(which)
        if reader:
            reader.room = room
            reader.writer.drain()

    @rule(which=st.integers(0, 7))
    def read_all(self, which: int) -> None:
        self.read_some(which, ENDLESS)

    @rule(which=st.integers(0, 40))
    def unsubscribe(self, which: int) -> None:
        if which < len(self.readers):
            reader = self.readers[which]
            if reader.subscription is not None and not reader.subscription.closed:
                reader.cancelled = True
                reader.subscription.cancel()

    @invariant()
    def adds_up(self) -> None:
        if not hasattr(self, "world"):
            return
        hub = self.world.hub
        windows = [hub.window, *(reader.window for reader in hub.history.readers)]
        assert self.world.budget.used == sum(w.bytes for w in windows) + self.world.memo.bytes
        open_ones = [r.subscription for r in self.readers if r.subscription and not r.subscription.closed]
        assert hub.subscribers == len(open_ones)
        in_history = [
            s for s in open_ones if s.state in (SubscriptionState.HISTORY, SubscriptionState.HISTORY_WAITING)
        ]
        assert hub.replaying == len(in_history)
        for reader in hub.history.readers:
            assert len(reader.window) <= max(hub.limits.history_events, 3)
            assert {s for s in open_ones if s.history_reader is reader} == set(reader.members)
            for member in reader.members:
                assert (member.reader.cursor.entry is None) == (member in reader._idle)
        for subscription in open_ones:
            assert subscription.delivery.credits >= 0
            history = subscription.history_reader
            assert (subscription.state is SubscriptionState.HISTORY) == (history is not None)
            if history is None:
                assert subscription.reader.cursor.window is hub.window

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.finish()
        for reader in self.readers:
            reader.room = ENDLESS
            reader.writer.drain()
            if reader.pulls and reader.subscription and not reader.subscription.closed:
                reader.granted += MAX_CREDIT - reader.subscription.delivery.credits
                reader.subscription.add_credit(MAX_CREDIT)
        for _ in range(60):
            self.resolve()
            self.open_reader()
            drive(self.drivers)
            self.world.hub.history.pass_by()
            self.drivers = [driver for driver in self.drivers if not driver.reader.closed]
        for reader in self.readers:
            subscription = reader.subscription
            assert subscription is not None
            assert subscription.state in (SubscriptionState.LIVE, SubscriptionState.CLOSED), (
                subscription.state
            )
            walk = Walk(self, reader)
            assert walk.got == subscription.delivery.matched
            if reader.pulls:
                assert walk.got <= reader.granted
            if subscription.closed or reader.cancelled:
                continue
            for partition, end in self.world.next.items():
                walk.pass_over(partition, end)
            begun = next(n for n in reader.notices if isinstance(n, Opened)).positions
            asked = {(p, o) for p, o in self.past.made | self.past.unreadable if o >= int(str(begun[str(p)]))}
            if walk.dropped is not None:
                assert walk.got + walk.dropped + walk.skipped == len(asked)
        self.world.hub.failed("over")
        self.world.hub.close()
        self.world.hub.history.close()
        assert self.world.budget.used == self.world.memo.bytes == 0
        assert self.world.hub.replaying == 0


def test_every_event_once_or_announced() -> None:
    play(Machine, 80, 50)
