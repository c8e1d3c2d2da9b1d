"""A gateway with queries in real time that starts, and one that is killed: its clients miss nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import Client, client
from tests.integration.gateway import GatewayProcess, gateway, kafka_config
from tests.integration.spark import numbered_records as made_of
from tests.integration.spark.held_gateway import WITHIN_TESTS, query, spark_section
from tests.integration.spark.late_flights import patience
from tests.integration.spark.numbered_records import Made, batched, placed
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS: Final = 2

REAL_TIME: Final = {"real_time": True, "checkpoint_interval": "5s"}
MODES: Final[Mapping[str, Any]] = {"real-time": REAL_TIME, "batches": {"processing_time": "200 ms"}}

NewTopic = Callable[[], str]


def config(broker: Broker, topic: str, folder: Path, *queries: Mapping[str, Any]) -> dict[str, object]:
    return kafka_config(
        broker.bootstrap,
        topic,
        **WITHIN_TESTS,
        spark=spark_section(folder, master="local[*]"),
        window={"events": 1_000_000},  # however slow this machine is: nobody is to fall out of it
        sources=[{"type": "kafka", "topic": topic}, *queries],
    )


async def test_subscribe_ok_means_from_now_on(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Said to who subscribes while the query starts, which begins at the end of its topic."""
    records = {mode: await made_of.new_records(topics, new_topic(), PARTITIONS) for mode in MODES}
    queries = [
        query(mode, one.topic, start="latest", more={"sql": made_of.FILTERED, "trigger": MODES[mode]})
        for mode, one in records.items()
    ]
    found: dict[str, Client] = {}

    async def watch(running: GatewayProcess, mode: str) -> None:
        async with client(running.address, mode) as reader:
            await reader.subscribe()
            await records[mode].produce(1_000)
            await reader.have(made_of.count(records[mode].rows(made_of.filtered)))
        found[mode] = reader

    for one in records.values():
        await one.produce(100)
        one.since = one.next
    first = config(broker, records["batches"].topic, tmp_path, *queries)
    first["sources"] += [{"type": "kafka", "topic": records["real-time"].topic}]  # type: ignore[operator]
    async with gateway(tmp_path, first) as running:
        with patience(running):
            async with trio.open_nursery() as nursery:
                for mode in MODES:
                    nursery.start_soon(watch, running, mode)
    for mode, read in (("real-time", placed), ("batches", batched)):
        assert read(found[mode].results, PARTITIONS) == records[mode].rows(made_of.filtered)
        assert found[mode].recording.missed == 0


class Following:
    """A client of one source that knows its positions and nothing else. results: all its events."""

    def __init__(self, source_id: str, made: Made) -> None:
        self.made = made
        self.results: list[dict[str, Any]] = []
        self.resumed: list[bool] = []
        self._id = source_id
        self._positions: dict[str, Any] = {}
        self._reader: Client

    async def begin(self, running: GatewayProcess, stack: AsyncExitStack) -> None:
        """Subscribe: where it was, and the first time from now on."""
        self._reader = await stack.enter_async_context(client(running.address, self._id))
        begin: dict[str, Any] = {"from": {"positions": self._positions}} if self._positions else {}
        opened = await self._reader.subscribe(**begin)
        if self._positions:
            self.resumed.append(opened["positions"] == self._positions)
        self._positions = opened["positions"]

    async def have(self, count: int) -> None:
        """Read until it has had so many events in all."""
        await self._reader.have(count - len(self.results))

    async def events(self, count: int) -> None:
        """Read so many more."""
        await self._reader.events(count)

    async def end(self) -> None:
        """Read what a gateway has left that is gone, and note it."""
        try:
            await self._reader.read_all()
        except trio.BrokenResourceError:
            self._reader.gone = True
        self.note()

    def note(self) -> None:
        """Have had what has come."""
        assert (self._reader.recording.faults, self._reader.recording.missed) == ([], 0)
        self.results += self._reader.results
        *_, self._positions = (self._positions, *made_of.after(self._positions, self._reader.results))


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.extended)])
async def test_clients_go_on_though_the_gateway_is_killed(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path, times: int
) -> None:
    """At random moments; another one with the same checkpoints goes on with its queries."""
    records = await made_of.new_records(topics, new_topic(), PARTITIONS)
    queries = {
        "filtered": (made_of.FILTERED, made_of.filtered),
        "exploded": (made_of.EXPLODED, made_of.exploded),
    }
    sources = [
        query(name, records.topic, more={"sql": sql, "trigger": REAL_TIME})
        for name, (sql, _) in queries.items()
    ]
    given = config(broker, records.topic, tmp_path, *sources)
    clients = [Following(name, made) for name, (_, made) in queries.items()]
    rng = Random(times)
    async with made_of.produced_all_the_time(records) as enough:
        for number in range(times + 1):
            last = number == times
            folder = tmp_path / str(number)
            folder.mkdir()
            async with gateway(folder, given, killed=not last) as running, AsyncExitStack() as stack:
                with patience(running):
                    for one in clients:
                        await one.begin(running, stack)
                    if last:
                        await enough()
                        for one in clients:
                            await one.have(made_of.count(records.rows(one.made)))
                            one.note()
                    else:
                        await clients[number % 2].events(rng.randrange(1, 4_000))
                        os.kill(running.pid, signal.SIGKILL)
                        for one in clients:
                            await one.end()
    for one in clients:
        assert placed(one.results, PARTITIONS) == records.rows(one.made)
        assert one.resumed == [True] * times
