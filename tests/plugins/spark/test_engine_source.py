"""Queries of clients on a fake driver."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.api import (
    Batch,
    Decode,
    EngineLimits,
    EngineQuery,
    Positions,
    QueriedTable,
    Source,
    SourceContext,
    SourceFailed,
)
from kiwi_gw.testing import MemoryPublisher
from kiwi_spark.gateway.driver_supervisor import DriverState
from kiwi_spark.gateway.engine_source import ENGINE, FAILED, LOST
from kiwi_spark.gateway.query_turns import RUNNING, TOO_MANY, WAITING
from kiwi_spark.gateway.rows import BATCH_ROWS
from kiwi_spark.gateway.service import SparkService
from tests.plugins.spark.bench import context, fake_spark, launch, memory, source

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses")]


def asked(plan: Mapping[str, Any], folder: Path, spark: SparkService, **limits: Any) -> Source:
    query = EngineQuery(json.dumps(plan), {"t0": QueriedTable("in", Decode())}, limits=EngineLimits(**limits))
    return ENGINE.build(query, SourceContext("q", context(folder), {"spark": spark}))


def result() -> MemoryPublisher:
    return MemoryPublisher(ENGINE.schema)


async def failure(query: Source, out: MemoryPublisher | None = None) -> str:
    with pytest.raises(SourceFailed) as failed:
        await query.run(out or result(), None)
    return str(failed.value)


@asynccontextmanager
async def running(query: Source, out: MemoryPublisher | None = None) -> AsyncIterator[None]:
    """A query that is gone with the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(query.run, out or result(), None)
        yield
        nursery.cancel_scope.cancel()


async def until_running(spark: SparkService, count: int) -> None:
    """Returns when so many have their turns."""
    while spark.turns.running != count:  # noqa: ASYNC110  (turns do not tell)
        await trio.sleep(0.001)


async def test_the_rows_of_all_batches_are_numbered(tmp_path: Path) -> None:
    out = result()
    async with fake_spark() as spark:
        await asked({"batches": 3, "rows": BATCH_ROWS + 1}, tmp_path, spark).run(out, None)
        assert spark.turns.running == 0
    assert out.ready_at == {0: 0}
    total = 3 * (BATCH_ROWS + 1)
    assert [row["offset"] for row in out.records] == list(range(total))
    assert [json.loads(row["value"])["n"] for row in out.records] == list(range(total))  # type: ignore[arg-type]
    assert {row["key"] for row in out.records} == {b'{"k":1}'}
    assert {row["timestamp"] for row in out.records} == {1_000, 1_001, 1_002}


async def test_one_that_cannot_be_written_ends_no_other(tmp_path: Path) -> None:
    """Numbers of a message have 64 bits."""
    beyond = QueriedTable("in", Decode(), last_offset=-(2**63) - 1)
    async with fake_spark() as spark:
        there = SourceContext("q", context(tmp_path), {"spark": spark})
        async with running(asked({"waits": True}, tmp_path, spark)):
            await until_running(spark, 1)
            with pytest.raises(ExceptionGroup) as failed:
                await ENGINE.build(EngineQuery("{}", {"t0": beyond}), there).run(result(), None)
            assert failed.group_contains(OverflowError)
            assert (spark.turns.running, spark.driver.deaths) == (1, 0)
            await asked({"batches": 1, "rows": 1}, tmp_path, spark).run(result(), None)
        await until_running(spark, 0)


async def test_what_the_memory_has_no_room_for_is_on_disk_meanwhile(tmp_path: Path) -> None:
    out = result()
    async with fake_spark(stage_bytes=1) as spark:
        await asked({"batches": 2}, tmp_path, spark).run(out, None)
        assert spark.budget.used == 0
    assert len(out.records) == 10


async def test_a_client_that_takes_nothing_holds_no_turn(tmp_path: Path) -> None:
    class Slow(MemoryPublisher):
        async def publish(self, batch: Batch) -> None:
            await trio.sleep_forever()

    async with fake_spark() as spark, running(asked({}, tmp_path, spark), Slow(ENGINE.schema)):
        await until_running(spark, 1)
        await until_running(spark, 0)


