"""Queries of topics, and queries for devices, over real feeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from kiwi_gw.core.commands import Open
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Lagged, OpenFailed, Unanswered
from kiwi_gw.dialects.zetta import events, topic_plan_cache
from kiwi_gw.dialects.zetta.devices import SeenDevices, devices_wire
from kiwi_gw.dialects.zetta.topic_filters import filter_of, parse_topic
from kiwi_gw.dialects.zetta.topics import TopicPattern
from kiwi_gw.model import Batch, StartAt, TimeSlice, WireFormat, at_once
from tests.unit.dialects.zetta.bench import Sources
from tests.unit.dialects.zetta.test_session import ARMS, acks


def test_a_query_decides_which_events_come_and_what_of_them() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    for query in (
        "where data.c > 20",
        "select data.c, data.nest.a where data.c >= 20",
        'select * where topic like "/1/"',
        "select data",
        "where data.c > 1",
        "select data.none",
    ):
        client.subscribe(f"hub/arm/*/state?{query}")
    client.subscribe("hub/arm/1/state?")
    assert client.seen() == acks(1, 2, 3, 4, 5, 6, 7)
    cold, warm = {"c": 20, "nest": {"a": [2]}}, {"c": 21.5}
    sources.send("arms", cold, warm, keys=["1", "2"])
    one, two = "hub/arm/1/state", "hub/arm/2/state"
    assert client.seen() == [
        (one, 2, cold),
        (one, 3, cold),
        (one, 4, cold),
        (one, 5, cold),
        (one, 6, {}),
        (one, 7, cold),
        (two, 1, warm),
        (two, 2, warm),
        (two, 4, warm),
        (two, 5, warm),
        (two, 6, {}),
    ]


def test_a_limit_counts_what_the_query_leaves() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/*/state?where data > 2", limit=2)
    sources.send("arms", 1, 3, 2, 4, 5, keys=["1"] * 5)
    assert client.seen() == [
        *acks(1),
        ("hub/arm/1/state", 1, 3),
        ("hub/arm/1/state", 1, 4),
        ("unsubscribe-ack", 1),
    ]


def test_with_filter_multiple_a_query_has_an_event_of_its_own() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client("filterMultiple=1")
    client.subscribe("hub/arm/1/state?where data > 2")
    client.subscribe("hub/arm/1/state")
    client.subscribe("hub/arm/*/state?where data > 2")
    client.subscribe("hub/arm/*/state")
    client.seen()
    sources.send("arms", 3, 1, keys=["1", "1"])
    one = "hub/arm/1/state"
    assert client.seen() == [(one, [1], 3), (one, [2, 4], 3), (one, [3], 3), (one, [2, 4], 1)]


def test_a_query_that_is_none_is_an_error_with_its_place_and_uses_up_no_id() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    for query in ("where data >", "select", "where data = 'a'", 'where data like "("', "where x = 1"):
        client.subscribe(f"hub/arm/1/state?{query}")
        ((code, topic, words),) = client.seen()
        assert (code, topic) == (400, f"hub/arm/1/state?{query}")
        assert "at character" in str(words)
    client.subscribe("**")
    assert client.seen() == acks(1)


def test_a_query_for_devices_tells_of_each_once() -> None:
    sources = Sources(HubLimits(last_values=True), arms={**ARMS, "name": "value.n", "state": "value.s"})
    sources.send("arms", {"n": "left", "s": "up"}, {"s": "down"}, {"s": "x"}, keys=["1", "2", "1"])
    client = sources.client()
    topic = 'hub/query/where type = "arm" and state != "down"'
    client.subscribe(topic)
    assert client.seen() == [*acks(1), (topic, 1, {"id": "1", "type": "arm", "state": "x"})]
    sources.send("arms", {"s": "up"}, {"s": "up"}, {"s": "y"}, keys=["3", "1", "4"])
    sources.send("arms", {"s": "up"}, {"s": "up"}, {"s": "y"}, keys=["3", "2", "5"])
    assert client.seen() == [
        (topic, 1, {"id": "3", "type": "arm", "state": "up"}),
        (topic, 1, {"id": "4", "type": "arm", "state": "y"}),
        (topic, 1, {"id": "5", "type": "arm", "state": "y"}),
    ]


def test_queries_for_devices_without_conditions_with_columns_and_with_limits() -> None:
    sources = Sources(arms=ARMS, legs={"topic": "hob/leg/{key}/state"}, flat={"topic": "hub/flat"})
    client = sources.client("filterMultiple=true")
    client.subscribe("hub/query/")
    client.subscribe("*/query/select id", limit=3)
    client.subscribe("nowhere/query/")
    client.seen()
    for name in ("arms", "legs", "flat"):
        sources.send(name, 0, 0, keys=["1", "2"])
    events = client.seen()
    assert [item for item in events if item[1] == [1]] == [
        ("hub/query/", [1], {"id": "1", "type": "arm"}),
        ("hub/query/", [1], {"id": "2", "type": "arm"}),
    ]
    assert [item for item in events if item[1] != [1]] == [
        ("*/query/select id", [2], {"id": "1"}),
        ("*/query/select id", [2], {"id": "2"}),
        ("*/query/select id", [2], {"id": "1"}),
        ("unsubscribe-ack", 2),
    ]
    client.say(type="unsubscribe", subscriptionId=1)
    client.say(type="unsubscribe", subscriptionId=3)
    assert [hub.subscribers for hub in sources.hubs.values()] == [0, 0, 0]


def test_a_connection_has_few_queries_for_devices() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    for _ in range(5):
        client.subscribe("hub/query/")
    assert client.seen()[-1] == (
        400,
        "hub/query/",
        "a connection can have at most 4 queries for devices",
    )


def test_devices_come_with_sources_that_appear() -> None:
    sources = Sources()
    client = sources.client()
    client.subscribe("hub/query/")
    sources.source("arms", **ARMS)
    sources.send("arms", 0, keys=["1"])
    assert client.seen()[1:] == [("hub/query/", 1, {"id": "1", "type": "arm"})]


def test_what_one_batch_may_become_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_BATCH_BYTES", 3_000)
    sources = Sources(arms=ARMS)
    client = sources.client()
    for _ in range(3):
        client.subscribe(f"hub/arm/*/state?select {','.join(f'data as a{n}' for n in range(5))}")
    client.seen()
    sources.send("arms", *["x" * 40] * 10, keys=["1"] * 10)
    found = client.seen()
    assert [message[1] for message in found[:6]] == [1, 2, 3, 1, 2, 3]
    told = [message for message in found if message[0] == 500]
    assert told  # what did not fit is a loss, and losses are told


def test_plans_of_many_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_plan_cache, "MOST_PLAN_BYTES", 5_000)
    sources = Sources(arms=ARMS)
    stream = sources.dialect.stream(sources.hubs["arms"].info)
    members = [events.StreamMember(number, filter_of(parse_topic("hub/**"))) for number in (1, 2, 3)]
    made = events._Events(stream, tuple(members), multiple=False, max_event_bytes=1_000)

    def plan(number: int) -> tuple[object, ...]:
        return at_once(made._plan(f"hub/arm/{number}/state", TimeSlice()))

    for number in range(100):
        assert len(plan(number)) == 3
        assert plan(number) is plan(number)
        assert events._plan_cache._of[id(made._plans)][1] < 7_000
    assert len(made._plans) < 10


def test_plans_of_many_formats_are_forgotten_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_plan_cache, "MOST_BYTES", 50_000)
    monkeypatch.setattr(events, "_plan_cache", topic_plan_cache.TopicPlanCache())
    sources = Sources(arms=ARMS)
    keys = [str(number) for number in range(20)]
    often = sources.client()
    often.subscribe("hub/arm/1*/state")
    clients = [sources.client() for _ in range(20)]
    for number, client in enumerate(clients):
        client.subscribe(f"hub/arm/*{number}/state")
        client.seen()
        sources.send("arms", *range(20), keys=keys)
        assert events._plan_cache.bytes <= 50_000
    formats = [group.wire.format.encode for group in sources.hubs["arms"].groups]
    tables = [each._plans for each in formats if isinstance(each, events._Events)]
    assert len(tables) == 21
    assert 0 < sum(1 for table in tables if table) < 21, "some are forgotten"
    assert len(often.seen()) == 1 + 11 * 20
    assert clients[0].seen()[-2:] == [("hub/arm/0/state", 1, 0), ("hub/arm/10/state", 1, 10)]


def wire_of(topics: list[str], limited: bool, multiple: bool = False) -> WireFormat:
    sources = Sources(arms=ARMS)
    stream = sources.dialect.stream(sources.hubs["arms"].info)
    members = [
        events.StreamMember(number, filter_of(parse_topic(topic)), limited)
        for number, topic in enumerate(topics, 1)
    ]
    return events.events_wire(stream, members, multiple=multiple, max_event_bytes=1_000_000)


def batch_of(keys: list[str | None]) -> Batch:
    length = len(keys)
    columns: dict[str, Sequence[object]] = {
        "key": [key and key.encode() for key in keys],
        "value": [b"%d" % number for number in range(length)],
        "timestamp": [1] * length,
    }
    return Batch({0: 0}, [0] * length, range(length), columns, 100 * length)


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("limited", [False, True])
def test_patterns_without_a_query_give_way_behind_each_topic_and_few_events(
    limited: bool, multiple: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if no plan is kept, each pattern is asked once for each event, and one at a time."""
    monkeypatch.setattr(topic_plan_cache, "MOST_PLAN_BYTES", 0)
    asked: list[str] = []
    matches = TopicPattern.matches

    def counting(self: TopicPattern, concrete: str) -> bool:
        asked.append(concrete)
        return matches(self, concrete)

    monkeypatch.setattr(TopicPattern, "matches", counting)
    topics = [f"hub/arm/{{^[0-9]*{number}$}}/state" for number in range(10)] + ["hub/arm/*/state"] * 10
    keys = [str(number) if number % 7 else None for number in range(60)]
    made, batch = wire_of(topics, limited, multiple), batch_of(keys)
    assert made.steps is not None
    steps = made.steps(batch, TimeSlice(0.0, lambda: 1.0))  # over whenever somebody looks
    asked.clear()
    slices = before = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found = done.value
            break
        slices += 1
        assert len(asked) - before <= 1
        before = len(asked)
    there = [key for key in keys if key is not None]
    assert len(asked) == len(topics) * len(there)
    assert slices == len(asked) + len(keys) // 16 + 1 + (len(topics) if limited else 0)
    assert found == made.encode(batch)
    wanted = [
        sum(number >= 10 or key.endswith(str(number)) for key in there) for number in range(len(topics))
    ]
    assert [prefix_counts[-1] for prefix_counts in found.prefix_counts_by_label.values()] == (
        wanted if limited else []
    )


