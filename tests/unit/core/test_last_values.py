"""The newest event of every key: the policy `latest` and snapshots, against a list of what was produced."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kiwi_gw.core import last_values, snapshot_pages
from kiwi_gw.core.delivery import MAX_CREDIT
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.last_values import LastValues
from kiwi_gw.core.notices import Ended, Lagged, Opened
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.snapshot_pages import IDLE_SECONDS, PAGE_EVENTS
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, Gap, OverflowPolicy, StartAt
from tests.effort import play
from tests.unit.core.fakes import ENDLESS, BoundedClient, Client, Clock, Event, Place, World

PARTITIONS = 2
LATEST = HubLimits(window_events=20, overflow=OverflowPolicy.LATEST, last_values=True)


def keyed(world: World, keys: str, partition: int = 0) -> None:
    """Make one event for each letter; `-` has no key."""
    world.produce([partition] * len(keys), keys=[None if key == "-" else key.encode() for key in keys])


def slow(world: World, **options: object) -> tuple[Client, Subscription]:
    client = Client()
    subscription = world.subscribe(client, **options)  # type: ignore[arg-type]
    client.writer.take = lambda size: 0
    return client, subscription


def read_on(client: Client) -> None:
    client.writer.take = lambda size: size
    client.writer.drain()


def test_one_too_far_behind_gets_the_newest_event_of_every_key_in_the_order_of_update() -> None:
    world = World(LATEST)
    client, subscription = slow(world, capacity=3)
    for _ in range(10):
        keyed(world, "abcab")
    keyed(world, "d")
    read_on(client)
    # 51 events: 48, 49 and 50 are within its capacity; before them the newest of the others is c, at 47.
    assert [offset for _, offset in client.places] == [47, 48, 49, 50]
    (lag,) = client.lags
    assert (lag.dropped, lag.ranges) == (47, {0: (0, 46)})
    assert subscription.state is SubscriptionState.LIVE


def test_ranges_begin_and_end_with_what_was_given_up() -> None:
    world = World(LATEST, start={0: 0, 1: 0, 2: 0})
    client, _ = slow(world, capacity=1)
    world.produce([0] * 6, keys=[b"a", b"-", b"b", b"c", b"b", b"d"])
    world.produce([1] * 2, keys=[b"x", b"y"])
    world.produce([2], keys=[b"z"])
    read_on(client)
    # Of partition 0 only b at 2 was superseded; everything of partition 1 comes.
    assert client.places == [(0, 0), (0, 1), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1), (2, 0)]
    (lag,) = client.lags
    assert (lag.dropped, lag.ranges) == (1, {0: (2, 2)})


def test_what_is_superseded_on_the_way_is_announced_exactly_and_before_what_follows() -> None:
    world = World(HubLimits(window_events=2000, overflow=OverflowPolicy.LATEST, last_values=True))
    client, subscription = slow(world, capacity=1)
    world.produce([0] * 1000, keys=[b"%d" % n for n in range(1000)])
    world.produce(1, keys=[b"last"])
    client.writer.take = lambda size: min(size, 100)
    client.writer.drain()
    assert subscription.delivery.scanned < PAGE_EVENTS
    world.produce(3, keys=[b"3", b"500", b"700"])  # the first has been sent, or is on its page
    assert subscription.reader.lag.dropped == 0
    read_on(client)
    assert [(lag.dropped, lag.ranges) for lag in client.lags] == [(2, {0: (500, 700)})]
    assert [offset for _, offset in client.places] == [n for n in range(1004) if n not in (500, 700)]


def test_a_thousand_who_open_together_share_what_is_encoded() -> None:
    world = World(LATEST)
    for first in range(0, 2000, 20):
        world.produce([0] * 20, keys=[b"%d" % n for n in range(first, first + 20)])
    before = world.memo.events_encoded
    clients = [Client() for _ in range(1000)]
    for client in clients[:500]:
        world.subscribe(client, start=StartAt.SNAPSHOT)
    assert world.memo.events_encoded - before == 2000
    world.produce(1, keys=[b"1000"])  # its page is made anew, and what is new: that is all
    for client in clients[500:]:
        world.subscribe(client, start=StartAt.SNAPSHOT)
    assert world.memo.events_encoded - before <= 2000 + 1 + PAGE_EVENTS + 1
    early, late = clients[0], clients[-1]
    assert early.places == [(0, n) for n in range(2001)]
    assert late.places == [(0, n) for n in range(2001) if n != 1000]
    assert all(client.writer.wire == early.writer.wire for client in clients[:500])
    assert all(client.writer.wire == late.writer.wire for client in clients[500:])
    index = world.hub.last_values
    assert index is not None
    assert world.budget.used > world.hub.window.bytes + index.bytes
    world.pass_time(IDLE_SECONDS + 1)
    assert world.budget.used == world.hub.window.bytes + index.bytes + world.memo.bytes
    assert len(index.pages) == 0


def test_pages_stay_few_where_everything_is_updated_again_and_again() -> None:
    world = World(LATEST)
    for turn in range(60):
        world.produce([0] * 20, keys=[b"%d" % (turn * 7 % 40 + n) for n in range(20)])
        client = Client()
        world.subscribe(client, start=StartAt.SNAPSHOT)
        assert world.hub.last_values is not None
        assert len(client.places) == len(world.hub.last_values)
        assert len(world.hub.last_values.pages) == 1


def test_events_without_a_key_are_given_up_and_tombstones_are_events() -> None:
    world = World(LATEST)
    client, _ = slow(world, capacity=1)
    keyed(world, "a-b--c")
    read_on(client)
    assert [offset for _, offset in client.places] == [0, 2, 5]
    assert sum(lag.dropped or 0 for lag in client.lags) == 3


def test_a_snapshot_then_what_is_live() -> None:
    world = World(LATEST)
    keyed(world, "abcab")
    client = Client()
    world.subscribe(client, start=StartAt.SNAPSHOT)
    keyed(world, "d")
    assert [offset for _, offset in client.places] == [2, 3, 4, 5]
    (opened,) = client.notices
    assert isinstance(opened, Opened)
    assert opened.positions == {"0": 2}


def test_what_the_source_lost_during_a_snapshot_is_told_behind_it() -> None:
    """Also where no event follows, and each loss with its range."""
    world, client = World(LATEST, start={0: 0, 1: 0, 2: 0}), Client()
    keyed(world, "ab")
    subscription = world.subscribe(client, start=StartAt.SNAPSHOT, credit=0)
    for partition in (1, 2):
        lost = Gap({partition: (0, 0)}, 1)
        for _ in publish(world.hub, world.batch([], gap=lost)):
            pass
    subscription.add_credit(10)
    assert client.places == world.made
    assert [(lag.dropped, lag.ranges) for lag in client.lags] == [(2, {1: (0, 0), 2: (0, 0)})]
    assert subscription.reader.cursor.caught_up
    keyed(world, "c")
    assert client.places == world.made
    assert len(client.lags) == 1


def test_a_snapshot_of_nothing() -> None:
    world, client = World(LATEST), Client()
    subscription = world.subscribe(client, start=StartAt.SNAPSHOT)
    assert subscription.state is SubscriptionState.LIVE
    keyed(world, "a")
    assert client.places == [(0, 0)]


def test_a_snapshot_where_none_is_kept_is_refused_in_words() -> None:
    with pytest.raises(SubscribeRefused, match="not kept by key") as refused:
        World().subscribe(Client(), start=StartAt.SNAPSHOT)
    assert refused.value.code == "start"


def test_a_snapshot_of_many_keys_comes_in_pages_as_credit_allows() -> None:
    world = World(LATEST)
    for first in range(0, 3000, 100):
        world.produce([0] * 100, keys=[b"%d" % n for n in range(first, first + 100)])
    client = Client()
    subscription = world.subscribe(client, start=StartAt.SNAPSHOT, credit=1500)
    assert [offset for _, offset in client.places] == list(range(1500))
    subscription.add_credit(5000)
    assert [offset for _, offset in client.places] == list(range(3000))
    assert client.lags == []


def test_the_index_is_bounded_by_keys_bytes_and_all_memory() -> None:
    def entry(first: int, size: int) -> WindowEntry:
        keys = [b"%d" % n for n in range(first, first + size)]
        return WindowEntry(
            Batch({0: first}, [0] * size, range(first, first + size), {"key": keys}, 100 * size), first
        )

    budget = MemoryBudget(1_000_000)
    gone: list[WindowEntry] = []
    index = LastValues(50, 1_000_000, budget, gone.append, Clock())
    index.update(entry(0, 80))
    assert len(index) == 50
    assert index.held(0, 30, {0: (0, 29)}) == (0, {0: (0, 29)})
    assert index.held(0, 80, {0: (0, 79)}) == (50, {0: (0, 29)})
    assert budget.used == index.bytes
    small = LastValues(1000, 5_000, budget, gone.append, Clock())
    small.update(entry(0, 80))
    assert small.bytes <= 5_000
    for first in range(100, 20_000, 40):
        again = entry(0, 40)
        again.base, again.end = first, first + 40
        index.update(again)
    assert len(index._order) < 3_000
    index.clear()
    small.clear()
    assert budget.used == 0


class Reader(BoundedClient):
    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        self.snapshot: dict[bytes, int] = {}
        self.subscription: Subscription | None = None


class Machine(RuleBasedStateMachine):
    @initialize(
        window=st.integers(3, 20),
        most=st.sampled_from([3, 1000]),
        memory=st.sampled_from([ENDLESS, 15_000]),
    )
    def begin(self, window: int, most: int, memory: int) -> None:
        limits = HubLimits(
            window_events=window,
            direct_bytes=120,
            slice_seconds=0,
            overflow=OverflowPolicy.LATEST,
            last_values=True,
            last_values_keys=most,
        )
        self.complete = most > 100 and memory == ENDLESS
        self.world = World(limits, memory, start=dict.fromkeys(range(PARTITIONS), 0))
        self.keys: list[bytes | None] = []
        self.readers: list[Reader] = []

    @rule(events=st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcdefgh-")), max_size=12))
    def produce(self, events: list[tuple[int, str]]) -> None:
        # A key is always in the same partition, as it is in Kafka.
        keys = [None if key == "-" else key.encode() for _, key in events]
        places = [p if key is None else key[0] % 2 for (p, _), key in zip(events, keys, strict=True)]
        self.keys += keys
        self.world.produce(places, keys=keys)

    @precondition(lambda self: len(self.readers) < 6)
    @rule(
        snapshot=st.booleans(),
        credit=st.none() | st.integers(0, 3),
        capacity=st.none() | st.integers(1, 15),
        room=st.sampled_from([ENDLESS, 0, 40]),
    )
    def subscribe(self, credit: int | None, capacity: int | None, room: int, *, snapshot: bool) -> None:
        reader = Reader()
        reader.first = len(self.keys)
        if snapshot:
            newest = {key: n for n, key in enumerate(self.keys) if key is not None}
            reader.snapshot = newest if self.complete else {}
        start = StartAt.SNAPSHOT if snapshot else StartAt.LATEST
        self.readers.append(reader)
        reader.room = room + 10  # the answer
        reader.subscription = self.world.subscribe(reader, credit=credit, capacity=capacity, start=start)

    @rule(which=st.integers(0, 5), room=st.sampled_from([0, 1, 13, 40, 150, ENDLESS]))
    def read(self, which: int, room: int) -> None:
        if self.readers:
            reader = self.readers[which % len(self.readers)]
            reader.room = room
            reader.writer.drain()

    @rule(which=st.integers(0, 5), n=st.integers(1, 20))
    def grant(self, which: int, n: int) -> None:
        if self.readers:
            subscription = self.readers[which % len(self.readers)].subscription
            if subscription is not None and subscription.delivery.mode.value == "pull":
                subscription.add_credit(n)

    @rule(seconds=st.sampled_from([0.3, 1.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def memory_adds_up(self) -> None:
        if hasattr(self, "world"):
            hub, memo = self.world.hub, self.world.memo
            assert hub.last_values is not None
            scans = [r.subscription.reader.snapshot for r in self.readers if r.subscription]
            read = {scan.page for scan in scans if scan and scan.page}
            kept = sum(page.window.bytes for page in {*read, *hub.last_values.pages})
            held = hub.window.bytes + kept + hub.last_values.bytes + memo.bytes
            assert self.world.budget.used == held

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        number = {place: n for n, place in enumerate(self.world.made)}
        for reader in self.readers:
            reader.room = ENDLESS
            reader.writer.drain()
            assert reader.subscription is not None
            reader.subscription.add_credit(MAX_CREDIT)
            assert reader.subscription.state is SubscriptionState.LIVE
            self.check(reader, number)
        self.world.hub.ended()
        assert all(any(isinstance(n, Ended) for n in reader.notices) for reader in self.readers)
        self.world.hub.close()
        assert self.world.budget.used == 0

    def check(self, reader: Reader, number: dict[Place, int]) -> None:
        next_offset: dict[int, int] = {}
        got: list[int] = []
        dropped = 0
        ranges: list[tuple[int, tuple[int, int]]] = []
        for item in reader.read():
            if isinstance(item, Event):
                partition, offset = item.place
                assert offset >= next_offset.get(partition, 0), "twice, or out of order"
                next_offset[partition] = offset + 1
                got.append(number[item.place])
            elif isinstance(item, Lagged):
                assert item.dropped is not None
                dropped += item.dropped
                ranges += item.ranges.items()
        given_up = set(self.world.made[reader.first :]) - {self.world.made[n] for n in got}
        for place in given_up:
            assert any(place[0] == p and first <= place[1] <= last for p, (first, last) in ranges), place
        for partition, ends in ranges:
            assert {(partition, offset) for offset in ends} <= given_up, "more than was given up"
        live = [n for n in got if n >= reader.first]
        assert len(live) + dropped == len(self.keys) - reader.first
        if self.complete:
            for key, newest in {key: n for n, key in enumerate(self.keys) if key is not None}.items():
                assert newest in got or (newest < reader.first and not reader.snapshot), key
        for n in got:
            assert n >= reader.first or self.keys[n] is not None


@pytest.mark.parametrize("page", [3, PAGE_EVENTS])
def test_every_client_has_the_newest_event_of_every_key(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_values, "PAGE_EVENTS", page)
    for module in (last_values, snapshot_pages):
        monkeypatch.setattr(module, "FEW_EVENTS", page // 2)
    play(Machine, 70, 40)
