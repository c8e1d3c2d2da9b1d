"""Fan-out, lag, limits and ends, one by one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.core import publishing
from kiwi_gw.core.accounts import ClientAccount, Payer
from kiwi_gw.core.commands import LabelLimit
from kiwi_gw.core.delivery import MAX_CREDIT
from kiwi_gw.core.encoding import keyed_format
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Ended, Lagged, LimitReached, Notice, Opened, OpenFailed
from kiwi_gw.core.publishing import buffer_pieces, publish
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import (
    AtPositions,
    Batch,
    CloseReason,
    Encoded,
    Gap,
    Interceptor,
    OverflowPolicy,
    WireFormat,
    batch_pieces,
)
from tests.unit.core.fakes import (
    JOINED,
    REPLAYABLE,
    Client,
    Event,
    Mailbox,
    World,
    names,
    parse,
    take,
    transform,
)


def no(size: int) -> int:
    return 0


def everything(size: int) -> int:
    return size


def read_on(client: Client) -> None:
    client.writer.take = everything
    client.writer.drain()


class Reader:
    """Read by `take`, and write down the notices in between."""

    def __init__(self, world: World, **options: object) -> None:
        self.log: list[object] = []
        self.client = Client()
        self.client.writer = Mailbox()  # type: ignore[assignment]
        self.client.notify = lambda subscription, notice: self.log.append(type(notice))  # type: ignore[method-assign]
        self.subscription = world.subscribe(self.client, **options)  # type: ignore[arg-type]

    def take(self, max_events: int = 100, max_bytes: int = 10_000) -> None:
        data = take(self.subscription, max_events, max_bytes)
        self.log += [item.place[1] for item in parse(data) if isinstance(item, Event)] or [None]


# --- subscribing ----------------------------------------------------------------------------------------


def test_a_wish_is_clamped_to_what_the_source_allows() -> None:
    world = World(HubLimits(window_events=1000, buffer_capacity=100))
    assert world.subscribe(Client()).reader.terms.capacity == 100
    assert world.subscribe(Client(), capacity=10).reader.terms.capacity == 10
    assert world.subscribe(Client(), capacity=5000).reader.terms.capacity == 100
    assert [world.subscribe(Client(), capacity=n).reader.terms.threshold for n in (1, 10, 11)] == [1, 5, 5]
    wide = World(HubLimits(window_events=50, buffer_capacity=100, lag_threshold=70))
    assert (
        wide.subscribe(Client()).reader.terms.capacity,
        wide.subscribe(Client()).reader.terms.threshold,
    ) == (50, 50)


@pytest.mark.parametrize("policy", [OverflowPolicy.LATEST, OverflowPolicy.BLOCK])
def test_a_policy_that_is_not_there_is_refused_in_words(policy: OverflowPolicy) -> None:
    world = World()
    with pytest.raises(SubscribeRefused, match=f"{policy.value} is not available here; there is drop_oldest"):
        world.subscribe(Client(), overflow=policy)
    assert (world.hub.subscribers, world.hub.wire_keys) == (0, 0)


def test_wire_keys_are_bounded_and_freed() -> None:
    world = World(HubLimits(max_wire_keys=2))
    first = world.subscribe(Client(), chosen("a"))
    world.subscribe(Client(), chosen("b"))
    world.subscribe(Client(), chosen("a")).cancel()
    with pytest.raises(SubscribeRefused, match="already has 2 different wire keys"):
        world.subscribe(Client(), chosen("c"))
    first.hub.reconfigure(first, keyed_format(chosen("c")), {})  # the last of its key may change it
    shared = world.subscribe(Client(), chosen("b"))
    with pytest.raises(SubscribeRefused):
        shared.hub.reconfigure(shared, keyed_format(chosen("d")), {})
    assert shared.group.wire.key == chosen("b").key
    first.cancel()
    world.subscribe(Client(), chosen("d"))
    assert world.hub.wire_keys == 2


def chosen(name: str) -> WireFormat:
    return replace(names(name), chosen=True)


def test_wire_keys_that_no_client_has_chosen_do_not_count() -> None:
    world = World(HubLimits(max_wire_keys=1))
    world.subscribe(Client(), chosen("a"))
    for name in "bcd":
        world.subscribe(Client(), names(name))
    with pytest.raises(SubscribeRefused):
        world.subscribe(Client(), chosen("e"))


def test_one_client_does_not_use_up_the_wire_keys_of_all() -> None:
    world = World(HubLimits(max_wire_keys=10, wire_keys_identity=3, wire_keys_connection=2))
    one, more, other = (Payer(ClientAccount(0), identity) for identity in ("ann", "ann", "bob"))
    first = world.subscribe(Client(), chosen("a"), payer=one)
    world.subscribe(Client(), chosen("b"), payer=one)
    world.subscribe(Client(), chosen("b"), payer=one)  # the same again does not count as another
    with pytest.raises(SubscribeRefused, match="a connection can have at most 2 different wire keys"):
        world.subscribe(Client(), chosen("c"), payer=one)
    first.hub.reconfigure(first, keyed_format(chosen("c")), {})  # another one instead
    world.subscribe(Client(), chosen("d"), payer=more)
    with pytest.raises(SubscribeRefused, match="a client can have at most 3 different wire keys"):
        world.subscribe(Client(), chosen("e"), payer=more)
    world.subscribe(Client(), chosen("e"), payer=other)
    first.cancel()
    world.subscribe(Client(), chosen("f"), payer=more)
    for subscription in [item for group in world.hub.groups for item in list(group.live)]:
        subscription.cancel()
    assert (world.hub.groups.chosen._all, world.hub.groups.chosen._of) == ({}, {})


def test_recast_after_the_end_changes_nothing() -> None:
    world = World()
    subscription = world.subscribe(Client())
    subscription.cancel()
    subscription.hub.reconfigure(subscription, keyed_format(names("other")), {})
    assert (world.hub.wire_keys, world.hub.subscribers) == (0, 0)


# --- fan-out --------------------------------------------------------------------------------------------


def test_a_pull_client_gets_what_its_credit_allows_and_credit_adds_up() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, credit=2)
    world.produce(5)
    assert (len(client.places), subscription.delivery.credits) == (2, 0)
    assert subscription.add_credit(1) == 1
    assert subscription.add_credit(1) == 1
    assert client.places == world.made[:4]
    assert subscription.add_credit(MAX_CREDIT) == MAX_CREDIT
    assert subscription.delivery.credits == MAX_CREDIT - 1
    assert subscription.add_credit(5) == MAX_CREDIT
    assert world.subscribe(Client(), credit=2**60).delivery.credits == MAX_CREDIT


def test_the_rest_of_a_cut_frame_comes_before_anything_else() -> None:
    world, client = World(), Client()
    world.subscribe(client)
    client.writer.take = lambda size: min(size, 3)
    world.produce(3)
    client.writer.take = no
    client.writer.control(b"{0}")
    read_on(client)
    items = client.read()
    assert [isinstance(item, Event) for item in items] == [False, True, False, True, True]
    assert client.places == world.made


def test_a_batch_is_yielded_in_slices() -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(50)]
    for client in clients:
        world.subscribe(client)
    served = [sum(bool(c.places) for c in clients) for _ in publish(world.hub, world.batch([0]))]
    assert served == [16, 32, 48, 50]
    quick = World(HubLimits(slice_seconds=10))
    for _ in range(50):
        quick.subscribe(Client())
    assert list(publish(quick.hub, quick.batch([0]))) == []


def test_a_large_batch_is_published_in_pieces_and_others_run_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "batch_pieces", partial(batch_pieces, most_events=10))
    world, client = World(HubLimits(slice_seconds=10)), Client()
    world.subscribe(client)
    served = [len(client.places) for _ in publish(world.hub, world.batch([0] * 35))]
    assert served == [10, 20, 30]
    assert client.places == world.made
    assert world.hub.events_in == 35


def test_a_large_batch_let_go_half_way_leaves_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "batch_pieces", partial(batch_pieces, most_events=10))
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(60)]
    for number, client in enumerate(clients):
        world.subscribe(client, names("abc"[number // 20]))
    steps = publish(world.hub, world.batch([0] * 35))
    for _ in range(8):  # in the midst of the second piece
        next(steps)
    assert {len(client.places) for client in clients} == {10, 20}
    steps.close()
    assert all(client.places == world.made for client in clients)
    world.produce(1)
    assert all(client.places == world.made for client in clients)
    assert world.hub.behind == 0


@pytest.mark.parametrize("after", range(1, 8))
def test_wherever_a_large_batch_is_let_go_nothing_of_it_is_lost(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Let go between two pieces, in the midst of one, and before the last."""
    monkeypatch.setattr(publishing, "batch_pieces", partial(batch_pieces, most_events=10))
    world, quick, slow = World(HubLimits(slice_seconds=0)), Client(), Client()
    world.subscribe(quick)
    world.subscribe(slow)
    slow.writer.take = no
    steps = publish(world.hub, world.batch([0] * 35))
    for _ in range(after):
        next(steps)
    steps.close()
    slow.writer.take = lambda size: size
    slow.writer.drain()
    assert quick.places == slow.places == world.made
    assert world.hub.positions == {0: 35}
    assert quick.lags == slow.lags == []