def test_an_event_in_large_frames_gives_way_at_once() -> None:
    made, batch = wire_of(["hub/arm/*/state"] * 50, False), batch_of(["1"] * 40)
    assert made.steps is not None
    steps = made.steps(batch, TimeSlice(0.0, lambda: 1.0))
    assert len(list(steps)) == 50 + 40


def test_one_topic_in_one_frame_is_no_work_of_a_client() -> None:
    sources = Sources(flat={"topic": "hub/flat"}, arms=ARMS)

    def steps(name: str, *topics: str) -> object:
        stream = sources.dialect.stream(sources.hubs[name].info)
        members = [
            events.StreamMember(number, filter_of(parse_topic(topic))) for number, topic in enumerate(topics)
        ]
        return events.events_wire(stream, members, multiple=False, max_event_bytes=1_000).steps

    assert steps("flat", "hub/flat") is None
    for topics in (["hub/flat", "hub/*"], ["hub/flat?where data > 1"]):
        assert steps("flat", *topics) is not None
    assert steps("arms", "hub/arm/1/state") is not None


def test_a_query_for_devices_without_the_right_to_replay_begins_with_what_comes() -> None:
    client = Sources(HubLimits(last_values=True), arms=ARMS).client()
    asked: list[Open] = []

    def refuse(command: Open) -> None:
        asked.append(command)
        client.carry_out(client.session.notice(OpenFailed(command.handle, "forbidden", "no")))

    client._open = refuse  # type: ignore[method-assign]
    client.subscribe('hub/query/where type = "arm"')
    assert [command.start for command in asked] == [StartAt.SNAPSHOT, StartAt.LATEST]


