"""Reading history, one by one: places, joins, limits, ends."""

from __future__ import annotations

import pytest

from kiwi_gw.core.commands import LabelLimit
from kiwi_gw.core.history import KNOWN_SECONDS, STANDSTILL_SECONDS, SharedHistoryReader
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Opened
from kiwi_gw.core.positions import above, below
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import (
    AtPositions,
    AtTime,
    CloseReason,
    Gap,
    OffsetRange,
    OverflowPolicy,
    Start,
    StartAt,
)
from tests.unit.core.fakes import REPLAYABLE, Client, World, names
from tests.unit.core.past import Driver, Past, drive

LIMITS = HubLimits(window_events=10, overflow=OverflowPolicy.REPLAY)


class Replayed:
    """Hold a world with 100 events of two partitions, the last ten of them in the window."""

    def __init__(self, limits: HubLimits = LIMITS) -> None:
        self.world = World(limits, info=REPLAYABLE, start={0: 0, 1: 0})
        self.past = Past(self.world)
        self.drivers: list[Driver] = []
        for _ in range(50):
            self.produce([0, 1])

    def produce(self, partitions: list[int]) -> None:
        self.past.made.update(self.world.produce(partitions))

    def subscribe(self, client: Client, **options: object) -> Subscription:
        subscription = self.world.subscribe(client, **options)  # type: ignore[arg-type]
        for waiting in list(self.world.hub.unresolved):
            self.world.hub.resolved(waiting, self.past.offset_range)
        return subscription

    def read(self) -> None:
        while (reader := self.world.hub.history.open()) is not None:
            self.drivers.append(Driver(self.past, reader))
        drive(self.drivers)


def test_a_limit_that_is_reached_in_history_ends_it_there() -> None:
    it, client = Replayed(), Client()
    it.subscribe(client, start=StartAt.EARLIEST, limits={None: LabelLimit(7)})
    it.read()
    assert len(client.places) == 7
    assert [end.reason for end in client.ends] == [CloseReason.LIMIT]
    assert it.world.hub.replaying == 0
    assert it.world.hub.history.readers == []


def test_an_event_that_ends_a_subscription_in_history_is_its_last() -> None:
    it, client, other = Replayed(), Client(), Client()
    subscription = it.subscribe(
        client, form=names("bad", ends=lambda place: place == (1, 30)), start=StartAt.EARLIEST
    )
    it.subscribe(other, start=StartAt.EARLIEST)
    it.read()
    assert client.places == other.places[: other.places.index((1, 30))]
    assert [(end.reason, end.dropped) for end in client.ends] == [(CloseReason.FAILED, 0)]
    assert client.lags == []
    assert subscription.delivery.decode_errors == 1
    assert len(other.places) == 100


def test_positions_that_are_reached_in_history_end_it_there() -> None:
    it, client = Replayed(), Client()
    it.subscribe(client, start=StartAt.EARLIEST, until={"0": 5, "1": 3})
    it.read()
    assert sorted(client.places) == [(0, n) for n in range(5)] + [(1, n) for n in range(3)]
    assert [end.reason for end in client.ends] == [CloseReason.UNTIL]


@pytest.mark.parametrize(("until", "seconds"), [(None, 0.15), ({"0": 5, "1": 3}, 0.02)])
def test_a_reader_is_opened_sooner_for_one_that_reads_up_to_an_end(until: object, seconds: float) -> None:
    it = Replayed()
    assert it.world.hub.history.opens_in is None
    it.subscribe(Client(), start=StartAt.EARLIEST, until=until)
    assert it.world.hub.history.opens_in == pytest.approx(seconds)


def test_a_filter_in_history_costs_no_credit() -> None:
    it, client = Replayed(), Client()
    subscription = it.subscribe(
        client, form=names(keep=lambda p: p[1] % 10 == 0), credit=4, start=StartAt.EARLIEST
    )
    it.read()
    assert len(client.places) == 4
    subscription.add_credit(100)
    it.read()
    assert sorted(client.places) == [(p, n) for p in (0, 1) for n in range(0, 50, 10)]
    assert subscription.state is SubscriptionState.LIVE
    assert subscription.delivery.credits == 94


