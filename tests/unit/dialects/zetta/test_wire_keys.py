"""What of a topic counts as a wire key that its client chose, and what becomes of one too many."""

from __future__ import annotations

import pytest

from kiwi_gw.core.accounts import ClientAccount
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Lagged
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.zetta import step_queue
from kiwi_gw.dialects.zetta.session import RETRY_SECONDS
from tests.unit.dialects.zetta.bench import Client, Sources

FLAT = {"topic": "hub/flat/1/state"}
ARMS = {"topic": "hub/arm/{key}/state"}
ONE = "hub/flat/1/state"
TOO_MANY = "this source already has {} different wire keys that clients chose"


def acks(*numbers: int) -> list[tuple[object, ...]]:
    return [("subscribe-ack", number) for number in numbers]


def used_up(sources: Sources, source: str, most: int) -> list[Client]:
    """Clients that have chosen all the wire keys that a source may have."""
    found = []
    for number in range(most):
        client = sources.client()
        client.subscribe(f"**?where data > {number + 100}")
        client.seen()
        found.append(client)
    assert len(sources.hubs[source].groups.chosen) == most
    return found


def refused(sources: Sources, topic: str, most: int) -> bool:
    """Whether a new client that asks for this is told that it would be one too many."""
    client = sources.client()
    client.subscribe(topic)
    first, *rest = client.seen()
    assert first == ("subscribe-ack", 1)
    assert rest in ([], [(500, topic, TOO_MANY.format(most))])
    return bool(rest)