@pytest.mark.parametrize("go_on", [True, False])
def test_a_source_that_is_stopped_half_way_publishes_no_more(
    monkeypatch: pytest.MonkeyPatch, *, go_on: bool
) -> None:
    monkeypatch.setattr(publishing, "batch_pieces", partial(batch_pieces, most_events=10))
    world, client = World(HubLimits(slice_seconds=10)), Client()
    world.subscribe(client)
    steps = publish(world.hub, world.batch([0] * 35))
    next(steps)
    world.hub.removed(CloseReason.REMOVED, "gone", 5)
    world.hub.close()
    if go_on:
        assert list(steps) == []
    else:
        steps.close()
    assert client.places == world.made[:10]
    assert [(end.positions, end.dropped) for end in client.ends] == [({"0": 10}, 0)]
    assert world.hub.window.bytes == 0


def test_policy_block_reckons_with_every_piece_of_a_batch() -> None:
    """Count that each piece costs the window something of its own."""
    size, each = 4_000, 64
    limits = HubLimits(window_bytes=2 * size * each + 6 * ENTRY_OVERHEAD, overflow=OverflowPolicy.BLOCK)
    world, client = World(limits), Client()
    world.subscribe(client)
    client.writer.take = no
    held = []
    for first in (0, size):
        column = {"value": [b"x" * each] * size}
        batch = Batch({0: first}, [0] * size, range(first, first + size), column, size * each)
        held.append(len(world.hub.blocking.holding(batch)))
        steps = publish(world.hub, batch)
        held += [len(world.hub.blocking.holding(piece)) for piece in steps if piece is not None]
    assert held == [0] * 7 + [1]


