"""The state table, pair by pair against a table written here, and how subscriptions end on a real feed."""

from __future__ import annotations

import pytest

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Ended, Lagged, Opened, OpenFailed
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.states import TABLE, IllegalTransitionError, SubscriptionInput, SubscriptionState, after
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import CloseReason, Gap, OverflowPolicy
from tests.unit.core.fakes import Client, Event, World, names

# Columns: OPENING, LIVE, BEHIND, HISTORY_WAITING, HISTORY, ENDING, CLOSED.
# A letter is the state that follows; a dot: not legal, it raises.
STATES = {
    "o": SubscriptionState.OPENING,
    "l": SubscriptionState.LIVE,
    "b": SubscriptionState.BEHIND,
    "w": SubscriptionState.HISTORY_WAITING,
    "h": SubscriptionState.HISTORY,
    "e": SubscriptionState.ENDING,
    "c": SubscriptionState.CLOSED,
}
EXPECTED = {
    # what                     o l b w h e c
    SubscriptionInput.OPENED: "            l . . . . . .",
    SubscriptionInput.OPEN_FAILED: "       c . . . . . .",
    SubscriptionInput.FULL: "              . b . . w . .",
    SubscriptionInput.EVICTED: "           w . w . . . .",
    SubscriptionInput.READER_ASSIGNED: "     . . . h . . .",
    SubscriptionInput.JOINED: "            b . l b b c .",
    SubscriptionInput.ENDED: "             c c e w h . .",
    SubscriptionInput.REMOVED: "           c c e c c e .",
    SubscriptionInput.FAILED: "            c c c c c c .",
    SubscriptionInput.EVENT_FAILED: "      . . c . c c .",
    SubscriptionInput.UNSUBSCRIBE: "       c c c c c c .",
    SubscriptionInput.LIMIT_REACHED: "     . c c c c c .",
    SubscriptionInput.UNTIL_REACHED: "     . c c c c c .",
    SubscriptionInput.POLICY_CLOSE: "      . . c c c c .",
    SubscriptionInput.DISCONNECT: "        c c c c c c .",
}


@pytest.mark.parametrize("item", SubscriptionInput)
def test_every_pair_of_state_and_input(item: SubscriptionInput) -> None:
    columns = EXPECTED[item].split()
    assert len(columns) == len(SubscriptionState)
    for state, letter in zip(STATES.values(), columns, strict=True):
        assert ((state, item) in TABLE) == (letter != "."), (state, item)
        if letter != ".":
            assert after(state, item) is STATES[letter], (state, item)
        else:
            with pytest.raises(IllegalTransitionError, match=f"{item.value} in state {state.value}"):
                after(state, item)


def test_every_state_and_input_is_in_the_table() -> None:
    assert set(EXPECTED) == set(SubscriptionInput)
    assert set(STATES.values()) == set(SubscriptionState)


def test_an_illegal_input_raises_and_leaves_a_subscription_as_it_is() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client)
    for item in (
        SubscriptionInput.OPENED,
        SubscriptionInput.JOINED,
        SubscriptionInput.EVICTED,
        SubscriptionInput.POLICY_CLOSE,
        SubscriptionInput.READER_ASSIGNED,
    ):
        with pytest.raises(IllegalTransitionError):
            subscription.apply(item)
        assert subscription.state is SubscriptionState.LIVE
    world.produce(1)
    subscription.cancel()
    for item in SubscriptionInput:
        with pytest.raises(IllegalTransitionError):
            subscription.apply(item)
        assert subscription.state is SubscriptionState.CLOSED
    assert world.hub.subscribers == 0
    assert client.places == [(0, 0)]


# --- before it begins ---------------------------------------------------------------------------------


def test_a_subscription_waits_for_its_source_and_begins_at_its_head() -> None:
    world, client = World(begin=False, start={0: 7}), Client()
    subscription = world.subscribe(client)
    states = [subscription.state]
    assert client.notices == []
    world.hub.started({0: 7})
    states.append(subscription.state)
    assert states == [SubscriptionState.OPENING, SubscriptionState.LIVE]
    (opened,) = client.notices
    assert isinstance(opened, Opened)
    assert opened.positions == {"0": 7}
    world.produce(2)
    assert client.places == [(0, 7), (0, 8)]


def test_a_source_that_does_not_start_in_time_fails_the_subscription() -> None:
    world, client = World(HubLimits(subscribe_timeout=5), begin=False), Client()
    subscription = world.subscribe(client)
    world.pass_time(4.9)
    assert not subscription.closed
    world.pass_time(0.1)
    (failed,) = client.notices
    assert isinstance(failed, OpenFailed)
    assert "within 5 s" in failed.message
    world.hub.started({0: 0})
    assert client.notices == [failed]
    assert world.hub.subscribers == 0


