"""No message of a client, and no event of a source, ends a connection, or makes anything but whole frames."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialect_api.limits import SessionLimits
from tests.effort import examples
from tests.unit.dialects.frames import anything, frames
from tests.unit.dialects.zetta.bench import Sources

UNLIMITED = SessionLimits(commands_per_second=0)

levels = st.sampled_from(
    ["hub", "arm", "1", "2", "*", "**", "{.}", "a*", "[12]", "query", "state", "", "{", "?"]
)
queries = st.sampled_from(
    ["", "?", "?where data > 1", "?select data.x", '?where data like "a"', "?where", "?select *", "?x"]
)
topics = st.builds(lambda parts, query: "/".join(parts) + query, st.lists(levels, max_size=5), queries)
values = anything()
members = {
    "type": st.sampled_from(["subscribe", "unsubscribe", "ping", "pong", "", "event"]) | values,
    "topic": topics | values,
    "subscriptionId": st.integers(-1, 6) | values,
    "limit": st.integers(-1, 3) | values,
    "data": values,
}
requests = st.fixed_dictionaries({}, optional=members)
likely = st.fixed_dictionaries(
    {"type": st.sampled_from(["subscribe", "subscribe", "unsubscribe", "ping"])},
    optional={
        "topic": topics,
        "subscriptionId": st.integers(0, 6),
        "limit": st.integers(0, 3),
        "data": values,
    },
)
messages = frames(likely.map(json.dumps) | requests.map(json.dumps), values)
data = values | st.sampled_from([1, 2, {"x": 1}, "a", {"t": "hub/arm/1/state"}])
events = st.lists(
    st.tuples(st.sampled_from(["arms", "free"]), st.sampled_from([None, "1", "2"]), data), max_size=3
)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(["", "filterMultiple=true"]), st.lists(messages | events, max_size=14))
def test_a_connection_stays_open_and_gets_whole_messages(query: str, steps: list[Any]) -> None:
    sources = Sources(arms={"topic": "hub/arm/{key}/state"}, free={"topic": "{value.t}", "data": "value.x"})
    client = sources.client(query, UNLIMITED)
    live: set[int] = set()
    for step in steps:
        if isinstance(step, str | bytes):
            client.raw(step)
        else:
            for source, key, value in step:
                sources.raw(source, [json.dumps(value).encode()], [key])
        answers = client.hear()
        for answer in answers:
            match answer["type"]:
                case "subscribe-ack":
                    assert answer["subscriptionId"] not in live
                    live.add(answer["subscriptionId"])
                case "unsubscribe-ack":
                    live.remove(answer["subscriptionId"])
                case "event":
                    ids = answer["subscriptionId"]
                    assert live.issuperset(ids if query else [ids])
                case "error":
                    assert answer["code"] in (400, 405)
        if isinstance(step, str | bytes):
            assert answers, "every message has an answer"
    assert client.hung_up is None
    client.raw('{"type":"ping","data":"still here"}')
    assert client.hear()[-1]["data"] == "still here"


@pytest.mark.parametrize(
    "message",
    [
        "[" * 50_000,
        '{"type":"ping","data":' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"type":' * 20_000 + "1" + "}" * 20_000,
        '{"type":"unsubscribe","subscriptionId":' + "9" * 60_000 + "}",
        '{"type":"subscribe","topic":"a/b","limit":' + "9" * 60_000 + "}",
        '{"type":"subscribe","topic":"a/b?where ' + "(" * 8_000 + '"}',
        '{"type":"subscribe","topic":"a/b?where ' + "not " * 1_000 + 'data"}',
        '{"type":"subscribe","topic":"' + "**/" * 1_300 + 'a"}',
        '{"type":"subscribe","topic":"a/{' + "(a{1,9}){1,9}" * 200 + '}"}',
        '{"type":"subscribe","topic":"' + "x" * 60_000 + '"}',
        '{"type":"publish","topic":"' + "x" * 60_000 + '"}',
        '{"type":"\\ud800","topic":"\\udfff"}',
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf{}",
    ],
    ids=range(14),
)
def test_what_is_beyond_all_bounds_is_an_error_of_its_own(message: str | bytes) -> None:
    client = Sources().client()
    client.raw(message)
    (answer,) = client.hear()
    assert answer["type"] == "error"
    assert len(json.dumps(answer)) < 10_000
    assert client.hung_up is None