def test_who_comes_during_fan_out_begins_behind_it() -> None:
    world, late = World(HubLimits(slice_seconds=0)), Client()
    for _ in range(40):
        world.subscribe(Client())
    steps = publish(world.hub, world.batch([0, 0]))
    next(steps)
    world.subscribe(late)
    world.subscribe(late, names("new"))
    assert list(steps)
    world.produce(1)
    assert late.places == [(0, 2), (0, 2)]


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("target", ["served", "new", "later"])
def test_recast_during_fan_out_loses_and_doubles_nothing(target: str, *, close: bool) -> None:
    world = World(HubLimits(slice_seconds=0))
    first, moving, last = Client(), [Client() for _ in range(40)], Client()
    world.subscribe(first, names("served"))
    subscriptions = [world.subscribe(client, names("a")) for client in moving]
    world.subscribe(last, names("later"))
    steps = publish(world.hub, world.batch([0, 0, 0]))
    next(steps)
    next(steps)  # the first group, and sixteen of the second
    for subscription in subscriptions:
        subscription.hub.reconfigure(subscription, keyed_format(names(target)), {})
    if close:
        steps.close()
    else:
        assert len(list(steps)) >= 1
    world.produce(2)
    for client in [first, last, *moving]:
        assert client.places == world.made
    # From the next event on: those not served yet read the batch in the new form.
    assert {item.name for item in moving[0].read()[1:4] if isinstance(item, Event)} == {"a"}
    assert {item.name for item in moving[-1].read()[1:] if isinstance(item, Event)} == {target}


