"""Topics of a connection over real feeds: who gets what, in which order, and what becomes of limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.dialects.zetta import ZettaDialect
from kiwi_gw.model import CloseReason, Decode
from tests.unit.dialects.zetta.bench import NOW, Sources

ARMS = {"topic": "hub/arm/{key}/state"}


def acks(*numbers: int) -> list[tuple[object, ...]]:
    return [("subscribe-ack", number) for number in numbers]


def test_events_of_several_topics_come_per_event_in_the_order_of_their_ids() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/1/state")
    client.subscribe("hub/arm/*/state")
    client.subscribe("hub/arm/2/state")
    assert client.seen() == acks(1, 2, 3)
    sources.send("arms", "a", "b", "c", keys=["1", "2", "3"])
    assert client.seen() == [
        ("hub/arm/1/state", 1, "a"),
        ("hub/arm/1/state", 2, "a"),
        ("hub/arm/2/state", 2, "b"),
        ("hub/arm/2/state", 3, "b"),
        ("hub/arm/3/state", 2, "c"),
    ]
    assert sources.hubs["arms"].subscribers == 1


def test_the_same_topic_twice_is_two_subscriptions_and_an_id_is_never_used_again() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.subscribe("hub/fake/a/events")
    client.subscribe("hub/fake/a/events")
    client.say(type="unsubscribe", subscriptionId=1)
    client.subscribe("hub/fake/a/events")
    assert client.seen() == [*acks(1, 2), ("unsubscribe-ack", 1), *acks(3)]
    sources.send("a", 5)
    assert client.seen() == [("hub/fake/a/events", 2, 5), ("hub/fake/a/events", 3, 5)]
    for number in (2, 3):
        client.say(type="unsubscribe", subscriptionId=number)
    client.say(type="unsubscribe", subscriptionId=3)
    assert client.seen() == [
        ("unsubscribe-ack", 2),
        ("unsubscribe-ack", 3),
        (405, None, "no subscription has this id"),
    ]
    assert sources.hubs["a"].subscribers == 0
    assert sources.hubs["a"].wire_keys == 0


def test_clients_with_equal_ids_share_their_bytes_and_others_the_data() -> None:
    sources = Sources(a={})
    equal = [sources.client() for _ in range(20)]
    for client in equal:
        client.subscribe("hub/fake/a/events")
        client.seen()
    sources.send("a", 1, 2, 3)
    assert sources.memo.events_encoded == 3
    assert sources.hubs["a"].wire_keys == 1
    assert all(client.seen() == [("hub/fake/a/events", 1, v) for v in (1, 2, 3)] for client in equal)


def test_topics_of_one_form_share_their_bytes_whatever_their_pattern() -> None:
    sources = Sources(a={})
    clients = [sources.client() for _ in range(3)]
    for client, topic in zip(clients, ("hub/fake/a/events", "hub/**", "{h.b}/*/a/e*"), strict=True):
        client.subscribe(topic)
    sources.send("a", 1)
    assert sources.hubs["a"].wire_keys == 1
    assert all(client.seen()[1:] == [("hub/fake/a/events", 1, 1)] for client in clients)


def test_each_topic_has_its_own_limit_and_the_last_event_precedes_its_ack() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/*/state", limit=2)
    client.subscribe("hub/arm/2/state", limit=2)
    client.subscribe("hub/arm/*/state", limit=5)
    client.subscribe("hub/arm/1/state", limit=0)
    client.seen()
    sources.send("arms", *"abcdefg", keys=["1", "2", "1", "1", "2", "1", "2"])
    one, two = "hub/arm/1/state", "hub/arm/2/state"
    assert client.seen() == [
        (one, 1, "a"),
        (one, 3, "a"),
        (two, 1, "b"),
        (two, 2, "b"),
        (two, 3, "b"),
        ("unsubscribe-ack", 1),
        (one, 3, "c"),
        (one, 3, "d"),
        (two, 2, "e"),
        (two, 3, "e"),
        ("unsubscribe-ack", 2),
        ("unsubscribe-ack", 3),
    ]
    assert sources.hubs["arms"].subscribers == 0


def test_the_ack_of_a_limit_waits_for_no_event_of_another_topic() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/*/state")
    client.subscribe("hub/arm/1/state", limit=1)
    client.seen()
    sources.send("arms", "a", "b", keys=["1", "2"])
    one, two = "hub/arm/1/state", "hub/arm/2/state"
    assert client.seen() == [(one, 1, "a"), (one, 2, "a"), ("unsubscribe-ack", 2), (two, 1, "b")]


def test_a_limit_of_0_is_acknowledged_and_over() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.subscribe("**", limit=0)
    client.subscribe("**")
    sources.send("a", 1)
    assert client.seen() == [*acks(1), ("unsubscribe-ack", 1), *acks(2), ("hub/fake/a/events", 2, 1)]


def test_a_pattern_joins_sources_that_appear_later_and_keeps_one_limit() -> None:
    sources = Sources(one={"topic": "hub/arm/1/state"})
    client = sources.client()
    client.subscribe("hub/arm/*/state", limit=4)
    sources.send("one", 1, 2)
    sources.source("two", topic="hub/arm/2/state")
    sources.source("leg", topic="hub/leg/1/state")
    sources.send("two", 3)
    sources.send("leg", 99)
    sources.send("one", 4, 5, 6)
    sources.send("two", 7)
    assert client.seen() == [
        *acks(1),
        ("hub/arm/1/state", 1, 1),
        ("hub/arm/1/state", 1, 2),
        ("hub/arm/2/state", 1, 3),
        ("hub/arm/1/state", 1, 4),
        ("unsubscribe-ack", 1),
    ]
    assert [hub.subscribers for hub in sources.hubs.values()] == [0, 0, 0]


def test_a_topic_that_does_not_exist_is_acknowledged_and_works_once_it_does() -> None:
    sources = Sources()
    client = sources.client()
    client.subscribe("hub/arm/1/state")
    assert client.seen() == acks(1)
    sources.source("arms", **ARMS)
    sources.send("arms", "up", "down", keys=["1", "2"])
    assert client.seen() == [("hub/arm/1/state", 1, "up")]


def test_a_source_that_is_altered_is_read_on_under_its_new_topics() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/1/state")
    client.subscribe("hub/**")
    client.seen()
    sources.hubs["arms"].removed(CloseReason.ALTERED, "the source was altered", 5)
    sources.source("arms", topic="hub/leg/{key}/state")
    sources.send("arms", "up", keys=["1"])
    assert client.seen() == [(500, "hub/arm/1/state", "the source was altered"), ("hub/leg/1/state", 2, "up")]


def test_filter_multiple_sends_one_event_for_all_topics() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client("filterMultiple=true")
    client.subscribe("hub/arm/1/state")
    client.subscribe("hub/arm/2/state")
    client.subscribe("hub/arm/**")
    client.subscribe("hub/arm/1/state")
    client.seen()
    sources.send("arms", "a", "b", keys=["1", "2"])
    assert client.seen() == [("hub/arm/1/state", [1, 3, 4], "a"), ("hub/arm/2/state", [2, 3], "b")]
    client.say(type="unsubscribe", subscriptionId=3)
    sources.send("arms", "c", "d", keys=["1", "3"])
    assert client.seen() == [("unsubscribe-ack", 3), ("hub/arm/1/state", [1, 4], "c")]


def test_data_and_topic_come_from_where_the_block_says() -> None:
    sources = Sources(a={"topic": "{value.t}", "data": "value.x.y[1]"})
    client = sources.client()
    client.subscribe("**")
    client.seen()
    sources.send("a", {"t": "h/i", "x": {"y": [0, {"z": 1}]}}, {"t": "h/i"}, {"x": 1}, {"t": "/"}, 5)
    assert client.seen() == [("h/i", 1, {"z": 1})]
    # One without data, one without a topic, two with one that is none.
    assert [subscription.delivery.decode_errors for subscription in client.open.values()] == [4]


def test_an_event_that_is_no_json_is_counted_and_left_out() -> None:
    sources = Sources(a={}, b={"data": "value.x"})
    client = sources.client()
    client.subscribe("**")
    client.seen()
    sources.raw("a", [b"1", b"{", b"\xff", None, b"[2]"])
    sources.raw("b", [b'{"x":1}', b"{", b"{}", None])
    a, b = "hub/fake/a/events", "hub/fake/b/events"
    assert client.seen() == [(a, 1, 1), (a, 1, None), (a, 1, [2]), (b, 1, 1)]
    assert [client.open[handle].delivery.decode_errors for handle in client.open] == [2, 3]


@pytest.mark.parametrize("query", ["", "?select * where data > 0"])
def test_an_event_that_is_no_json_ends_it_where_the_source_says_so(query: str) -> None:
    sources = Sources(a={}, b={})
    hub = sources.hubs["a"]
    hub.info = replace(hub.info, decode=Decode(close=True))
    client = sources.client()
    client.subscribe("hub/fake/a/events" + query)
    client.seen()
    (subscription,) = client.open.values()
    sources.raw("a", [b"1", b"{", b"2", b"["])
    event, (code, *_, message) = client.seen()
    assert event[1:] == (1, 1)
    assert (code, str(message).partition(": ")[2]) == (500, "partition 0, offset 1")
    assert subscription.delivery.decode_errors == 1
    sources.raw("a", [b"3"])
    assert client.seen() == []


def test_a_loss_is_told_with_its_count_at_most_once_a_second() -> None:
    sources = Sources(HubLimits(window_events=4), arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/**")
    client.seen()
    client.writer.take = lambda size: 0
    sources.send("arms", 0, keys=["1"])
    for number in range(10):
        sources.send("arms", number, keys=["1"])
    client.writer.take = lambda size: size
    client.writer.drain()
    heard = client.seen()
    errors = [item for item in heard if item[0] == 500]
    assert errors == [(500, "hub/arm/**", "7 events of its sources were lost")]
    assert [item[2] for item in heard if item[0] != 500] == [6, 7, 8, 9]

    client.writer.take = lambda size: 0
    for number in range(10):
        sources.send("arms", number, keys=["1"])
    client.writer.take = lambda size: size
    client.writer.drain()
    assert [item for item in client.seen() if item[0] == 500] == []
    client.pass_time(1.0)
    ((code, _, words),) = client.seen()
    assert (code, str(words)[2:]) == (500, "events of its sources were lost")
    client.pass_time(1.0)
    assert client.seen() == []
    assert client.reminders == []


def test_the_end_of_a_source_is_told_to_who_named_it() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.subscribe("hub/fake/a/events")
    client.subscribe("hub/**")
    client.seen()
    sources.hubs["a"].ended()
    assert client.seen() == [(500, "hub/fake/a/events", "the source has ended")]
    client.subscribe("hub/fake/a/events")
    assert client.seen() == [*acks(3), (500, "hub/fake/a/events", "the source has ended")]


def test_all_are_told_of_a_source_that_failed() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.subscribe("hub/fake/a/events")
    client.subscribe("hub/**")
    client.seen()
    sources.hubs["a"].failed("the broker refuses")
    assert client.seen() == [
        (500, "hub/fake/a/events", "the broker refuses"),
        (500, "hub/**", "the broker refuses"),
    ]


def test_a_source_that_the_client_may_not_read_does_not_exist_for_it() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.refusal = "unknown_source"
    client.subscribe("hub/fake/a/events")
    client.subscribe("**")
    client.subscribe("hub/query/")
    sources.send("a", 1)
    assert client.seen() == acks(1, 2, 3)
    assert client.reminders == []


def test_a_source_that_takes_long_to_start_is_told_once_and_tried_again() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.refusal = "failed"
    client.subscribe("hub/fake/a/events")
    client.subscribe("**")
    words = "it cannot be read"
    assert client.seen() == [
        *acks(1),
        (500, "hub/fake/a/events", words),
        *acks(2),
        (500, "**", words),
    ]
    client.pass_time(5)
    assert client.seen() == []
    client.refusal = ""
    client.pass_time(5)
    sources.send("a", 1)
    assert client.seen() == [("hub/fake/a/events", 1, 1), ("hub/fake/a/events", 2, 1)]
    client.pass_time(5)
    assert client.reminders == []


def test_who_loses_a_right_is_told_and_tries_again_in_silence() -> None:
    sources = Sources(a={})
    client = sources.client()
    client.subscribe("**")
    (subscription,) = client.open.values()
    client.refusal = "unknown_source"
    sources.hubs["a"].withdraw(subscription, "no longer")
    assert client.seen() == [*acks(1), (500, "**", "no longer")]
    client.pass_time(5)
    assert client.seen() == []
    assert client.reminders == []


def test_a_client_that_stalls_gets_the_rest_of_a_source_before_that_of_its_successor() -> None:
    sources = Sources(a={"topic": "hub/x"})
    client = sources.client()
    client.subscribe("hub/*", limit=4)
    client.seen()
    client.writer.take = lambda size: 0
    sources.send("a", 1, 2)
    sources.hubs["a"].removed(CloseReason.ALTERED, "the source was altered", 5)
    sources.source("a", topic="hub/y")
    sources.send("a", 3, 4, 5)
    client.writer.take = lambda size: size
    client.writer.drain()
    heard = client.seen()
    assert {item[2] for item in heard if item[0] in ("hub/x", "hub/y")} == {1, 2, 3, 4}
    assert len(heard) == 5 + sum(item[0] == 500 for item in heard)
    assert heard[-1] == ("unsubscribe-ack", 1)


def test_an_event_that_is_too_large_is_given_up_and_told() -> None:
    for topics in (("hub/fake/a/events",), ("hub/fake/a/events", "hub/**")):
        sources = Sources(a={})
        sources.dialect = ZettaDialect("hub", 200, wall=lambda: NOW, clock=sources.clock)
        client = sources.client()
        for topic in topics:
            client.subscribe(topic)
        client.seen()
        sources.send("a", 1, "x" * 200, 2)
        heard = client.seen()
        assert [item[2] for item in heard if item[1] == 1] == [1, 2]
        assert [item for item in heard if item[0] == 500] == [
            (500, topic, "1 event of its sources was lost") for topic in topics
        ]