def test_a_member_that_stands_still_gives_its_place_up_and_comes_back_where_it_was() -> None:
    it, slow, fast = Replayed(), Client(), Client()
    subscription = it.subscribe(slow, start=StartAt.EARLIEST, credit=5)
    it.subscribe(fast, start=StartAt.EARLIEST)
    it.read()
    states = [subscription.state]
    it.world.pass_time(0.1)
    it.world.pass_time(STANDSTILL_SECONDS)
    states.append(subscription.state)
    assert states == [SubscriptionState.HISTORY, SubscriptionState.HISTORY_WAITING]
    assert not it.world.hub.history.is_queued(subscription)
    it.read()
    assert len(fast.places) == 100
    subscription.add_credit(1000)
    it.read()
    assert sorted(slow.places) == sorted(fast.places) == sorted(it.world.made)
    assert subscription.state is SubscriptionState.LIVE


def test_a_member_that_awaits_its_turn_does_not_stand_still() -> None:
    it, waiting, fast = Replayed(), Client(), Client()
    subscription = it.subscribe(waiting, start=StartAt.EARLIEST, credit=5)
    it.subscribe(fast, start=StartAt.EARLIEST)
    it.read()
    reader = subscription.history_reader
    assert isinstance(reader, SharedHistoryReader)
    waiting.writer.awaits_turn = True
    assert not reader.waits_for_turns, "its client has to ask for more"
    it.world.pass_time(STANDSTILL_SECONDS / 2)
    subscription.add_credit(1)
    it.world.pass_time(0.1)
    it.world.pass_time(10 * STANDSTILL_SECONDS)
    assert subscription.state is SubscriptionState.HISTORY
    assert reader.waits_for_turns
    waiting.writer.awaits_turn = False
    assert not reader.waits_for_turns
    waiting.writer.drain()
    assert len(waiting.places) == 6


@pytest.mark.slow
def test_members_whose_turn_has_not_come_do_not_stand_still() -> None:
    """Let a thousand wait for the same events: they get them one after the other, which takes its time."""
    it = Replayed()
    clients = [Client() for _ in range(50)]
    for client in clients:
        it.subscribe(client, start=StartAt.EARLIEST)
    reader = it.world.hub.history.open()
    assert reader is not None
    driver = Driver(it.past, reader)
    while driver.step():
        it.world.pass_time(STANDSTILL_SECONDS)
        assert len(reader.members) + sum(len(client.places) == 100 for client in clients) == 50
    assert it.world.hub.history.opened == 1
    assert all(sorted(client.places) == sorted(it.world.made) for client in clients)


def test_one_that_waits_and_was_forgotten_is_found_by_the_sweep() -> None:
    it, client = Replayed(), Client()
    subscription = it.subscribe(client, start=StartAt.EARLIEST)
    reader = it.world.hub.history.open()
    assert reader is not None
    it.world.pass_time(STANDSTILL_SECONDS)  # the LAG that is due now wakes it as well, but only once
    subscription.wait_for_history(subscription.positions)
    assert not it.world.hub.history.is_queued(subscription)
    it.world.pass_time(STANDSTILL_SECONDS)
    assert it.world.hub.history.is_queued(subscription) or subscription.state is SubscriptionState.HISTORY
    it.drivers.append(Driver(it.past, reader))
    it.read()
    assert sorted(client.places) == sorted(it.world.made)


def test_those_who_are_near_share_a_reader_that_begins_with_the_first_of_them() -> None:
    it = Replayed()
    clients = [Client() for _ in range(5)]
    for number, client in enumerate(clients):
        it.subscribe(client, start=AtPositions({"0": 10 + number, "1": 20 - number}))
    it.read()
    assert it.world.hub.history.opened == 1
    for number, client in enumerate(clients):
        expected = [(0, n) for n in range(10 + number, 50)] + [(1, n) for n in range(20 - number, 50)]
        assert sorted(client.places) == expected


