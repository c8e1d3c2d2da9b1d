import json

import pytest

from kiwi_gw.client import messages
from kiwi_gw.client.messages import (
    Draining,
    Event,
    Lag,
    NotKiwi,
    Response,
    Standing,
    SubscriptionClosed,
    Trouble,
    Unknown,
)


def parse(value: object) -> messages.Message:
    return messages.parse(json.dumps(value))


def test_what_it_sends() -> None:
    assert json.loads(messages.subscribe('a"b', "pull")) == {
        "type": "SUBSCRIBE",
        "sourceId": 'a"b',
        "mode": "pull",
    }
    assert json.loads(messages.subscribe("s", "push", **{"from": {"timestamp": 5}, "onMissing": None})) == {
        "type": "SUBSCRIBE",
        "sourceId": "s",
        "mode": "push",
        "from": {"timestamp": 5},
    }
    assert json.loads(messages.request("s", 7)) == {"type": "REQUEST", "sourceId": "s", "n": 7}


def test_every_message_of_the_document() -> None:
    data = {"sourceId": "s"}
    assert parse({"type": "SUBSCRIBE_OK", "data": data}) == Response("SUBSCRIBE", data)
    assert parse({"type": "UNSUBSCRIBE_OK", "data": data}) == Response("UNSUBSCRIBE", data)
    assert parse({"type": "REQUEST_OK", "data": {"n": 1}}) == Response("REQUEST", {"n": 1})
    refused = {"sourceId": "s", "error": "no"}
    assert parse({"type": "SUBSCRIBE_ERROR", "data": refused}) == Response("SUBSCRIBE", refused, "no")
    assert parse({"type": "REQUEST_ERROR", "data": refused}) == Response("REQUEST", refused, "no")
    frame = '{"type":"RESULT","data":{"count":1}}'
    assert messages.parse(frame) == Event(frame, {"count": 1})
    lag = parse({"type": "NOTICE", "data": {"type": "LAG", "count": 3}})
    assert isinstance(lag, Lag)
    assert lag.data["count"] == 3
    closed = parse({"type": "NOTICE", "data": {"type": "SUBSCRIPTION_CLOSED", "message": "over"}})
    assert isinstance(closed, SubscriptionClosed)
    assert (closed.message, closed.reason) == ("over", "")


def test_our_further_messages() -> None:
    closed = parse(
        {"type": "NOTICE", "data": {"type": "SUBSCRIPTION_CLOSED", "message": "m", "reason": "ended"}}
    )
    assert isinstance(closed, SubscriptionClosed)
    assert closed.reason == "ended"
    assert parse({"type": "NOTICE", "data": {"type": "POSITIONS", "positions": {"0": 1}}}) == Standing(
        {"type": "POSITIONS", "positions": {"0": 1}}
    )
    degraded = parse({"type": "NOTICE", "data": {"type": "SOURCE_DEGRADED", "message": "no broker"}})
    restored = parse({"type": "NOTICE", "data": {"type": "SOURCE_RESTORED"}})
    assert isinstance(degraded, Trouble)
    assert isinstance(restored, Trouble)
    assert (degraded.message, restored.message) == ("no broker", "")
    draining = parse({"type": "NOTICE", "data": {"type": "DRAINING", "retryAfterMs": 1500}})
    assert isinstance(draining, Draining)
    assert draining.retry_after == 1.5


@pytest.mark.parametrize("after", [None, "soon", True, -1])
def test_a_draining_notice_without_a_usable_time(after: object) -> None:
    draining = parse({"type": "NOTICE", "data": {"type": "DRAINING", "retryAfterMs": after}})
    assert isinstance(draining, Draining)
    assert draining.retry_after == 0


def test_the_original_servers_envelope() -> None:
    ok = parse({"type": "COMMAND_RESPONSE", "data": {"type": "SUBSCRIBE_OK", "sourceId": "s"}})
    assert isinstance(ok, Response)
    assert (ok.command, ok.error) == ("SUBSCRIBE", None)
    refused = parse({"type": "COMMAND_RESPONSE", "data": {"type": "REQUEST_ERROR", "error": "no"}})
    assert isinstance(refused, Response)
    assert (refused.command, refused.error) == ("REQUEST", "no")


def test_what_a_newer_server_says_is_kept_apart() -> None:
    assert parse({"type": "NEWS", "data": {}}) == Unknown("NEWS", {})
    assert isinstance(parse({"type": "NOTICE", "data": {"type": "NEWS"}}), Unknown)


@pytest.mark.parametrize(
    "frame", ["", "hello", "[1]", '{"type":"RESULT"}', '{"data":{}}', b"\x00", "[" * 100_000]
)
def test_something_else_is_not_kiwi(frame: str | bytes) -> None:
    with pytest.raises(NotKiwi, match="not the Kiwi protocol"):
        messages.parse(frame)
