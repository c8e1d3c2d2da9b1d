"""A gateway with queries in real time that starts: its clients miss nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import Client, client
from tests.integration.gateway import GatewayProcess, gateway, kafka_config
from tests.integration.spark import numbered_records as made_of
from tests.integration.spark.held_gateway import WITHIN_TESTS, query, spark_section
from tests.integration.spark.late_flights import patience
from tests.integration.spark.numbered_records import batched, placed
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


RARE: Final = (
    "SELECT _partition AS p, _offset AS o, a AS x FROM flights LATERAL VIEW explode(array(1, 2)) t AS n"
    " WHERE a % 20 < 10"
)


async def test_a_client_that_has_all_rows_goes_on_though_the_checkpoint_is_further(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Behind its last row there are records that have made none, and the gateway that knew it is killed."""
    records = await made_of.new_records(topics, new_topic(), PARTITIONS)
    given = config(
        broker,
        records.topic,
        tmp_path,
        query("rare", records.topic, more={"sql": RARE, "trigger": REAL_TIME}),
    )
    log = tmp_path / "state" / "rare" / "0"
    await records.produce(20)
    async with gateway(tmp_path, given, killed=True) as running, client(running.address, "rare") as reader:
        with patience(running):
            await reader.subscribe(**{"from": "earliest"})
            await reader.have(20)
            epochs = len(list(log.glob("commits/[0-9]*")))
            while len(list(log.glob("commits/[0-9]*"))) == epochs:  # noqa: ASYNC110  (Spark tells nobody)
                await trio.sleep(0.05)
        os.kill(running.pid, signal.SIGKILL)
    had = {"0": [4, 2], "1": [4, 2]}
    begin: dict[str, Any] = {"from": {"positions": had}}
    assert list(made_of.after({}, reader.results))[-1] == had
    async with gateway(tmp_path, given) as running:
        with patience(running):
            async with client(running.address, "rare") as behind:
                await behind.say("SUBSCRIBE", mode="push", **{"from": {"positions": {**had, "1": [4, 1]}}})
                refused = (await behind.reply("SUBSCRIBE_ERROR"))["data"]["error"]
            async with client(running.address, "rare") as again:
                opened = await again.subscribe(**begin)
                await records.produce(20)
                await again.have(20)
    assert "some of what was asked for is gone" in refused
    assert opened["positions"] == had
    assert [(one["offset"], one["row"]) for one in again.results if one["partition"] == 0] == [
        (offset, row) for offset in range(10, 15) for row in (0, 1)
    ]
