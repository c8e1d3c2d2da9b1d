"""Flights in Kafka, a query over them in real Spark, its rows at a client of the Kiwi protocol."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from kiwi_gw.demo.broker import Broker
from kiwi_gw.demo.topics import Record, Topics
from tests.integration.client import Client, client
from tests.integration.gateway import GatewayProcess, gateway, kafka_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PATIENCE = 150
"""Seconds. Spark takes 10 s to start on a machine that has nothing else to do."""

SCHEMA = "carrier STRING, n INT, dep_delay DOUBLE"
LATE = "SELECT carrier, n, CAST(dep_delay AS DECIMAL(8,2)) AS delay FROM flights WHERE dep_delay > 15"


def flights(first: int, count: int) -> list[Record]:
    return [
        Record(json.dumps({"carrier": "AA" if n % 3 else "UA", "n": n, "dep_delay": float(n % 60)}).encode())
        for n in range(first, first + count)
    ]


def late(first: int, count: int) -> list[int]:
    return [n for n in range(first, first + count) if n % 60 > 15]


def config(broker: Broker, topic: str, folder: Path, **query: Any) -> dict[str, object]:
    source = {
        "type": "spark",
        "id": "late",
        "inputs": {"flights": {"source": topic, "schema": SCHEMA, "start": "earliest"}},
        "sql": LATE,
        "key": ["carrier"],
        "trigger": {"processing_time": "200 ms"},
        **query,
    }
    return kafka_config(
        broker.bootstrap,
        topic,
        spark={
            "master": "local[1]",
            "checkpoint_dir": str(folder / "state"),
            "conf": {"spark.sql.shuffle.partitions": 1, "spark.driver.memory": "700m"},
            "nice": 0,
        },
        # The client answers no pings.
        server={"address": "127.0.0.1:0", "limits": {"ping_interval_ms": "280s", "dead_after_ms": "290s"}},
        subscriber={"subscribe_timeout_ms": "140s"},
        sources=[{"type": "kafka", "topic": topic}, source],
    )


def values(reader: Client) -> list[int]:
    return [result["value"]["n"] for result in reader.results]


def driver_of(running: GatewayProcess) -> int:
    lines = [line for line in running.log if line["event"] == "spark driver is ready"]
    pid: int = lines[-1]["pid"]
    return pid


def in_group(group: int) -> list[int]:
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except ProcessLookupError:
            continue
    return found


async def test_late_flights_while_the_driver_is_killed(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 2)
    async with gateway(tmp_path, config(broker, topic, tmp_path)) as running:
        async with client(running.address, "late") as reader:
            with trio.fail_after(PATIENCE):
                await reader.subscribe()
                await topics.produce(topic, flights(0, 600))
                await reader.events(len(late(0, 600)))
                first = driver_of(running)
                assert in_group(first)
                os.kill(first, signal.SIGKILL)
                await topics.produce(topic, flights(600, 600))
                await reader.events(len(late(600, 600)))
                assert driver_of(running) != first
                assert in_group(first) == []
            assert sorted(values(reader)) == late(0, 1200)
            one: Mapping[str, Any] = reader.results[0]
            assert one["sourceType"] == "spark"
            assert one["key"] in ({"carrier": "AA"}, {"carrier": "UA"})
            assert one["value"]["delay"] == f"{one['value']['n'] % 60}.00"
            assert not reader.recording.faults
            last = driver_of(running)
        assert await running.stop() == 0
        assert in_group(last) == []