def test_recast_during_fan_out_of_a_loss_announces_it() -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(3)]
    subscriptions = [
        world.subscribe(client, names(name)) for client, name in zip(clients, "abc", strict=True)
    ]
    steps = publish(world.hub, world.batch([], gap=Gap({0: (0, 4)}, 5)))
    next(steps)
    for subscription in subscriptions:
        subscription.hub.reconfigure(subscription, keyed_format(names("a")), {})
    for _ in steps:
        pass
    world.produce(1)
    for client in clients:
        _, lag, event = client.read()
        assert isinstance(lag, Lagged)
        assert lag.dropped == 5
        assert isinstance(event, Event)


def test_a_fan_out_let_go_half_way_leaves_nobody_behind() -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(600)]  # one within the other they would not fit on the stack
    for number, client in enumerate(clients):
        world.subscribe(client, names("abc"[number // 200]))
    steps = publish(world.hub, world.batch([0, 0]))
    next(steps)
    steps.close()
    assert all(client.places == world.made for client in clients)
    world.produce(1)
    assert all(client.places == world.made for client in clients)
    assert world.hub.behind == 0


def test_a_mistake_of_a_format_is_told_and_ends_those_who_have_it_and_nobody_else() -> None:
    world, good = World(), Client()

    def broken(place: tuple[int, int]) -> bool:
        raise RuntimeError("a bug")

    world.subscribe(good, names("good"))
    world.subscribe(Client(lambda size: 0), names("bad", fails=broken)).cancel()
    bad = world.subscribe(Client(), names("bad", fails=broken), credit=0)
    last = Client()
    world.subscribe(last, names("last"))
    world.produce(2)
    assert good.places == last.places == world.made
    assert bad.state is SubscriptionState.CLOSED
    assert [str(error) for error in world.mistakes] == ["a bug"]


# --- lag ------------------------------------------------------------------------------------------------


def test_drop_oldest_keeps_the_newest_and_says_exactly_what_went() -> None:
    world, client = World(start={0: 0, 1: 0, 2: 0}), Client()
    world.subscribe(client, capacity=4)
    client.writer.take = no
    world.produce([0, 1, 0])
    world.produce([1, 1, 0, 0])
    world.produce([2])
    world.produce([0])
    read_on(client)
    opened, lag, *events = client.read()
    assert isinstance(opened, Opened)
    assert isinstance(lag, Lagged)
    assert (lag.dropped, lag.behind, lag.count) == (5, 4, 9)
    assert lag.ranges == {0: (0, 1), 1: (0, 2)}
    assert lag.positions == {"0": 2, "1": 3, "2": 0}
    assert [e.place for e in events if isinstance(e, Event)] == world.made[5:]


def test_count_goes_on_until_it_is_caught_up() -> None:
    world, client = World(start={0: 0}), Client()
    subscription = world.subscribe(client, capacity=2, credit=0)
    world.produce(5)
    subscription.add_credit(1)
    world.produce(3)
    subscription.add_credit(100)
    world.produce(4)
    first, second = client.lags
    assert (first.dropped, first.behind, first.count) == (3, 2, 5)
    assert (second.dropped, second.behind, second.count) == (2, 2, 7)
    subscription.add_credit(MAX_CREDIT)
    assert subscription.state is SubscriptionState.LIVE
    client.writer.take = no
    world.produce(9)
    read_on(client)
    assert (client.lags[2].dropped, client.lags[2].count) == (7, 9)


def test_over_the_threshold_there_is_a_notice_at_most_once_per_interval() -> None:
    world, client = World(HubLimits(window_events=100, lag_threshold=3, lag_interval=1)), Client()
    subscription = world.subscribe(client, credit=0)
    world.produce(3)
    world.pass_time(0.1)
    assert client.lags == []
    world.produce(1)
    world.pass_time(0.1)
    assert [(lag.behind, lag.dropped, lag.count, lag.ranges) for lag in client.lags] == [(4, 0, 4, {})]
    world.produce(1)
    world.pass_time(0.9)
    assert len(client.lags) == 1
    world.pass_time(0.1)
    assert [lag.behind for lag in client.lags] == [4, 5]
    world.pass_time(10)
    assert len(client.lags) == 2, "nothing new happened"
    assert subscription.state is SubscriptionState.BEHIND
    assert world.hub.lag_notices == 2


def test_at_most_one_notice_is_pending_and_its_numbers_are_those_of_its_writing() -> None:
    world, client = World(HubLimits(window_events=10, lag_threshold=2)), Client()
    world.subscribe(client)
    client.writer.take = no
    for _ in range(6):
        world.produce(3)
        world.pass_time(2)
    assert client.notices[1:] == []
    read_on(client)
    (lag,) = client.lags
    assert (lag.dropped, lag.behind, lag.count, lag.ranges) == (9, 9, 18, {0: (0, 8)})


def test_a_loss_of_the_source_precedes_the_next_event() -> None:
    world, client = World(start={0: 0, 1: 0}), Client()
    subscription = world.subscribe(client)
    world.produce([0, 1])
    for _ in publish(world.hub, Batch({0: 10, 1: 1}, (), (), {}, 0, Gap({0: (1, 9)}, 4))):
        pass
    world.next[0] = 10
    assert client.lags[0].dropped == 4
    assert subscription.state is SubscriptionState.LIVE
    world.produce([0], gap=Gap({0: (10, 19), 1: (1, 3)}, None))
    _, _, _, first, second, event = client.read()
    assert isinstance(first, Lagged)
    assert (first.behind, first.count, first.ranges) == (0, 4, {0: (1, 9)})
    assert isinstance(second, Lagged)
    assert (second.behind, second.dropped, second.ranges) == (1, None, {0: (10, 19), 1: (1, 3)})
    assert event == Event("e", (0, 20))


def test_a_loss_of_the_source_that_was_evicted_unread_is_in_the_ranges() -> None:
    world, client = World(HubLimits(window_events=2)), Client()
    world.subscribe(client)
    client.writer.take = no
    world.produce(1)
    world.produce(1, gap=Gap({0: (1, 5)}, 5))
    world.produce(2)
    world.produce(2)
    read_on(client)
    (lag,) = client.lags
    assert (lag.dropped, lag.ranges, lag.positions) == (9, {0: (0, 8)}, {"0": 9})
    assert client.places == world.made[-2:]


def test_a_window_of_nothing_but_a_loss() -> None:
    world, client = World(HubLimits(window_bytes=1)), Client()
    subscription = world.subscribe(client)
    client.writer.take = no
    world.produce(3)
    world.produce([], gap=Gap({0: (3, 5)}, 3))
    read_on(client)
    (lag,) = client.lags
    assert (lag.dropped, lag.ranges, lag.behind) == (6, {0: (0, 5)}, 0)
    assert subscription.state is SubscriptionState.LIVE
    world.produce(1)
    assert client.places == [(0, 6)]


@pytest.mark.parametrize("policy", [OverflowPolicy.DROP_OLDEST, OverflowPolicy.CLOSE])
def test_an_evicted_batch_without_events_is_no_loss(policy: OverflowPolicy) -> None:
    world, client = World(HubLimits(window_bytes=2 * ENTRY_OVERHEAD)), Client()
    subscription = world.subscribe(client, overflow=policy)
    client.writer.take = no
    world.produce(1)
    read_on(client)
    client.writer.take = no
    client.writer.control(b"{0}")  # full: the notice has to wait
    world.produce([], gap=Gap({0: (1, 2)}, 2))
    world.produce([])
    world.produce([])
    world.hub.sweep()
    assert not subscription.closed
    read_on(client)
    assert [(lag.dropped, lag.ranges) for lag in client.lags] == [(2, {0: (1, 2)})]
    world.produce(1)
    assert client.places == world.made


def test_a_loss_that_was_found_and_not_yet_told_survives_what_comes_next() -> None:
    world = World(HubLimits(window_bytes=1))
    reader = Reader(world)
    world.produce(3)
    world.produce([], gap=Gap({0: (3, 5)}, 3))
    assert reader.subscription.prepare(100) is None
    assert reader.subscription.lag_due
    world.hub.window.max_bytes = 1 << 30
    world.produce(1)
    reader.take()
    assert reader.log == [Opened, Lagged, 6]


def test_nothing_is_sent_directly_past_a_notice_that_is_due() -> None:
    world = World()
    reader = Reader(world, form=names(big=lambda place: place[1] == 0))
    world.produce(1)
    assert reader.subscription.prepare(100) is None
    assert (reader.subscription.state, reader.subscription.lag_due) == (SubscriptionState.LIVE, True)
    reader.client.writer.writable = True
    world.produce(1)
    reader.take()
    assert reader.log == [Opened, Lagged, 1]


def test_events_too_large_to_be_sent_are_announced_one_by_one_and_at_the_end_of_the_window_too() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, names(big=lambda place: place[1] in (1, 2, 4)))
    world.produce(5)
    assert [lag.ranges for lag in client.lags] == [{0: (1, 1)}, {0: (2, 2)}, {0: (4, 4)}]
    assert subscription.state is SubscriptionState.LIVE
    world.produce(1)
    assert client.places == [(0, 0), (0, 3), (0, 5)]


def test_an_event_too_large_at_the_end_then_more_before_the_notice_can_be_written() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, names(big=lambda place: place[1] == 1))
    client.writer.take = lambda size: 0
    world.produce(2)
    client.writer.take = lambda size: min(size, 5)
    client.writer.drain()
    client.writer.take = no
    world.produce(1)
    read_on(client)
    assert client.places == [(0, 0), (0, 2)]
    assert len(client.lags) == 1
    assert subscription.state is SubscriptionState.LIVE


def test_a_large_batch_is_sent_in_pieces_and_a_single_event_may_be_larger_than_one() -> None:
    world, client = World(HubLimits(direct_bytes=10)), Client()
    client.writer.max_bytes = 5
    subscription = world.subscribe(client)
    world.produce(4)
    assert client.writer.sends == 4
    assert client.places == world.made
    assert subscription.state is SubscriptionState.LIVE


@given(direct=st.integers(1, 200), room=st.integers(0, 600), full_at=st.integers(1, 5))
def test_wherever_a_large_batch_is_cut_the_rest_comes_once_and_whole(
    direct: int, room: int, full_at: int
) -> None:
    """Cut a batch. room: what the socket takes in all. full_at: the send behind which data wait (TLS)."""
    world, client = World(HubLimits(direct_bytes=direct)), Client()
    subscription = world.subscribe(client)
    left, sends = room, 0

    def take(size: int) -> int:
        nonlocal left, sends
        taken = min(size, left)
        left -= taken
        sends += 1
        if sends == full_at:
            client.writer.writable = False
        return taken

    client.writer.take = take
    world.produce(8)
    client.writer.take = lambda size: size
    read_on(client)
    world.produce(2)
    read_on(client)
    assert client.places == world.made
    assert subscription.state is SubscriptionState.LIVE


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=20).filter(any), most=st.integers(1, 60))
def test_pieces_are_whole_events_and_make_up_the_buffer(sizes: list[int], most: int) -> None:
    ends = list(accumulate(sizes))
    encoded = Encoded(bytes(ends[-1]), ends)
    parts = buffer_pieces(encoded, most)
    assert list(accumulate(map(len, parts)))[-1] == ends[-1]
    assert set(accumulate(map(len, parts))) <= set(ends)
    assert all(0 < len(part) <= max(most, *sizes) for part in parts)


