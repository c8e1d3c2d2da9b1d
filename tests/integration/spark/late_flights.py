"""Flights, a query that finds the late ones, and a gateway with it: what several modules of tests use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from kiwi_demo.broker import Broker
from tests.integration.client import Client
from tests.integration.gateway import GatewayProcess, kafka_config
from tests.integration.spark.shared_classes import small_jvm
from tests.topics import Record

PATIENCE = 240
"""Seconds. Spark takes 10 s to start on a machine that has nothing else to do."""


def small() -> dict[str, object]:
    """The configuration of a Spark that soon is there and has little to do."""
    return {
        "spark.sql.shuffle.partitions": 1,
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": small_jvm(),
    }


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
            "conf": small(),
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


@contextmanager
def patience(running: GatewayProcess) -> Iterator[None]:
    """Whatever takes longer than this will not come any more; the log says why."""
    with trio.move_on_after(PATIENCE) as scope:
        yield
    assert not scope.cancelled_caught, running.tail()