def test_one_that_comes_later_is_served_from_memory() -> None:
    it, first, second, nearer = Replayed(), Client(), Client(), Client()
    it.subscribe(first, start=AtPositions({"0": 10, "1": 10}))
    reader = it.world.hub.history.open()
    assert reader is not None
    driver = Driver(it.past, reader)
    while reader.members:
        assert driver.step()
    reads = it.past.reads
    it.subscribe(second, start=AtPositions({"0": 10, "1": 10}))
    it.subscribe(nearer, start=AtPositions({"0": 17, "1": 23}))
    assert (it.past.reads, it.world.hub.history.opened) == (reads, 1)
    assert sorted(first.places) == sorted(second.places) == [(p, n) for p in (0, 1) for n in range(10, 50)]
    assert sorted(nearer.places) == [(0, n) for n in range(17, 50)] + [(1, n) for n in range(23, 50)]


def test_encodings_of_what_every_member_has_had_are_let_go() -> None:
    it, fast, slow, late = Replayed(), Client(), Client(), Client()
    it.subscribe(fast, start=StartAt.EARLIEST)
    lagging = it.subscribe(slow, start=StartAt.EARLIEST, credit=40)
    reader = it.world.hub.history.open()
    assert reader is not None
    driver = Driver(it.past, reader)
    while driver.step():
        pass
    assert not any(_encoded(reader, 0, 40))
    assert all(_encoded(reader, 40, 90)), "one that stands in the middle still needs the rest"
    encoded = it.world.memo.events_encoded
    lagging.add_credit(1000)
    assert it.world.memo.events_encoded - encoded <= LIMITS.window_events  # only what is in the other window
    it.subscribe(late, start=StartAt.EARLIEST)
    drive([driver])
    assert sorted(fast.places) == sorted(slow.places) == sorted(late.places) == sorted(it.world.made)


def _encoded(reader: SharedHistoryReader, first: int, last: int) -> list[bool]:
    """Return for each of a reader's entries with these events whether there are encodings of it."""
    found, entry = [], reader.window.find(first)
    while entry is not None and entry.base < last:
        found.append(bool(entry.encodings))
        entry = entry.next
    return found


def test_what_history_has_is_asked_once_for_those_who_come_one_after_the_other() -> None:
    it = Replayed()
    hub = it.world.hub

    def asks(start: Start) -> bool:
        it.world.subscribe(Client(), start=start)
        waiting = list(hub.unresolved)
        for subscription in waiting:
            hub.resolved(subscription, it.past.offset_range)
        return bool(waiting)

    near = AtPositions({"0": 5, "1": 6})
    assert asks(near), "nobody knows yet"
    hub.history.set_offset_range(it.past.offset_range, hub.now)
    assert not asks(near)
    assert asks(AtPositions({"0": 5})), "it does not name every partition"
    assert asks(AtPositions({"0": 51, "1": 50})), "another gateway may be further"
    assert asks(StartAt.EARLIEST)
    it.past.first = {0: 10, 1: 0}
    assert not asks(AtPositions({"0": 4, "1": 6})), "it was there when that was asked"
    it.world.pass_time(KNOWN_SECONDS)
    assert asks(near)
    hub.history.set_offset_range(it.past.offset_range, hub.now)
    assert asks(near), "some of it is gone"
    hub.history.close()
    assert asks(AtPositions({"0": 20, "1": 20})), "it may be another source by now"


def test_what_was_deleted_since_history_was_asked_is_announced() -> None:
    it, client = Replayed(), Client()
    it.world.hub.history.set_offset_range(it.past.offset_range, it.world.hub.now)
    it.past.first = {0: 10, 1: 0}
    it.world.subscribe(client, start=AtPositions({"0": 4, "1": 6}))
    it.read()
    assert client.lags[0].ranges == {0: (4, 9)}
    assert sorted(client.places) == [(0, n) for n in range(10, 50)] + [(1, n) for n in range(6, 50)]


def test_behind_counts_offsets_in_history() -> None:
    it, client = Replayed(), Client()
    subscription = it.subscribe(client, start=StartAt.EARLIEST, credit=0)
    assert subscription.behind == 100
    assert it.world.hub.replaying == 1
    subscription.add_credit(30)
    it.read()
    assert subscription.behind == 70
    assert it.world.hub.events_replayed == 30


def test_removed_in_history_the_notice_does_not_know_how_many_were_not_sent() -> None:
    it, client = Replayed(), Client()
    it.subscribe(client, start=StartAt.EARLIEST, credit=3)
    it.read()
    it.world.hub.removed(CloseReason.REMOVED, "removed", 5)
    (end,) = client.ends
    assert (end.dropped, end.positions) == (None, {"0": 3, "1": 0})