# --- limits and ends ------------------------------------------------------------------------------------


def test_a_limit_is_exact_also_where_an_offer_joins_many_batches() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, limits={None: LabelLimit(7)})
    client.writer.take = no
    for _ in range(5):
        world.produce(2)
    read_on(client)
    assert client.places == world.made[:7]
    assert [end.reason for end in client.ends] == [CloseReason.LIMIT]
    assert subscription.closed


def test_a_limit_that_is_used_up_from_the_start_ends_at_once() -> None:
    world, client = World(), Client()
    assert world.subscribe(client, limits={None: LabelLimit(0)}).closed
    assert [type(n).__name__ for n in client.notices] == ["Opened", "Ended"]


def test_two_labels_used_up_by_one_event() -> None:
    world, client = World(), Client()
    reached: list[object] = []

    def heard(subscription: Subscription, notice: Notice) -> None:
        if isinstance(notice, LimitReached):
            reached.append(notice.label)
            subscription.hub.reconfigure(subscription, keyed_format(names("on")), {})

    client.heard = heard
    subscription = world.subscribe(client, limits={1: LabelLimit(2), 2: LabelLimit(2)})
    world.produce(4)
    assert reached == [1]  # reconfigured without the second, it is of no interest
    assert client.places == world.made
    assert subscription.state is SubscriptionState.LIVE
    assert [i.name for i in client.read() if isinstance(i, Event)] == ["e", "e", "on", "on"]


