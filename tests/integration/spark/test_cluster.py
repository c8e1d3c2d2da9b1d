"""Queries on a real standalone cluster: rows come back to the gateway, also when an executor is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import client
from tests.integration.gateway import gateway
from tests.integration.spark.clusters import Standalone, standalone
from tests.integration.spark.late_flights import config, flights, late, patience, values
from tests.integration.spark.shared_classes import small_jvm
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with standalone(tmp_path / "work") as running:
        yield running


async def test_rows_come_back_from_a_cluster_that_loses_an_executor(
    cluster: Standalone, broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 2)
    given = config(broker, topic, tmp_path, sql=None, transform="pipelines_of_tests:late_flights")
    given["spark"] = {
        "master": cluster.url,
        "checkpoint_dir": str(tmp_path / "state"),
        "python_path": [str(Path(__file__).parent)],
        "conf": {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "470m",
            "spark.executor.cores": 1,
            "spark.sql.shuffle.partitions": 1,
            "spark.driver.extraJavaOptions": small_jvm(),
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.pyspark.python": sys.executable,
        },
        "nice": 0,
    }
    async with gateway(tmp_path, given) as running, client(running.address, "late") as reader:
        with patience(running):
            await reader.subscribe()
            await topics.produce(topic, flights(0, 300))
            await reader.events(len(late(0, 300)))
        await trio.to_thread.run_sync(cluster.executor_started, 2)
        before = cluster.executors()
        assert before
        for executor in before[:1]:
            os.kill(executor, signal.SIGKILL)
        await topics.produce(topic, flights(300, 300))
        with patience(running):
            await reader.events(len(late(300, 300)))
        await trio.to_thread.run_sync(cluster.executor_started, 3)
        assert sorted(values(reader)) == late(0, 600)
        assert not reader.recording.faults
