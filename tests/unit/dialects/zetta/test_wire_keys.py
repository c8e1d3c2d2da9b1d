"""What of a topic counts as a wire key that its client chose, and what becomes of one too many."""

from __future__ import annotations

import pytest

from kiwi_gw.core.accounts import OwnAccount
from kiwi_gw.core.feed import FeedLimits
from kiwi_gw.dialects.base import SessionLimits
from kiwi_gw.dialects.zetta import turns
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
    assert len(sources.feeds[source].chosen_keys) == most
    return found


def refused(sources: Sources, topic: str, most: int) -> bool:
    """Whether a new client that asks for this is told that it would be one too many."""
    client = sources.client()
    client.subscribe(topic)
    first, *rest = client.seen()
    assert first == ("subscribe-ack", 1)
    assert rest in ([], [(500, topic, TOO_MANY.format(most))])
    return bool(rest)


def test_thousands_of_plain_topics_use_up_nothing_and_are_never_refused() -> None:
    sources = Sources(FeedLimits(max_wire_keys=2), flat=FLAT)
    feed = sources.feeds["flat"]
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
    assert feed.wire_keys > 100
    assert len(feed.chosen_keys) == 0
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
    sources = Sources(FeedLimits(max_wire_keys=1), arms=ARMS)
    used_up(sources, "arms", 1)
    assert refused(sources, topic, 1) is counts


def test_patterns_that_leave_nothing_out_share_their_bytes() -> None:
    sources = Sources(arms=ARMS)
    clients = [sources.client() for _ in range(3)]
    for client, topic in zip(clients, ("**", "hub/**", "hub/arm/**"), strict=True):
        client.subscribe(topic)
        client.seen()
    sources.send("arms", 1, 2, keys=["1", "2"])
    assert sources.feeds["arms"].wire_keys == 1
    assert all(client.seen() == [("hub/arm/1/state", 1, 1), ("hub/arm/2/state", 1, 2)] for client in clients)


def test_a_plain_topic_beside_a_query_takes_a_share_and_gives_it_back() -> None:
    sources = Sources(FeedLimits(wire_keys_connection=1), flat=FLAT)
    feed, client = sources.feeds["flat"], sources.client()
    client.subscribe(ONE)
    assert len(feed.chosen_keys) == 0
    client.subscribe("**?where data > 1")
    assert len(feed.chosen_keys) == 1
    client.say(type="unsubscribe", subscriptionId=2)
    assert len(feed.chosen_keys) == 0
    assert feed.chosen_keys._of == {}


def test_a_topic_that_would_be_one_wire_key_too_many_leaves_the_others_as_they_were() -> None:
    sources = Sources(FeedLimits(max_wire_keys=1), flat=FLAT)
    feed = sources.feeds["flat"]
    client, other = sources.client(), sources.client()
    for each in (client, other):
        each.subscribe("**?where data > 1")
        assert each.seen() == acks(1)
    shares = {who: dict(counted) for who, counted in feed.chosen_keys._of.items()}
    client.subscribe("**?where data > 2")
    client.subscribe(ONE)
    assert client.seen() == [
        *acks(2),
        (500, "**?where data > 2", TOO_MANY.format(1)),
        *acks(3),
        (500, ONE, TOO_MANY.format(1)),
    ]
    assert {who: dict(counted) for who, counted in feed.chosen_keys._of.items()} == shares
    sources.send("flat", 1, 5)
    assert client.seen() == other.seen() == [(ONE, 1, 5)]

    client.pass_time(RETRY_SECONDS)
    assert client.seen() == [], "it is told once"
    other.say(type="unsubscribe", subscriptionId=1)
    client.pass_time(RETRY_SECONDS)
    sources.send("flat", 2, 6)
    assert client.seen() == [(ONE, 1, 2), (ONE, 3, 2), (ONE, 1, 6), (ONE, 2, 6), (ONE, 3, 6)]
    assert len(feed.chosen_keys) == 1


def test_one_that_was_refused_and_is_given_up_is_tried_no_more() -> None:
    sources = Sources(FeedLimits(max_wire_keys=1), flat=FLAT)
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
    sources = Sources(FeedLimits(max_wire_keys=1), flat=FLAT)
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


MANY = 3 * turns.STEPS


def many() -> Sources:
    return Sources(**{f"s{number}": {"topic": f"hub/t{number}/1/state"} for number in range(MANY)})


def subscribers(sources: Sources) -> int:
    return sum(feed.subscribers for feed in sources.feeds.values())


def test_a_topic_that_means_many_sources_reads_them_in_turns() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe("hub/t0/1/state")
    assert client.seen() == acks(1, 2)
    seen = [subscribers(sources)]
    while client.reminders:
        client.pass_time(0)
        seen.append(subscribers(sources))
    assert seen[-1] == MANY
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= turns.STEPS
    for number in range(MANY):
        sources.send(f"s{number}", number)
    every = [(f"hub/t{number}/1/state", 1, number) for number in range(MANY)]
    assert client.seen() == [every[0], ("hub/t0/1/state", 2, 0), *every[1:]]


def test_no_event_of_a_topic_follows_its_ack_however_many_sources_it_means() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe(f"hub/t{MANY - 1}/1/state")
    while client.reminders:
        client.pass_time(0)
    client.seen()
    client.say(type="unsubscribe", subscriptionId=1)
    assert 0 < subscribers(sources) < MANY
    sources.send(f"s{MANY - 1}", 1)
    while client.reminders:
        client.pass_time(0)
    sources.send(f"s{MANY - 1}", 2)
    last = f"hub/t{MANY - 1}/1/state"
    assert client.seen() == [(last, 1, 1), (last, 2, 1), ("unsubscribe-ack", 1), (last, 2, 2)]
    assert subscribers(sources) == 1


def test_the_turns_of_one_that_has_used_much_wait_and_others_do_not() -> None:
    sources = many()
    account = OwnAccount(0.05)
    greedy = sources.client(limits=SessionLimits(compiling_own=account))
    greedy.subscribe("**")
    account.charge(10.0, sources.clock())
    before = subscribers(sources)
    greedy.pass_time(0)
    assert subscribers(sources) == before
    (wait,) = greedy.reminders
    assert wait > 1
    modest = sources.client()
    modest.subscribe("hub/t1/1/state")
    assert subscribers(sources) == before + 1
    greedy.pass_time(wait)
    assert subscribers(sources) > before + 1


def test_what_comes_and_goes_between_the_turns() -> None:
    sources = many()
    client = sources.client()
    client.subscribe("**")
    client.subscribe("hub/*/1/state?where data > 1")
    sources.source(f"s{MANY - 1}", topic="hub/again/1/state")
    client.say(type="unsubscribe", subscriptionId=1)
    while client.reminders:
        client.pass_time(0)
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
    (group,) = sources.feeds["arms"]._groups.values()
    assert len(repr(group.wire.key)) < 200