def test_it_stands_still_at_a_limit_until_it_is_recast() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, limits={"label": LabelLimit(2)})
    world.produce(3)
    world.produce(2)
    assert client.places == world.made[:2]
    assert not subscription.readable
    subscription.hub.reconfigure(subscription, keyed_format(names("on")), {})
    assert client.places == world.made
    assert isinstance(client.read()[3], LimitReached)


def test_an_end_in_positions_leaves_out_what_lies_beyond_it() -> None:
    world, client = World(start={0: 0, 1: 0}), Client()
    world.subscribe(client, until={"0": 2, "1": 3})
    world.produce([0, 1, 0, 0, 1])
    world.produce([0, 0, 1, 1, 0])
    assert client.places == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    (end,) = client.ends
    assert (end.reason, end.dropped) == (CloseReason.UNTIL, 0)


def test_an_end_is_reached_over_a_hole_and_a_loss_beyond_skipped_events_is_announced() -> None:
    world, client = World(start={0: 0, 1: 0}), Client()
    world.subscribe(client, until={"0": 2, "1": 9})
    world.produce([0, 0, 0])  # the third is not asked for
    world.produce([1], gap=Gap({1: (0, 4)}, 5))
    world.produce([0, 1], hole=4)
    lag = client.lags[0]
    assert (lag.dropped, lag.ranges) == (5, {1: (0, 4)})
    assert client.places == [(0, 0), (0, 1), (1, 5)]
    assert [end.reason for end in client.ends] == [CloseReason.UNTIL]


