"""What the demo's watchers show and count."""

from __future__ import annotations

import json

import trio
import trio.testing

from kiwi_demo.viewer import SHOWN, Viewer, in_words
from kiwi_gw.client.address import parse_address
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.client.watch import CreditsGranted, Reconnecting, SubscriptionOpened, WatchPlan
from kiwi_gw.dialects.kiwi.messages import Lag, Subscribed

FLIGHT = {
    "carrier": "UA",
    "flight": 1545,
    "origin": "EWR",
    "dest": "IAH",
    "dep_delay": 2,
    "sched_dep": "2013-01-01T10:15:00Z",
}


def result(**changes: object) -> dict[str, object]:
    value = json.dumps(FLIGHT | changes)
    return {"sourceId": "flights", "key": "UA", "value": value, "partition": 3, "offset": 7}


def test_a_flight_in_words() -> None:
    words = in_words(result())
    assert words == "UA 1545  EWR to IAH, due 2013-01-01T10:15:00Z, left +2 min   (partition 3, offset 7)"
    assert "left -4 min" in in_words(result(dep_delay=-4))
    assert "cancelled" in in_words(result(dep_delay=None))


def test_a_row_of_spark_in_words() -> None:
    value = FLIGHT | {"sched_dep": "2013-01-01T10:15:00.000000Z"}
    words = in_words({"sourceId": "late-flights", "batch": 2, "row": 0, "key": None, "value": value})
    assert words == "UA 1545  EWR to IAH, due 2013-01-01T10:15:00Z, left +2 min   (batch 2, row 0)"


def test_anything_else_as_it_is() -> None:
    assert in_words({"sourceId": "counter", "count": 3}) == '{"sourceId": "counter", "count": 3}'
    assert json.loads(in_words({"value": "no json"})) == {"value": "no json"}
    assert json.loads(in_words({"value": None})) == {"value": None}


async def test_the_first_events_are_shown_and_all_are_counted() -> None:
    said: list[str] = []
    address = parse_address("127.0.0.1:1")
    viewer = Viewer(address, WatchPlan("flights", "push"), said.append)
    await viewer.take(SubscriptionOpened(address, Subscribed("flights")))
    assert viewer.subscribed.is_set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(viewer.until, lambda: viewer.tally.received == 20)
        for _ in range(20):
            await viewer.take(Event("", result()))
    await viewer.take(Noticed("", Lag("flights", 12)))
    assert (viewer.tally.received, viewer.tally.lags) == (20, 1)
    assert len(said) == SHOWN + 2
    assert said[0].startswith("  push  UA 1545")
    assert said[-1] == "  push  LAG: 12 events behind"


async def test_what_comes_from_outside_cannot_steer_the_terminal() -> None:
    said: list[str] = []
    viewer = Viewer(parse_address("127.0.0.1:1"), WatchPlan("flights", "push"), said.append)
    await viewer.take(Event("", result(origin="\x1b[2J")))
    assert "\x1b" not in said[0]


async def test_what_is_given_up_is_told_with_its_offsets() -> None:
    said: list[str] = []
    viewer = Viewer(parse_address("127.0.0.1:1"), WatchPlan("flights"), said.append, label="slow")
    await viewer.take(Noticed("", Lag("flights", 60, dropped=12, ranges={"0": [3, 9], "2": [0, 4]})))
    assert said == ["  slow  LAG: 12 events given up, offsets 3 to 9 of partition 0, 0 to 4 of partition 2"]
    assert viewer.tally.announced == 12


async def test_one_that_stalls_takes_nothing_until_it_goes_on() -> None:
    viewer = Viewer(parse_address("127.0.0.1:1"), WatchPlan("flights"), lambda line: None)
    viewer.stall()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(viewer.take, Event("", result()))
        await trio.testing.wait_all_tasks_blocked()
        assert (viewer.tally.received, viewer.state) == (0, "stalled: it reads nothing")
        viewer.go_on()
    assert viewer.tally.received == 1


async def test_its_balance_goes_down_with_what_it_receives() -> None:
    viewer = Viewer(parse_address("127.0.0.1:1"), WatchPlan("flights", "pull"), lambda line: None)
    await viewer.take(CreditsGranted(3))
    await viewer.take(Event("", result()))
    assert viewer.balance == 2


async def test_a_connection_that_is_lost_and_made_again_is_told() -> None:
    said: list[str] = []
    address = parse_address("127.0.0.1:1")
    viewer = Viewer(address, WatchPlan("flights"), lambda line: None, note=said.append)
    await viewer.take(Reconnecting("no answer", 0.5))  # before there was a subscription it is no news
    await viewer.take(SubscriptionOpened(address, Subscribed("flights")))
    assert (viewer.state, said) == ("reading", [])
    await viewer.take(Reconnecting("connection lost", 0.5))
    assert viewer.state == "connecting"
    await viewer.take(SubscriptionOpened(address, Subscribed("flights")))
    assert said == [
        "  push  connection lost; again in 0.5 s",
        "  push  connected again; goes on where it was",
    ]