def test_a_policy_acts_from_where_the_start_has_led_to_what_is_live() -> None:
    it, client = Replayed(), Client()
    subscription = it.subscribe(
        client, start=StartAt.EARLIEST, overflow=OverflowPolicy.DROP_OLDEST, capacity=3
    )
    it.read()
    assert sorted(client.places) == sorted(it.world.made)
    assert subscription.state is SubscriptionState.LIVE
    client.writer.take = lambda size: 0
    for _ in range(10):
        it.produce([0])
    client.writer.take = lambda size: size
    client.writer.drain()
    assert sum(lag.dropped or 0 for lag in client.lags) > 0


def test_a_source_that_cannot_be_read_again_has_its_window() -> None:
    world = World(HubLimits(window_events=10))
    for _ in range(30):
        world.produce(1)
    first, middle, gone, skipping = (Client() for _ in range(4))
    world.subscribe(first, start=StartAt.EARLIEST)
    world.subscribe(middle, start=AtPositions({"0": 25}))
    world.subscribe(gone, start=AtPositions({"0": 5}))
    world.subscribe(skipping, start=AtPositions({"0": 5}, skip_missing=True))
    assert first.places == skipping.places == world.made[20:]
    assert middle.places == world.made[25:]
    assert 'there is {"0": 20} to {"0": 30}' in str(gone.notices[0])
    assert [(lag.dropped, lag.ranges) for lag in skipping.lags] == [(None, {0: (5, 19)})]
    for start, words in ((AtTime(5), "no past"), (AtPositions("x"), "must be an object")):
        with pytest.raises(SubscribeRefused, match=words):
            world.subscribe(Client(), start=start)


def test_a_source_without_history_that_says_how_far_it_will_come() -> None:
    """After a restart some of its events come again, and who had them goes on behind them."""
    world = World(start={0: 10}, begin=False)
    world.hub.expected = {0: 40}
    world.hub.started(world.start)
    ahead, beyond, gone = Client(), Client(), Client()
    subscription = world.subscribe(ahead, start=AtPositions({"0": 25}))
    world.subscribe(beyond, start=AtPositions({"0": 41}))
    world.subscribe(gone, start=AtPositions({"0": 9}))
    assert 'there is {"0": 10} to {"0": 40}' in str(beyond.notices[0])
    assert "some of what was asked for is gone" in str(gone.notices[0])
    (opened,) = ahead.notices
    assert isinstance(opened, Opened)
    assert opened.positions == {"0": 25}
    for _ in range(20):
        world.produce(1)
    assert ahead.places == world.made[15:]
    assert subscription.reader.cursor.resume_floor is None


def test_positions_ahead_of_this_gateway_are_stepped_up_to() -> None:
    """Resume where another gateway, which was faster, has sent more: that is not sent again."""
    it, client = Replayed(), Client()
    subscription = it.world.subscribe(client, start=AtPositions({"0": 52, "1": 50}))
    it.world.hub.resolved(subscription, OffsetRange({0: 0, 1: 0}, {0: 60, 1: 60}))
    assert subscription.state is SubscriptionState.LIVE
    (opened,) = client.notices
    assert isinstance(opened, Opened)
    assert opened.positions == {"0": 52, "1": 50}
    it.produce([0, 1, 0, 1])
    it.produce([0, 1])
    assert client.places == [(1, 50), (1, 51), (0, 52), (1, 52)]
    assert subscription.reader.cursor.resume_floor is None


def test_gaps_are_cut_to_what_concerns_a_reader() -> None:
    gap = Gap({0: (10, 19), 1: (5, 9)}, 15)
    assert above(gap, {0: 10, 1: 0}) is gap
    assert above(gap, {0: 12, 1: 10}) == Gap({0: (12, 19)}, 8)
    assert above(gap, {0: 20, 1: 10}) is None
    assert above(Gap({0: (10, 19)}, 3), {0: 12}) == Gap({0: (12, 19)}, None)
    assert below(gap, {0: 15, 1: 5}) == Gap({0: (10, 14)}, 5)
    assert below(gap, {0: 20, 1: 10}) is gap


