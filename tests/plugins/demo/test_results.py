"""What the demo says of Spark's results, and of a Spark that is slow or fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kiwi_demo.results import DELAYS, LATE, Results
from kiwi_demo.viewer import Viewer
from kiwi_gw.client.address import parse_address
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.client.watch import Happening, Reconnecting, SubscriptionOpened, WatchEnded
from kiwi_gw.dialects.kiwi.messages import Lag, Subscribed

ADDRESS = parse_address("127.0.0.1:1")
DELAY = {
    "until": "2013-01-01T12:00:00.000000Z",
    "carrier": "UA",
    "name": "United Air Lines Inc.",
    "delay": 12.5,
    "flights": 3,
}
FLIGHT = {
    "carrier": "MQ",
    "flight": 3944,
    "origin": "LGA",
    "dest": "BOS",
    "dep_delay": 101,
    "sched_dep": "2013-01-01T11:30:00.000000Z",
    "left_at": "2013-01-01T13:11:00.000000Z",
}


def event(source_id: str, value: dict[str, object]) -> Event:
    data = {"sourceId": source_id, "batch": 4, "row": 1, "timestamp": 5, "key": None, "value": value}
    return Event(json.dumps(data), data)


class Scripted:
    """Stands for the connections of both viewers: what is put into `happens[source]` is what they get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happens: dict[str, trio.MemorySendChannel[Happening | WatchEnded]] = {}
        self._receive: dict[str, trio.MemoryReceiveChannel[Happening | WatchEnded]] = {}
        for source_id in (DELAYS, LATE):
            self.happens[source_id], self._receive[source_id] = trio.open_memory_channel(100)
        script = self

        async def run(self: Viewer) -> None:
            async for one in script._receive[self.plan.source_id]:
                if isinstance(one, WatchEnded):
                    raise one
                await self.take(one)

        monkeypatch.setattr(Viewer, "run", run)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An empty log of a gateway."""
    (tmp_path / "gateway.log").touch()
    return tmp_path / "gateway.log"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(monkeypatch)


@asynccontextmanager
async def shown(log: Path) -> AsyncIterator[tuple[Results, list[str]]]:
    """Results as they come, and what is said of them."""
    said: list[str] = []
    results = Results(ADDRESS, said.append, log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(results.run)
        yield results, said
        nursery.cancel_scope.cancel()


async def test_late_flights_are_shown_as_they_come_and_delays_as_a_table(
    script: Scripted, log: Path, autojump_clock: object
) -> None:
    async with shown(log) as (results, said):
        await trio.sleep(4)
        assert said == ["Spark is starting; its results come in between once it is there"]
        for source_id in (DELAYS, LATE):
            await script.happens[source_id].send(SubscriptionOpened(ADDRESS, Subscribed(source_id)))
        for _ in range(7):
            await script.happens[LATE].send(event(LATE, FLIGHT))
        await script.happens[DELAYS].send(event(DELAYS, DELAY))
        await trio.sleep(1.5)
        assert said[1] == "Spark is there; its first results, 4 s later:"
        flight = "  late  MQ 3944  LGA to BOS, due 2013-01-01T11:30:00Z, left +101 min (batch 4, row 1)"
        table = [line for line in said if "UA" in line or "United" in line or "delays-by-carrier," in line]
        assert sorted(said[2:]) == sorted([flight] * 5 + ["  late  ... and so on", *table])
        assert len(table) == 2
        assert "United Air Lines Inc." in table[1]
        before = len(said)
        await trio.sleep(25)
        assert len(said) == before, "nothing has changed"
        await script.happens[DELAYS].send(event(DELAYS, DELAY | {"delay": 13.0}))
        await script.happens[DELAYS].send(Noticed("", Lag(DELAYS, 3)))
        await trio.sleep(11)
        assert len(said) == before + 3
    assert results.summary() == [
        "  delays-by-carrier 2 results, with 1 LAG notices",
        "  late-flights      7 results, with 0 LAG notices",
    ]


async def test_a_spark_that_is_slow_is_no_trouble(
    script: Scripted, log: Path, autojump_clock: object
) -> None:
    async with shown(log) as (results, said):
        await script.happens[LATE].send(Reconnecting("no answer to SUBSCRIBE in 15 s", 0.3))
        await script.happens[DELAYS].send(SubscriptionOpened(ADDRESS, Subscribed(DELAYS)))
        await trio.sleep(1)
    assert said == ["Spark is starting; its results come in between once it is there"]
    assert results.summary() == [
        "  delays-by-carrier no result yet",
        "  late-flights      no result yet: Spark was still starting",
    ]


async def test_the_delay_of_late_flights(
    script: Scripted, log: Path, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000.25)
    async with shown(log) as (results, said):
        for moment in ("1970-01-01T00:16:40.150000Z", "1970-01-01T00:16:40.240000Z", "no time"):
            await script.happens[LATE].send(event(LATE, FLIGHT | {"produced": moment}))
        await script.happens[LATE].send(event(LATE, FLIGHT | {"produced": "1970-01-01T00:16:40.240000Z"}))
        await script.happens[DELAYS].send(event(DELAYS, DELAY))
        await trio.sleep(2)
    words = "the newest came 10 ms after their flights (median)"
    assert f"late-flights: {words}" in said
    assert results.summary()[1] == f"  late-flights      4 results, with 0 LAG notices, {words}"


async def test_one_that_fails_is_said_and_the_other_goes_on(
    script: Scripted, log: Path, autojump_clock: object
) -> None:
    async with shown(log) as (results, said):
        await script.happens[DELAYS].send(WatchEnded("delays-by-carrier: no room\x1b[2J"))
        await trio.sleep(1)
        await script.happens[LATE].send(event(LATE, FLIGHT))
        await trio.sleep(1)
    assert said[1] == "delays-by-carrier failed: delays-by-carrier: no room\\x1b[2J"
    assert said[-1].startswith("  late  MQ 3944")
    assert results.summary()[0] == "  delays-by-carrier failed: delays-by-carrier: no room\\x1b[2J"