@pytest.mark.parametrize(
    ("source", "decoded"),
    [
        ({"topic": "hub/arm/{value.id}/state"}, 20),
        ({"topic": "hub/arm/{key}/state", "name": "value.name"}, 20),
        ({"topic": "hub/arm/{key}/state"}, 0),
        ({"topic": "hub/arm", "name": "value.name"}, 0),
    ],
)
def test_a_query_for_devices_has_no_more_decoded_than_it_needs_and_in_turns(
    source: dict[str, str], decoded: int
) -> None:
    sources = Sources(arms=source)
    stream = sources.dialect.stream(sources.hubs["arms"].info)
    devices = SeenDevices(b'"hub/query/"', 1, False, filter_of(parse_topic('hub/query/where type = "arm"')))
    value = b'{"id": %d, "name": "x", "more": "' + b"x" * 10_000 + b'"}'
    columns = {"key": [b"%d" % n for n in range(20)], "value": [value % n for n in range(20)]}
    batch = Batch({0: 0}, [0] * 20, range(20), columns, 200_000)
    steps, view = devices_wire(devices, stream, 1, 1_000_000).steps, stream.view(batch)
    assert steps is not None
    done = steps(batch, TimeSlice(0.0, lambda: 1.0))
    there = [0, *(len(view._columns.get("value", view._decoded.get("value", []))) for _ in done)]
    assert max(after - before for before, after in pairwise(there)) <= 4, "32 KiB at a time"
    assert there[-1] == decoded
    assert len(there) > 20 or not devices.first_seen, "and one device at a time"