def test_one_that_resumed_beyond_an_idle_partition_is_sent_to_directly() -> None:
    # Its own last offsets of partition 1 hold no events, or this gateway has not seen them yet.
    world = World(info=REPLAYABLE, start={0: 0, 1: 0})
    world.produce(3)
    client = Client()
    subscription = world.subscribe(client, start=AtPositions({"0": 3, "1": 5}))
    world.hub.resolved(subscription, OffsetRange({0: 0, 1: 0}, {0: 3, 1: 5}))
    assert subscription.state is SubscriptionState.LIVE
    wakes, sends = client.writer.wakes, client.writer.sends
    world.produce(4)
    world.produce(2)
    assert (client.writer.wakes, client.writer.sends) == (wakes, sends + 2)
    assert subscription.positions == {0: 9, 1: 5}
    assert subscription.behind == 0
    world.produce([0, 1, 1, 1])  # these of partition 1 it has had elsewhere
    assert subscription.reader.cursor.resume_floor == {1: 5}
    world.produce([1, 0, 1, 1])
    assert subscription.reader.cursor.resume_floor is None
    assert client.places == [(0, n) for n in range(3, 10)] + [(0, 10), (1, 5)]
    wakes = client.writer.wakes
    world.produce([1, 0])
    assert client.writer.wakes == wakes
    assert client.places[-2:] == [(1, 6), (0, 11)]
    assert client.lags == []


def resumed_in_the_window(overflow: OverflowPolicy) -> tuple[World, Client, Subscription]:
    """Resume one where its offsets lie across batches of the window, and give it one event: it is as near as
    its capacity allows, so that its policy holds from here on."""
    world, client = World(HubLimits(window_events=40), info=REPLAYABLE, start={0: 0, 1: 0}), Client()
    for _ in range(5):
        world.produce([0, 1])
    start = AtPositions({"0": 1, "1": 3})
    subscription = world.subscribe(client, credit=0, capacity=10, overflow=overflow, start=start)
    world.hub.resolved(subscription, OffsetRange({0: 0, 1: 0}, dict(world.next)))
    subscription.add_credit(1)
    assert client.places == [(0, 1)]
    assert subscription.reader.cursor.resume_floor == {1: 3}
    return world, client, subscription


@pytest.mark.parametrize("more", [6, 30])
def test_one_that_resumed_across_batches_gives_up_only_what_it_had_not(more: int) -> None:
    world, client, subscription = resumed_in_the_window(OverflowPolicy.DROP_OLDEST)
    for _ in range(more):
        world.produce([0, 1])
    subscription.add_credit(100)
    places, end = client.places, 5 + more
    assert places[-2:] == [(0, end - 1), (1, end - 1)]
    assert len(places) == len(set(places))
    given_up = {(p, n) for lag in client.lags for p, (a, b) in lag.ranges.items() for n in range(a, b + 1)}
    assert given_up.isdisjoint(places)
    assert given_up | {*places} == {(0, n) for n in range(1, end)} | {(1, n) for n in range(3, end)}
    assert sum(lag.dropped or 0 for lag in client.lags) == len(given_up)


@pytest.mark.parametrize("more", [6, 30])
def test_one_that_resumed_across_batches_ends_where_its_policy_is_to_close(more: int) -> None:
    world, client, subscription = resumed_in_the_window(OverflowPolicy.CLOSE)
    for _ in range(more):
        world.produce([0, 1])
    world.pass_time(1.0)
    assert [end.reason for end in client.ends] == [CloseReason.OVERFLOW]
    assert subscription.closed
    assert client.places == [(0, 1)]


def test_who_resumes_is_never_further_behind_than_there_are_events() -> None:
    """A source's offsets may be as far apart as it likes: those of Spark's rows in real time are 2^20."""
    world = World(HubLimits(window_events=40), start={0: 0, 1: 0})
    for _ in range(4):
        world.produce([0, 1], hole=1 << 20)
    client = Client()
    third = [offset for partition, offset in world.made if partition == 1][2]
    start = AtPositions({"0": world.made[0][1], "1": third})
    subscription = world.subscribe(client, credit=0, start=start)
    assert subscription.reader.cursor.resume_floor == {1: third}
    assert 6 <= subscription.behind <= 8