@pytest.mark.slow
def test_thousands_of_plain_topics_use_up_nothing_and_are_never_refused() -> None:
    sources = Sources(HubLimits(max_wire_keys=2), flat=FLAT)
    hub = sources.hubs["flat"]
    plain = []
    for number in range(2_000):
        client = sources.client(limits=SessionLimits(subscriptions=0, commands_per_second=0))
        for _ in range(number % 20 or number // 10):  # so that its id is another one
            client.subscribe(ONE, limit=0)
        client.subscribe(ONE if number % 2 else "**", **({"limit": 5} if number % 3 else {}))
        if number % 7 == 0:
            client.subscribe("hub/**")
        client.seen()
        plain.append(client)
    assert hub.wire_keys > 100
    assert len(hub.groups.chosen) == 0
    queries = used_up(sources, "flat", 2)
    assert refused(sources, "**?where data > 1", 2)
    assert not refused(sources, ONE, 2)
    assert not refused(sources, "**", 2)
    sources.send("flat", 7)
    for client in plain:
        assert {event[::2] for event in client.seen() if event[0] == ONE} == {(ONE, 7)}
    for client in queries:
        assert client.seen() == []


@pytest.mark.parametrize(
    ("topic", "counts"),
    [
        ("**", False),
        ("hub/**", False),
        ("hub/arm/**", False),
        ("hub/{^arm$}/**", False),
        ("hub/arm/1/state", True),
        ("hub/arm/*/state", True),
        ("hub/**/state", True),
        ("**?select data.a", True),
        ("**?where data > 1", True),
        ("hub/query/where id = 1", True),
    ],
)
def test_a_pattern_counts_where_it_leaves_events_out(topic: str, counts: bool) -> None:
    sources = Sources(HubLimits(max_wire_keys=1), arms=ARMS)
    used_up(sources, "arms", 1)
    assert refused(sources, topic, 1) is counts


def test_patterns_that_leave_nothing_out_share_their_bytes() -> None:
    sources = Sources(arms=ARMS)
    clients = [sources.client() for _ in range(3)]
    for client, topic in zip(clients, ("**", "hub/**", "hub/arm/**"), strict=True):
        client.subscribe(topic)
        client.seen()
    sources.send("arms", 1, 2, keys=["1", "2"])
    assert sources.hubs["arms"].wire_keys == 1
    assert all(client.seen() == [("hub/arm/1/state", 1, 1), ("hub/arm/2/state", 1, 2)] for client in clients)


def test_a_plain_topic_beside_a_query_takes_a_share_and_gives_it_back() -> None:
    sources = Sources(HubLimits(wire_keys_connection=1), flat=FLAT)
    hub, client = sources.hubs["flat"], sources.client()
    client.subscribe(ONE)
    assert len(hub.groups.chosen) == 0
    client.subscribe("**?where data > 1")
    assert len(hub.groups.chosen) == 1
    client.say(type="unsubscribe", subscriptionId=2)
    assert len(hub.groups.chosen) == 0
    assert hub.groups.chosen._of == {}


def test_a_topic_that_would_be_one_wire_key_too_many_leaves_the_others_as_they_were() -> None:
    sources = Sources(HubLimits(max_wire_keys=1), flat=FLAT)
    hub = sources.hubs["flat"]
    client, other = sources.client(), sources.client()
    for each in (client, other):
        each.subscribe("**?where data > 1")
        assert each.seen() == acks(1)
    shares = {who: dict(counted) for who, counted in hub.groups.chosen._of.items()}
    client.subscribe("**?where data > 2")
    client.subscribe(ONE)
    assert client.seen() == [
        *acks(2),
        (500, "**?where data > 2", TOO_MANY.format(1)),
        *acks(3),
        (500, ONE, TOO_MANY.format(1)),
    ]
    assert {who: dict(counted) for who, counted in hub.groups.chosen._of.items()} == shares
    sources.send("flat", 1, 5)
    assert client.seen() == other.seen() == [(ONE, 1, 5)]

    client.pass_time(RETRY_SECONDS)
    assert client.seen() == [], "it is told once"
    other.say(type="unsubscribe", subscriptionId=1)
    client.pass_time(RETRY_SECONDS)
    sources.send("flat", 2, 6)
    assert client.seen() == [(ONE, 1, 2), (ONE, 3, 2), (ONE, 1, 6), (ONE, 2, 6), (ONE, 3, 6)]
    assert len(hub.groups.chosen) == 1


def test_one_that_was_refused_and_is_given_up_is_tried_no_more() -> None:
    sources = Sources(HubLimits(max_wire_keys=1), flat=FLAT)
    client, other = sources.client(), sources.client()
    for each in (client, other):
        each.subscribe("**?where data > 1")
    client.subscribe("**?where data > 2")
    client.say(type="unsubscribe", subscriptionId=2)
    client.seen()
    client.pass_time(RETRY_SECONDS)
    sources.send("flat", 5)
    assert client.seen() == [(ONE, 1, 5)]
    assert client.reminders == []


def test_whoever_asks_for_less_is_not_cut_off_because_others_have_used_up_all() -> None:
    sources = Sources(HubLimits(max_wire_keys=1), flat=FLAT)
    client, other = sources.client(), sources.client()
    for each in (client, other):
        each.subscribe("**?where data > 1", limit=1)
        each.subscribe("**?where data > 2")
        each.say(type="unsubscribe", subscriptionId=3)
        each.seen()
    client.say(type="unsubscribe", subscriptionId=1)
    assert client.seen() == [("unsubscribe-ack", 1)]
    sources.send("flat", 5)
    assert client.seen() == [(ONE, 2, 5)]
    assert other.seen() == [(ONE, 1, 5), (ONE, 2, 5), ("unsubscribe-ack", 1)]


# --- many sources --------------------------------------------------------------------------------


MANY = 3 * step_queue.STEPS


def many() -> Sources:
    return Sources(**{f"s{number}": {"topic": f"hub/t{number}/1/state"} for number in range(MANY)})


def subscribers(sources: Sources) -> int:
    return sum(hub.subscribers for hub in sources.hubs.values())


def test_a_topic_that_means_many_sources_reads_them_in_turns() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe("hub/t0/1/state")
    seen = [subscribers(sources)]
    while client.turns:
        client.turn()
        seen.append(subscribers(sources))
    assert client.seen() == acks(1, 2)
    assert seen[-1] == MANY
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= step_queue.STEPS
    for number in range(MANY):
        sources.send(f"s{number}", number)
    every = [(f"hub/t{number}/1/state", 1, number) for number in range(MANY)]
    assert client.seen() == [every[0], ("hub/t0/1/state", 2, 0), *every[1:]]


def test_no_event_of_a_topic_follows_its_ack_however_many_sources_it_means() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe(f"hub/t{MANY - 1}/1/state")
    client.finish()
    client.seen()
    client.say(type="unsubscribe", subscriptionId=1)
    assert 0 < subscribers(sources) < MANY
    sources.send(f"s{MANY - 1}", 1)
    client.finish()
    sources.send(f"s{MANY - 1}", 2)
    last = f"hub/t{MANY - 1}/1/state"
    assert client.seen() == [(last, 1, 1), (last, 2, 1), ("unsubscribe-ack", 1), (last, 2, 2)]
    assert subscribers(sources) == 1


def test_the_turns_of_one_that_has_used_much_wait_and_others_do_not() -> None:
    sources = many()
    account = ClientAccount(0.05)
    greedy = sources.client(limits=SessionLimits(compiling_own=account))
    greedy.subscribe("**")
    account.charge(10.0, sources.clock())
    before = subscribers(sources)
    greedy.turn()
    assert subscribers(sources) == before
    (wait,) = greedy.turns
    assert wait > 1
    light_user = sources.client()
    light_user.subscribe("hub/t1/1/state")
    assert subscribers(sources) == before + 1
    sources.clock.now += wait
    greedy.turn()
    assert subscribers(sources) > before + 1
    account.charge(10.0, sources.clock())
    used, before = account.used, subscribers(sources)
    greedy.turn(idle=True)
    assert subscribers(sources) > before, "nobody else wants the loop"
    assert account.used == used


def last_of(sources: Sources, *values: object) -> str:
    """Published by the source that is read last; its topic."""
    sources.send(f"s{MANY - 1}", *values)
    return f"hub/t{MANY - 1}/1/state"


def test_what_is_published_behind_the_ack_reaches_the_client_however_many_sources_it_means() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    while not (seen := client.seen()):
        last_of(sources, "lost" if client.turns else "all turns are over and nothing is acknowledged")
        client.turn()
    assert seen == acks(1)
    last = last_of(sources, 7)
    assert client.seen() == [(last, 1, 7)]


def test_topics_are_acknowledged_in_the_order_in_which_they_came() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe("hub/t1/1/state")
    client.subscribe("no topic")
    client.say(type="ping")
    assert [first for first, *_ in client.seen()] == [400, "pong"]
    client.finish()
    assert client.seen() == acks(1, 2)


def test_what_needs_no_source_keeps_nothing_behind_turns_that_do_not_come() -> None:
    sources = many()
    client = sources.client(limits=SessionLimits(commands_per_second=0))
    client.subscribe("**")
    left = client.session._steps._left  # type: ignore[attr-defined]
    before = len(left)
    for number in range(2, 500):
        client.subscribe("**", limit=0)
        assert client.seen() == [*acks(number), ("unsubscribe-ack", number)]
    assert len(left) == before


def test_errors_of_a_topic_follow_its_ack() -> None:
    sources = many()
    client = sources.client()
    client.refusal = "too_many_wire_keys"
    client.subscribe("**")
    client.refusal = ""
    assert client.seen() == []
    client.finish()
    first, *rest = client.seen()
    assert [first] == acks(1)
    assert rest == [(500, "**", "it cannot be read")] * (MANY - subscribers(sources))
    assert len(rest) > 1


def test_an_id_that_is_given_up_before_its_ack_gets_both_acks_once() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**", limit=1)
    client.subscribe("**")
    client.say(type="unsubscribe", subscriptionId=2)
    sources.send("s0", 1)
    sources.send("s1", 2)
    client.finish()
    found = client.seen()
    assert found.count(("hub/t0/1/state", 1, 1)) == 1
    assert [item for item in found if "ack" in str(item[0])] == [
        *acks(2),
        ("unsubscribe-ack", 2),
        *acks(1),
        ("unsubscribe-ack", 1),
    ]
    assert subscribers(sources) == 0


def test_a_loss_before_the_ack_is_told_behind_it() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.carry_out(client.session.notice(Lagged(1, sources.hubs["s0"].info, 3, 3, 1, {}, {})))
    assert client.seen() == []
    client.finish()
    assert client.seen() == [*acks(1), (500, "**", "3 events of its sources were lost")]


def test_a_query_for_devices_of_many_sources_is_acknowledged_before_the_first_device() -> None:
    sources = Sources(HubLimits(last_values=True))
    for number in range(MANY):
        sources.source(f"s{number}", topic=f"hub/t{number}/{{key}}/state")
        sources.send(f"s{number}", 1, keys=["1"])
    client = sources.client()
    client.subscribe("hub/query/where id = 1")
    client.subscribe('hub/query/where id = "1"')
    client.finish()
    first, second, *rest = client.seen()
    assert [first, second] == acks(1, 2)
    assert len(rest) == MANY


def test_one_topic_at_its_limit_does_not_hold_up_the_others_of_its_sources() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**", limit=1)
    client.subscribe("**")
    client.finish()
    client.seen()
    account = client.session._compiling._own  # type: ignore[attr-defined]
    account.charge(10.0, sources.clock())
    sources.send("s0", 1)
    for value in (2, 3):
        last = last_of(sources, value)
    assert client.turns, "most of it is left to do"
    seen = client.seen()
    assert seen == [("hub/t0/1/state", 1, 1), ("hub/t0/1/state", 2, 1), (last, 2, 2), (last, 2, 3)]
    while client.turns:
        client.turn(idle=True)
    assert client.seen() == [("unsubscribe-ack", 1)]


def test_what_comes_and_goes_between_the_turns() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe("hub/*/1/state?where data > 1")
    sources.source(f"s{MANY - 1}", topic="hub/again/1/state")
    client.say(type="unsubscribe", subscriptionId=1)
    client.finish()
    client.seen()
    assert subscribers(sources) == MANY
    sources.send(f"s{MANY - 1}", 1, 2)
    sources.send("s1", 3)
    assert client.seen() == [("hub/again/1/state", 2, 2), ("hub/t1/1/state", 2, 3)]


def test_what_is_kept_of_topics_is_small_however_long_they_are() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client(limits=SessionLimits(commands_per_second=0))
    for number in range(128):
        client.subscribe(f"{{hub|{'a' * 500}{number}}}/arm/*/state?where data > {number % 32} {' ' * 2_000}")
    (group,) = sources.hubs["arms"].groups
    assert len(repr(group.wire.key)) < 200