def test_a_joiner_is_its_own_and_the_fragments_are_shared() -> None:
    world, one, two = World(), Client(), Client()
    world.subscribe(one, names(framing=JOINED))
    world.subscribe(two, names())
    world.produce(3)
    assert world.memo.events_encoded == 3
    assert one.writer.wire.count(b"[") == 1
    assert two.writer.wire.count(b"[") == 0
    assert one.places == two.places == world.made


def test_another_interceptor_leaves_format_joiner_limits_and_credit() -> None:
    world, plain, client = World(), Client(), Client()
    world.subscribe(plain)  # of the same group, with another joiner
    limits: dict[Hashable, LabelLimit] = {"l": LabelLimit(3)}
    subscription = world.subscribe(client, names(framing=JOINED), credit=10, limits=limits)
    world.produce(2)
    without_3 = Interceptor(lambda record: record if record["offset"] != 3 else None, "k")
    subscription.hub.transform(subscription, [transform(without_3)])
    assert world.hub.wire_keys == 2
    world.produce(4)
    assert [place for _, place in client.places] == [0, 1, 2]
    assert (subscription.delivery.credits, world.hub.wire_keys) == (7, 2)
    subscription.hub.reconfigure(
        subscription, keyed_format(names(framing=JOINED), subscription.group.wire.before), {}
    )
    assert [place for _, place in client.places] == [0, 1, 2, 4, 5]
    assert bytes(client.writer.wire).count(b"[") == 3
    assert plain.places == world.made
    subscription.hub.transform(subscription, [])
    assert world.hub.wire_keys == 1
    world.produce(1)
    assert client.places[-1] == world.made[-1]
    subscription.cancel()
    subscription.hub.transform(subscription, [transform(Interceptor(lambda record: record, "other"))])
    assert world.hub.wire_keys == 1


@pytest.mark.parametrize("key", ["k", None])
def test_another_interceptor_during_fan_out_loses_and_doubles_nothing(key: str | None) -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(40)]
    subscriptions = [world.subscribe(client) for client in clients]
    for _ in publish(world.hub, world.batch([0] * 3)):
        for subscription in subscriptions:
            if not subscription.group.wire.before:
                same = transform(Interceptor(lambda record: record, key))
                subscription.hub.transform(subscription, [same])
    assert all(client.places == world.made for client in clients)
    world.produce(2)
    assert all(client.places == world.made for client in clients)