def test_a_query_that_the_worker_does_not_manage_is_refused_and_remembered() -> None:
    text = "hub/**?where data.of_the_worker > 1"
    for unanswered in (Unanswered.TOO_LONG, Unanswered.FATAL):
        with pytest.raises(ValueError, match="too much time or memory"):
            filter_of(parse_topic(f"{text} and data.{unanswered.value}"), unanswered)
        with pytest.raises(ValueError, match="too much time or memory"):
            parse_topic(f"{text} and data.{unanswered.value}")


def test_where_a_source_does_not_know_what_it_lost_that_is_said() -> None:
    sources = Sources(arms=ARMS)
    client = sources.client()
    client.subscribe("hub/arm/**")
    (handle,) = client.open
    info = sources.hubs["arms"].info
    client.seen()
    said = []
    for dropped in (3, None):
        client.carry_out(client.session.notice(Lagged(handle, info, 0, dropped, 0, {}, {})))
        said += client.seen()
    for dropped in (None, 5, None):
        client.carry_out(client.session.notice(Lagged(handle, info, 0, dropped, 0, {}, {})))
    client.pass_time(1.0)
    assert [*said, *client.seen()] == [
        (500, "hub/arm/**", "3 events of its sources were lost"),
        (500, "hub/arm/**", "more than 5 events were lost"),
    ]
    client.pass_time(1.0)
    client.carry_out(client.session.notice(Lagged(handle, info, 0, None, 0, {}, {})))
    assert client.seen() == [(500, "hub/arm/**", "events were lost, nobody knows how many")]