@pytest.mark.parametrize("how", ["ended", "removed", "failed", "withdrawn"])
def test_an_end_while_it_waits_is_an_open_that_failed(how: str) -> None:
    world, client = World(begin=False), Client()
    subscription = world.subscribe(client)
    match how:
        case "ended":
            world.hub.ended()
        case "removed":
            world.hub.removed(CloseReason.REMOVED, "removed", 5)
        case "failed":
            world.hub.failed("no")
        case _:
            world.hub.withdraw(subscription, "no")
    assert [type(notice) for notice in client.notices] == [OpenFailed]
    assert subscription.closed


def test_cancelled_while_it_waits_nothing_follows() -> None:
    world, client = World(begin=False), Client()
    subscription = world.subscribe(client)
    subscription.cancel()
    world.hub.started({0: 0})
    world.produce(1)
    assert client.notices == []
    assert client.places == []


def test_what_one_opening_causes_may_cancel_the_next_one() -> None:
    world, first, second = World(begin=False), Client(), Client()
    world.subscribe(first)
    other = world.subscribe(second)
    first.heard = lambda subscription, notice: other.cancel()
    world.hub.started({0: 0})
    assert second.notices == []
    assert other.closed


# --- how it ends --------------------------------------------------------------------------------------


def behind(world: World, events: int = 3, **options: object) -> tuple[Client, object]:
    """Subscribe a push client that took one event and then nothing of the next `events`."""
    client = Client()
    subscription = world.subscribe(client, **options)  # type: ignore[arg-type]
    world.produce(1)
    client.writer.take = lambda size: 0
    world.produce(events)
    return client, subscription


def test_finite_source_ended_the_caught_up_get_the_notice_at_once() -> None:
    world, client = World(), Client()
    world.subscribe(client)
    world.produce(2)
    world.hub.ended()
    *events, end = client.read()[1:]
    assert [e.place for e in events if isinstance(e, Event)] == [(0, 0), (0, 1)]
    assert isinstance(end, Ended)
    assert (end.reason, end.dropped, end.positions) == (CloseReason.ENDED, 0, {"0": 2})


def test_finite_source_ended_a_slow_client_gets_the_rest_then_the_notice() -> None:
    world = World()
    client, subscription = behind(world)
    world.hub.ended()
    world.pass_time(1e6)
    assert client.ends == []
    assert subscription.state is SubscriptionState.ENDING  # type: ignore[attr-defined]
    client.writer.take = lambda size: size
    client.writer.drain()
    items = client.read()
    assert client.places == world.made
    assert isinstance(items[-1], Ended)
    assert items[-1].dropped == 0
    assert world.hub.subscribers == world.hub.behind == 0


def test_finite_source_ended_the_rest_is_sent_as_credit_allows() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, credit=1)
    world.produce(4)
    world.hub.ended()
    assert client.places == world.made[:1]
    subscription.add_credit(2)
    assert client.places == world.made[:3]
    assert client.ends == []
    subscription.add_credit(1)
    assert client.places == world.made
    assert isinstance(client.read()[-1], Ended)


def test_finite_source_ended_a_rest_that_costs_no_credit_needs_none() -> None:
    world, client = World(), Client()
    world.subscribe(client, names(keep=lambda place: place[1] < 2), credit=2)
    world.produce(3)
    world.produce(3)
    world.hub.ended()
    assert client.places == [(0, 0), (0, 1)]
    assert isinstance(client.read()[-1], Ended)


def test_finite_source_ended_with_a_filtered_rest_behind_a_closed_socket() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, names(keep=lambda place: place[1] < 2), credit=1)
    for _ in range(100):
        world.produce(3)
    world.hub.ended()
    assert client.ends == []
    subscription.add_credit(1)
    assert client.places == [(0, 0), (0, 1)]
    assert isinstance(client.read()[-1], Ended)


def test_new_subscriptions_of_an_ended_source_are_refused_in_words() -> None:
    world = World()
    world.hub.ended()
    with pytest.raises(SubscribeRefused, match="the source has ended") as refused:
        world.subscribe(Client())
    assert refused.value.code == "ended"


@pytest.mark.parametrize("reason", [CloseReason.REMOVED, CloseReason.ALTERED, CloseReason.CHANGED])
def test_removed_the_rest_is_sent_while_there_is_time(reason: CloseReason) -> None:
    world = World()
    client, _ = behind(world)
    live = Client()
    world.subscribe(live)
    world.hub.removed(reason, "the configuration has changed", 5)
    assert [end.reason for end in live.ends] == [reason]
    world.pass_time(4.9)
    assert client.ends == []
    client.writer.take = lambda size: size
    client.writer.drain()
    assert client.places == world.made
    end = client.read()[-1]
    assert isinstance(end, Ended)
    assert (end.reason, end.dropped, end.message) == (reason, 0, "the configuration has changed")


def test_removed_what_time_did_not_suffice_for_is_counted_in_the_notice() -> None:
    world = World()
    client, _ = behind(world, 3)
    world.hub.removed(CloseReason.ALTERED, "altered", 5)
    world.pass_time(5)
    client.writer.take = lambda size: size
    client.writer.drain()
    (end,) = client.ends
    assert (end.reason, end.dropped, end.positions) == (CloseReason.ALTERED, 3, {"0": 1})
    assert client.places == world.made[:1]
    assert sum(world.hub.dropped.values()) == 3


