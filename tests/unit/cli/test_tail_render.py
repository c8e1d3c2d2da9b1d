import base64

import msgspec
import pytest

from kiwi_gw.cli.tail import render
from kiwi_gw.client.address import parse_address
from kiwi_gw.client.watch import NotResumed, SubscriptionOpened
from kiwi_gw.dialects.kiwi.messages import (
    Error,
    Lag,
    QueryHint,
    Subscribed,
    SubscriptionClosed,
    TokenExpiring,
)


def kafka(**data: object) -> dict[str, object]:
    value = data.get("value", "hello")
    payload = base64.b64encode(value.encode()).decode() if isinstance(value, str) else None
    return {
        "sourceId": "s",
        "sourceType": "kafka",
        "key": "k",
        "value": value,
        "payload": payload,
        "partition": 2,
        "offset": 17,
        "timestamp": 1357017300123,
    } | data


def test_a_kafka_event_for_people() -> None:
    assert render.EventLines()(kafka()) == "2013-01-01 05:15:00.123Z  2:17  k  hello"


def test_a_row_of_a_batch_for_people() -> None:
    row = {
        "sourceId": "s",
        "batch": 4,
        "row": 2,
        "timestamp": 1357017300123,
        "key": {"m": "x"},
        "value": {"n": 1},
    }
    assert render.EventLines()(row) == '2013-01-01 05:15:00.123Z  4:2  {"m":"x"}  {"n":1}'
    assert render.EventLines()(row | {"key": None}).endswith('  4:2  -  {"n":1}')
    assert render.EventLines()({"batch": 4, "n": 1}) == '{"batch":4,"n":1}'


def test_columns_grow_but_not_with_one_huge_key() -> None:
    lines = render.EventLines()
    assert lines(kafka(key="k" * 100)).endswith(f"2:17  {'k' * 100}  hello")
    assert lines(kafka(key="ab", offset=7)) == f"2013-01-01 05:15:00.123Z  2:7   {'ab':24}  hello"


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (kafka(key=None), "  -  hello"),
        (kafka(value=None), "  k  (tombstone)"),
        (kafka(value=None, payload="/w=="), "  k  base64:/w=="),
        (kafka(value=None, payload="aGk="), "  k  hi"),
        (kafka(key=None, keyBase64="/w=="), "  base64:/w==  hello"),
        (kafka(value='{"a": 1}'), '  k  {"a": 1}'),
        (kafka(value="\x1b[2J\n\u202ex"), "  k  \\x1b[2J\\n\\u202ex"),
        ({"partition": 0, "offset": 1, "value": "v"}, "-  0:1  -  v"),
        ({"partition": 0, "offset": 1, "key": "v"}, "-  0:1  v  -"),
        (kafka(value={"a": [1, "\x9b"]}), '  k  {"a":[1,"\\u009b"]}'),
    ],
)
def test_what_an_event_may_lack_or_hold(data: dict[str, object], end: str) -> None:
    assert render.EventLines()(data).endswith(end)


@pytest.mark.parametrize(("timestamp", "shown"), [(None, "-"), (10**18, str(10**18)), (True, "-")])
def test_odd_times(timestamp: object, shown: str) -> None:
    assert render.EventLines()(kafka(timestamp=timestamp)).startswith(f"{shown}  2:17")


def test_other_events_are_compact_json() -> None:
    assert render.EventLines()({"sourceId": "s", "sourceType": "counter", "count": 5}) == '{"count":5}'
    assert render.EventLines()({"sourceId": "s"}) == '{"sourceId":"s"}'
    assert render.EventLines()({"text": "\x1b]0;x\x07\x9b"}) == '{"text":"\\u001b]0;x\\u0007\\u009b"}'


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ({"payload": "AP8=", "value": None}, b"\x00\xff"),
        ({"payload": None, "value": None}, b""),
        ({"value": "text"}, b"text"),
        ({"count": 7, "sourceId": "s"}, b"7"),
        ({"x": 1}, b'{"x":1}'),
        ({"payload": "not base64!"}, b"not base64!"),
    ],
)
def test_bare_values(data: dict[str, object], value: bytes) -> None:
    assert render.raw(data) == value


def test_lag_in_a_line() -> None:
    def say(verbose: bool = False, **data: object) -> str:
        return render.say_notice(msgspec.convert({"type": "LAG", "sourceId": "s", **data}, Lag), verbose)

    assert say(count=5) == "lag: 5 events behind"
    assert say(count=5, dropped=0) == "lag: 5 events behind"
    assert say(count=5, dropped=2) == "lag: 5 events behind, 2 of them given up"
    assert (
        say(count=5, dropped=None) == "lag: 5 events behind, what came meanwhile, if anything, is not known"
    )
    assert say(verbose=True, count=5, dropped=2, ranges={"0": [1, 2]}).endswith('{"0":[1,2]}')


def test_a_subscription_in_a_line() -> None:
    def say(subscribed: SubscriptionOpened, verbose: bool = False) -> str:
        return render.say_subscribed(subscribed, "flights", "pull", verbose)

    address = parse_address("gw.example")
    plain = "connected to ws://gw.example:8000/, pull subscription to flights"
    begun = SubscriptionOpened(address, Subscribed("flights", positions={"0": 3}))
    assert say(begun) == plain
    assert say(begun, verbose=True) == f'{plain} from {{"0":3}}'
    resumed = SubscriptionOpened(address, Subscribed("flights"), {"0": 3})
    assert say(resumed) == f"{plain}, resumed where it was"
    assert say(resumed, verbose=True) == f'{plain}, resumed where it was at {{"0":3}}'
    repeating = SubscriptionOpened(address, Subscribed("flights"), {"0": 3}, 7)
    assert say(repeating) == f"{plain}, resumed where it was (up to 7 events come again)"
    assert render.say_not_resumed(NotResumed("it is gone")) == (
        "cannot resume: it is gone; going on with what comes now"
    )


def test_a_close_in_a_line() -> None:
    closed = SubscriptionClosed("s", "it is over", "ended", {"0": 3})
    assert render.say_notice(closed, verbose=False) == "subscription closed: it is over (ended)"
    assert render.say_notice(closed, verbose=True).endswith('(ended) at {"0":3}')
    assert render.say_notice(SubscriptionClosed("s", "m"), verbose=True) == "subscription closed: m"


def test_other_notices_in_a_line() -> None:
    assert render.say_notice(QueryHint("s", "no event has x"), verbose=False) == "no event has x"
    assert render.say_notice(Error("no such type", None), verbose=False) == "no such type"
    assert render.say_notice(TokenExpiring(60_000), verbose=False) == "the token expires in 60.0 s"


def test_the_value_of_a_projection() -> None:
    data = kafka(value={"a": 1, "b": "é"})
    del data["payload"]
    assert render.raw(data) == '{"a":1,"b":"é"}'.encode()
    assert render.EventLines()(data).endswith('  k  {"a":1,"b":"é"}')
