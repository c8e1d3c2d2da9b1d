"""Queries of clients in a gateway's own driver: clients that go away, and drivers that do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from kiwi_demo.broker import Broker
from kiwi_gw.api import (
    Decode,
    EngineQuery,
    PluginContext,
    Positions,
    QueriedTable,
    SourceContext,
    SourceFailed,
)
from kiwi_gw.testing import MemoryPublisher
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_spark.gateway.engine_source import ENGINE, LOST
from kiwi_spark.gateway.service import SparkService, open_spark
from kiwi_spark.gateway.settings import SparkSettings
from tests.integration.spark.late_flights import PATIENCE, small
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

COUNT = "SELECT count(t0.value.n) AS n FROM t0"
ENDLESS = (
    "SELECT sum(t0.value.n * t1.value.n % (t2.value.n + 7)) AS n FROM t0 CROSS JOIN t1 CROSS JOIN t2 "
    "CROSS JOIN t3"
)


class Out(MemoryPublisher):
    """Knows when a query is ready."""

    def __init__(self) -> None:
        super().__init__(ENGINE.schema)
        self.is_ready = trio.Event()

    async def ready(self, positions: Positions) -> None:
        await super().ready(positions)
        self.is_ready.set()


class Engine:
    """A service, and a topic with 1,000 records."""

    def __init__(self, spark: SparkService, context: PluginContext, topic: str) -> None:
        self.spark = spark
        self._context = context
        self._topic = topic

    async def run(self, sql: str, out: MemoryPublisher, *, live: bool = False) -> None:
        names = ("t0", "t1", "t2", "t3")
        tables = {name: QueriedTable(self._topic, Decode()) for name in names if name in sql}
        context = SourceContext("q", self._context, {"spark": self.spark})
        await ENGINE.build(EngineQuery(sql, tables, live=live), context).run(out, None)

    async def counts(self) -> bool:
        """Whether a query has its result."""
        with trio.fail_after(PATIENCE):
            await self.run(COUNT, out := Out())
        return [json.loads(str(row["value"], "utf-8")) for row in out.records] == [{"n": 1000}]  # type: ignore[call-overload]

    async def gave_back(self) -> None:
        """Returns when no query has a turn."""
        with trio.fail_after(PATIENCE):
            while self.spark.turns.running:  # noqa: ASYNC110  (turns do not tell)
                await trio.sleep(0.01)


@pytest.fixture
async def engine(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> AsyncIterator[Engine]:
    name = await topics.create(new_topic(), 2)
    await topics.produce(name, [Record(b'{"n":%d}' % n, partition=n % 2) for n in range(1_000)])
    settings = SparkSettings.model_validate(
        {"master": "local[2]", "checkpoint_dir": str(tmp_path / "state"), "conf": small(), "nice": 0}
    )
    sections = {"spark": settings, "kafka": KafkaSettings(bootstrap_servers=broker.bootstrap)}
    context = PluginContext(sections, sources={name: KafkaSourceSettings(type="kafka", topic=name)})
    async with open_spark(context) as spark:
        yield Engine(spark, context, name)


@asynccontextmanager
async def asked(engine: Engine, sql: str, *, live: bool = False) -> AsyncIterator[Out]:
    """A query whose client goes away at the end of the block."""
    out = Out()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await engine.run(sql, out, live=live)

        nursery.start_soon(run)
        yield out
        nursery.cancel_scope.cancel()


async def test_clients_go_away_at_every_point_and_nothing_is_left(engine: Engine) -> None:
    async with asked(engine, COUNT):  # while the driver starts
        with trio.fail_after(PATIENCE):
            while not engine.spark.driver.pid:  # noqa: ASYNC110  (there is nothing to wait for)
                await trio.sleep(0.01)
    assert engine.spark.turns.running == 0
    await engine.spark.driver.ready()
    pid = engine.spark.driver.pid
    async with asked(engine, COUNT):  # while it is found out what there is to read, and of what types
        while not engine.spark._runs:
            await trio.lowlevel.checkpoint()
    await engine.gave_back()
    assert await engine.counts()
    for live in (False, True):
        async with asked(engine, ENDLESS, live=live) as out:  # while it runs
            with trio.fail_after(PATIENCE):
                await out.is_ready.wait()
        await engine.gave_back()
    assert await engine.counts()
    assert (engine.spark.driver.pid, engine.spark.driver.deaths) == (pid, 0)


async def test_a_driver_that_is_killed_ends_the_query_and_the_next_one_has_another(engine: Engine) -> None:
    async def kill(out: Out) -> None:
        await out.is_ready.wait()
        os.killpg(engine.spark.driver.pid, signal.SIGKILL)

    out = Out()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill, out)
            try:
                await engine.run(ENDLESS, out)
            except SourceFailed as error:
                said = str(error)
    assert said == LOST
    assert engine.spark.turns.running == 0
    assert await engine.counts()
