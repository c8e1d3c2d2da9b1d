import json

import pytest
from msgspec import UNSET

from kiwi_gw.client import messages
from kiwi_gw.client.messages import Event, MalformedMessage, Noticed, UnknownMessage
from kiwi_gw.dialects.kiwi.messages import (
    CommandResponse,
    CurrentPositions,
    Draining,
    Granted,
    Lag,
    OriginalResponse,
    Refused,
    Request,
    RequestError,
    RequestOk,
    SourceDegraded,
    SourceRestored,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscribeError,
    SubscribeOk,
    SubscriptionClosed,
    Unsubscribed,
    UnsubscribeOk,
)
from kiwi_gw.model import Mode


def parse(value: object) -> messages.Message:
    return messages.parse(json.dumps(value))


def notice(kind: str, **data: object) -> object:
    """What the client makes of a notice."""
    found = parse({"type": "NOTICE", "data": {"type": kind, **data}})
    return found.data if isinstance(found, Noticed) else found


def test_what_it_sends() -> None:
    assert json.loads(messages.encode(Subscribe('a"b', Mode.PULL))) == {
        "type": "SUBSCRIBE",
        "sourceId": 'a"b',
        "mode": "pull",
    }
    assert json.loads(messages.encode(Subscribe("s", start=StartPoint(timestamp=5)))) == {
        "type": "SUBSCRIBE",
        "sourceId": "s",
        "mode": "push",
        "from": {"timestamp": 5},
    }
    assert json.loads(messages.encode(Request("s", 7))) == {"type": "REQUEST", "sourceId": "s", "n": 7}


def test_every_message_of_the_document() -> None:
    data = {"sourceId": "s"}
    assert parse({"type": "SUBSCRIBE_OK", "data": data}) == SubscribeOk(Subscribed("s"))
    assert parse({"type": "UNSUBSCRIBE_OK", "data": data}) == UnsubscribeOk(Unsubscribed("s"))
    assert parse({"type": "REQUEST_OK", "data": {**data, "n": 1}}) == RequestOk(Granted("s", 1))
    refused = {"sourceId": "s", "error": "no"}
    assert parse({"type": "SUBSCRIBE_ERROR", "data": refused}) == SubscribeError(Refused("s", "no"))
    assert parse({"type": "REQUEST_ERROR", "data": refused}) == RequestError(Refused("s", "no"))
    frame = '{"type":"RESULT","data":{"count":1}}'
    assert messages.parse(frame) == Event(frame, {"count": 1})
    assert notice("LAG", sourceId="s", count=3) == Lag("s", 3)
    closed = notice("SUBSCRIPTION_CLOSED", sourceId="s", message="over")
    assert closed == SubscriptionClosed("s", "over", UNSET)


def test_our_further_messages() -> None:
    closed = notice("SUBSCRIPTION_CLOSED", sourceId="s", message="m", reason="ended")
    assert closed == SubscriptionClosed("s", "m", "ended")
    assert notice("POSITIONS", sourceId="s", positions={"0": 1}) == CurrentPositions("s", {"0": 1})
    assert notice("SOURCE_DEGRADED", sourceId="s", message="no broker") == SourceDegraded("s", "no broker")
    assert notice("SOURCE_RESTORED", sourceId="s") == SourceRestored("s")
    assert notice("DRAINING", retryAfterMs=1500) == Draining(1500)


@pytest.mark.parametrize("after", [None, "soon", True, -1])
def test_a_draining_notice_without_a_usable_time(after: object) -> None:
    assert notice("DRAINING", retryAfterMs=after) == Draining(0)


def test_a_member_that_is_not_as_it_must_be_counts_as_absent() -> None:
    lag = notice("LAG", sourceId="s", count=3, behind="many", dropped=[], positions=7)
    assert lag == Lag("s", 3)
    assert isinstance(notice("LAG", sourceId="s", count="three"), UnknownMessage)


def test_the_original_servers_envelope() -> None:
    def original(**data: object) -> messages.Message:
        return parse({"type": "COMMAND_RESPONSE", "data": {"sourceId": "s", **data}})

    assert original(type="SUBSCRIBE_OK") == SubscribeOk(Subscribed("s"))
    assert original(type="SUBSCRIBE_ERROR", error="no") == SubscribeError(Refused("s", "no"))
    assert original(type="REQUEST_ERROR", error="no") == RequestError(Refused("s", "no"))
    granted = original(type="REQUEST_OK", requests=5)
    assert granted == CommandResponse(OriginalResponse("REQUEST_OK", "s", 5))


def test_what_a_newer_server_says_is_kept_apart() -> None:
    assert parse({"type": "NEWS", "data": {}}) == UnknownMessage("NEWS", {})
    assert isinstance(notice("NEWS"), UnknownMessage)


@pytest.mark.parametrize(
    "frame", ["", "hello", "[1]", '{"type":"RESULT"}', '{"data":{}}', b"\x00", "[" * 100_000]
)
def test_something_else_is_not_kiwi(frame: str | bytes) -> None:
    with pytest.raises(MalformedMessage, match="not the Kiwi protocol"):
        messages.parse(frame)