def test_failed_for_good_nothing_more_is_sent() -> None:
    world = World()
    client, _ = behind(world, 3)
    live = Client()
    world.subscribe(live)
    world.hub.failed("the broker has no such topic")
    assert [(e.reason, e.dropped) for e in live.ends] == [(CloseReason.FAILED, 0)]
    client.writer.take = lambda size: size
    client.writer.drain()
    (end,) = client.ends
    assert (end.reason, end.dropped, end.message) == (CloseReason.FAILED, 3, "the broker has no such topic")
    assert client.places == world.made[:1]


def test_policy_close_ends_at_once_and_counts_what_was_not_sent() -> None:
    world = World()
    client, subscription = behind(world, 3, capacity=3, overflow=OverflowPolicy.CLOSE)
    world.hub.sweep()
    assert not subscription.closed  # type: ignore[attr-defined]
    world.produce(1)
    world.hub.sweep()
    assert subscription.closed  # type: ignore[attr-defined]
    (end,) = client.ends
    assert (end.reason, end.dropped, end.positions) == (CloseReason.OVERFLOW, 4, {"0": 1})
    client.writer.take = lambda size: size
    client.writer.drain()
    assert client.places == world.made[:1]
    assert client.read()[-1] is end


def test_policy_close_is_found_when_it_is_read_and_no_lag_notice_follows() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, credit=0, capacity=4, overflow=OverflowPolicy.CLOSE)
    world.produce(3)
    client.writer.take = lambda size: 0
    world.pass_time(1)  # over the threshold of two: a notice is due, but the socket is full
    world.produce(3)
    client.writer.take = lambda size: size
    client.writer.drain()
    subscription.add_credit(1)
    assert [type(n) for n in client.notices] == [Opened, Lagged, Ended]
    assert [type(n) for n in client.read()] == [Opened, Lagged, Ended]


def test_authorisation_withdrawn_ends_at_once() -> None:
    world = World()
    client, subscription = behind(world, 2)
    world.hub.withdraw(subscription, "not any more")  # type: ignore[arg-type]
    (end,) = client.ends
    assert (end.reason, end.dropped) == (CloseReason.UNAUTHORIZED, 2)


def test_what_the_source_lost_at_its_end_is_counted() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(client, credit=2)
    world.produce(3)
    world.produce([], gap=Gap({0: (3, 9)}, 7))
    world.hub.ended()
    subscription.add_credit(1)
    opened, *events, lag, end = client.read()
    assert isinstance(opened, Opened)
    assert [e.place for e in events if isinstance(e, Event)] == world.made
    assert isinstance(lag, Lagged)
    assert (lag.dropped, lag.ranges) == (7, {0: (3, 9)})
    assert isinstance(end, Ended)
    assert end.dropped == 0


def test_an_end_before_the_notice_of_a_loss_carries_the_loss() -> None:
    world = World()
    client, _ = behind(world, 2)
    world.produce([], gap=Gap({0: (3, 9)}, 7))
    world.hub.failed("gone")
    (end,) = client.ends
    assert end.dropped == 9


def test_an_end_with_a_loss_of_unknown_size_says_so() -> None:
    world = World()
    client, _ = behind(world, 2)
    world.produce([], gap=Gap({0: (3, 9)}, None))
    world.hub.failed("gone")
    (end,) = client.ends
    assert end.dropped is None


def test_removed_while_fan_out_is_on_its_way_nobody_misses_the_batch() -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(40)]
    for client in clients:
        world.subscribe(client)
    steps = publish(world.hub, world.batch([0, 0]))
    next(steps)  # sixteen are served
    assert sum(1 for client in clients if client.places) == 16
    world.hub.removed(CloseReason.REMOVED, "removed", 5)
    for _ in steps:
        pass
    for client in clients:
        assert client.places == world.made
        assert [end.dropped for end in client.ends] == [0]


def test_withdrawn_while_fan_out_is_on_its_way_is_exact() -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(20)]
    subscriptions = [world.subscribe(client) for client in clients]
    steps = publish(world.hub, world.batch([0, 0]))
    next(steps)
    world.hub.withdraw(subscriptions[-1], "no")
    for _ in steps:
        pass
    (end,) = clients[-1].ends
    assert (end.dropped, end.positions, clients[-1].places) == (2, {"0": 0}, [])


def test_failed_while_fan_out_is_on_its_way_is_exact_for_those_not_served() -> None:
    world = World(HubLimits(slice_seconds=0))
    clients = [Client() for _ in range(40)]
    for client in clients:
        world.subscribe(client)
    steps = publish(world.hub, world.batch([0, 0]))
    next(steps)
    world.hub.failed("gone")
    for _ in steps:
        pass
    for client in clients:
        (end,) = client.ends
        got = len(client.places)
        assert (end.dropped, end.positions) == ((0, {"0": 2}) if got else (2, {"0": 0}))