async def test_more_than_wait_are_turned_away_and_a_turn_is_another_s_when_it_is_over(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        async with trio.open_nursery() as nursery:
            for _ in range(RUNNING + WAITING):
                nursery.start_soon(asked({"waits": True}, tmp_path, spark).run, result(), None)
            while spark.turns.waiting < WAITING:  # noqa: ASYNC110
                await trio.sleep(0.001)
            assert await failure(asked({}, tmp_path, spark)) == TOO_MANY
            nursery.cancel_scope.cancel()
        await until_running(spark, 0)
        await asked({}, tmp_path, spark).run(result(), None)


async def test_one_that_runs_too_long_is_stopped(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        said = await failure(asked({"waits": True}, tmp_path, spark, seconds=0.05))
        assert said == "the query was not done within 0.05 s"
        await until_running(spark, 0)  # for the driver has stopped it


async def test_its_time_begins_when_the_driver_is_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    spark = SparkService(launch(), 1 << 20)  # which nobody serves: its driver never comes
    async with running(asked({}, tmp_path, spark, seconds=60)):
        await until_running(spark, 1)
        await trio.sleep(600)
        assert spark.turns.running == 1


async def test_one_that_is_gone_while_the_driver_starts_holds_nothing(tmp_path: Path) -> None:
    async with fake_spark("silent") as spark:
        async with running(asked({}, tmp_path, spark)):
            await until_running(spark, 1)
        assert (spark.turns.running, spark.turns.waiting) == (0, 0)


async def test_a_result_that_grows_too_large_is_none(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        plan = {"batches": 9, "rows": 10, "bytes": 1024}
        said = await failure(asked(plan, tmp_path, spark, result_bytes=64 * 1024))
        assert said == "the result has more than 65,536 bytes"
        assert (await failure(asked(plan, tmp_path, spark, result_bytes=0))).endswith("0 bytes")
        await until_running(spark, 0)
        assert spark.budget.used == 0


@pytest.mark.parametrize(
    ("trouble", "message", "said"),
    [
        ("query", "there is no member x", "there is no member x"),
        ("unreachable", "TimeoutException: no node", "the Kafka cluster does not answer"),
        ("unreachable", "UnknownTopicOrPartitionException", "a Kafka topic of the query does not exist"),
        ("data_loss", "gone", "events were deleted while the query read them; try again"),
        ("gone", "java.lang.NullPointerException at org.apache", FAILED),
    ],
)
async def test_what_clients_are_told(tmp_path: Path, trouble: str, message: str, said: str) -> None:
    async with fake_spark() as spark:
        out = result()
        assert await failure(asked({"fail": [trouble, message]}, tmp_path, spark), out) == said
        assert out.ready_at is None
        assert await failure(asked({"trouble": [trouble, message]}, tmp_path, spark)) == said


async def test_a_driver_that_dies_ends_the_query_and_the_next_one_has_another(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        out = result()
        assert await failure(asked({"kill": [[0, "within"]]}, tmp_path, spark), out) == LOST
        assert out.events == 0  # of a batch that was not whole nothing is shown
        assert spark.turns.running == 0
        await asked({}, tmp_path, spark).run(out := result(), None)
        assert out.events == 5


async def test_one_that_the_driver_dies_of_makes_no_source_suspicious(tmp_path: Path) -> None:
    """The source's query has done nothing yet when the drivers die, time after time."""
    plan = {"batches": 0}
    async with fake_spark() as spark, trio.open_nursery() as nursery:

        class Out(MemoryPublisher):
            async def ready(self, positions: Positions) -> None:
                await super().ready(positions)
                ready.set()

        ready = trio.Event()
        nursery.start_soon(source(plan, tmp_path, spark).run, Out(memory()._event_schema), None)
        await ready.wait()
        for _ in range(4):
            assert await failure(asked({"deadly": True}, tmp_path, spark)) == LOST
            await spark.driver.reach({DriverState.READY})
            await wait_all_tasks_blocked()
        assert not spark._crashes.suspected("s")
        nursery.cancel_scope.cancel()