def test_when_all_get_another_interceptor_there_are_enough_wire_keys_for_both() -> None:
    """Replace every interceptor, as a reload does: subscriptions change over one by one."""
    world = World(HubLimits(max_wire_keys=4))
    clients = [Client() for _ in range(4)]
    subscriptions = [world.subscribe(client, chosen("e")) for client in clients]
    for generation in range(3):
        for number, subscription in enumerate(subscriptions):
            same = transform(Interceptor(lambda record: record, (generation, number)))
            subscription.hub.transform(subscription, [same])
        assert world.hub.wire_keys == 4
    world.produce(2)
    assert all(client.places == world.made for client in clients)
    with pytest.raises(SubscribeRefused, match="4 different wire keys"):
        world.subscribe(Client(), chosen("e"))


def test_a_recast_may_bring_another_joiner() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client)
    world.produce(2)
    subscription.hub.reconfigure(subscription, keyed_format(names("j", framing=JOINED)), {})
    world.produce(2)
    assert client.writer.wire.count(b"[") == 1
    subscription.hub.reconfigure(subscription, keyed_format(names("k")), {})
    world.produce(2)
    assert client.writer.wire.count(b"[") == 1
    assert [item.name for item in client.read() if isinstance(item, Event)] == list("eejjkk")
    assert client.places == world.made


def test_a_shared_limit_is_one_limit_and_each_is_told() -> None:
    one, two = World(), World()
    first, second = Client(), Client()
    limit = LabelLimit(3)
    one.subscribe(first, limits={"label": limit})
    two.subscribe(second, limits={"label": limit})
    one.produce(2)
    two.produce(2)
    one.produce(2)
    assert (first.places, second.places) == ([(0, 0), (0, 1)], [(0, 0)])
    assert [isinstance(c.notices[-1], LimitReached) for c in (first, second)] == [True, True]


def test_take_passes_over_what_yields_nothing() -> None:
    world = World()
    reader = Reader(
        world, form=names(keep=lambda place: place[1] >= 598), limits={"of no event": LabelLimit(2)}
    )
    for _ in range(200):
        world.produce(3)
    reader.take()
    assert reader.log == [Opened, LimitReached, 598, 599]  # the limit comes after the bytes


def test_take_tells_of_a_loss_first_and_of_the_end_last() -> None:
    world = World(HubLimits(window_events=3))
    reader = Reader(world, credit=4)
    world.produce(2)
    reader.take(max_events=1)
    for _ in range(4):
        world.produce(1)
    world.hub.ended()
    reader.take()
    reader.take()
    assert reader.log == [Opened, 0, Lagged, Ended, 3, 4, 5, None]


def test_take_while_it_waits_for_its_source_gives_nothing() -> None:
    world = World(begin=False)
    reader = Reader(world)
    reader.take()
    assert reader.log == [None]


def test_positions_in_more_partitions_than_a_source_has_are_refused_at_once_and_nobody_is_asked() -> None:
    """Refuse them: so many are not kept until the history has been looked at."""
    world = World(info=REPLAYABLE)
    client = Client()
    asked: list[bool] = []
    world.hub.history.on_changed = lambda: asked.append(True)
    world.subscribe(client, start=AtPositions({str(p): 1 for p in range(5_000)}))
    (refused,) = client.notices
    assert isinstance(refused, OpenFailed)
    assert (refused.code, refused.message) == ("positions", "5000 partitions are named, and there are 1")
    assert not world.hub.unresolved
    assert not asked


def test_those_who_waited_for_a_source_begin_in_slices_and_all_do() -> None:
    world = World(begin=False, limits=HubLimits(slice_seconds=0.005))
    clients = [Client() for _ in range(20)]
    subscriptions = [world.subscribe(client) for client in clients]
    for client in clients:  # one of them takes two milliseconds
        client.notify = tired(world, client.notify)  # type: ignore[method-assign]
    world.hub.started({0: 0})
    begun = [sum(item.state is SubscriptionState.LIVE for item in subscriptions)]
    while world.hub.begin_some():
        begun.append(sum(item.state is SubscriptionState.LIVE for item in subscriptions))
    assert begun == [3, 6, 9, 12, 15, 18]
    assert all(item.state is SubscriptionState.LIVE for item in subscriptions)


def tired(world: World, notify: Callable[..., None]) -> Callable[..., None]:
    def told(*args: object) -> None:
        world.clock.now += 0.002
        notify(*args)

    return told
