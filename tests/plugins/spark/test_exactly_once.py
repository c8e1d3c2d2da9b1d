"""Every committed row once, wherever the driver dies, on a driver that repeats in another order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_gw.api import SourceChanged
from kiwi_gw.model import Batch
from kiwi_gw.testing import MemoryPublisher
from kiwi_spark.gateway.driver_supervisor import DriverState
from kiwi_spark.gateway.positions import MAX_ROWS, offset_of
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.protocol.query_spec import SessionSpec
from tests.plugins.spark.bench import fake_spark, memory, numbers, places, source

pytestmark = pytest.mark.slow

POINTS = ("before", "within", "after", "end", "acked")
SECONDS = 50


async def collect(plan: Mapping[str, Any], folder: Path, spark: SparkService, events: int) -> MemoryPublisher:
    """Run the source until it has published so many events, and then a moment more."""
    out = memory()
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source(plan, folder, spark).run, out, None)
            await out.wait_events(events)
            await trio.sleep(0.1)  # for what should not come
            nursery.cancel_scope.cancel()
    return out


async def died(spark: SparkService) -> None:
    """Wait until a driver has died: it may have been started again before anybody asks."""
    if not spark.driver.deaths:
        await spark.driver.reach({DriverState.BACKOFF})


@dataclass
class Hold:
    """Keeps drivers from being started again. waits: one is kept from it. may: set it, and none is."""

    waits: trio.Event = field(default_factory=trio.Event)
    may: trio.Event = field(default_factory=trio.Event)


def held(spark: SparkService, when: Callable[[], bool]) -> Hold:
    """Have no driver started again from then on. (What one has sent may be lost with it; then it has to come
    again first.)"""
    launch, hold, first = spark.driver._launch, Hold(), True

    async def prepare() -> tuple[SessionSpec, Mapping[str, str]]:
        nonlocal first
        if not first and when():
            hold.waits.set()
            await hold.may.wait()
        first = False
        return await launch.prepare()

    spark.driver._launch = replace(launch, prepare=prepare)
    return hold


async def away(spark: SparkService, hold: Hold) -> None:
    """Wait until there is no driver, and will be none for now. One that was started again before `when` was
    true is killed."""
    while not hold.waits.is_set():
        if spark.driver.deaths and spark.driver.state is DriverState.READY:
            os.kill(spark.driver.pid, signal.SIGKILL)
            await spark.driver.reach({DriverState.BACKOFF})
        await trio.sleep(0.01)


def whole(batches: int, rows: int) -> list[tuple[int, int]]:
    return [(batch, row) for batch in range(batches) for row in range(rows)]


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("how", ["kill", "drop"])
@pytest.mark.parametrize("point", POINTS)
async def test_the_driver_or_its_connection_is_lost(tmp_path: Path, point: str, how: str) -> None:
    plan = {"batches": 3, "rows": 7, how: [[1, point]]}
    async with fake_spark() as spark:
        out = await collect(plan, tmp_path, spark, 21)
        assert spark.driver.deaths == (how == "kill")
    assert sorted(numbers(out.batches)) == list(range(21))
    assert places(out.batches) == whole(3, 7)
    if how == "kill":
        assert out.troubles == ["Spark is started again", ""]
    else:
        assert out.troubles == ["the query has ended and is started again", ""]


@pytest.mark.usefixtures("short_pauses")
async def test_every_batch_dies_at_every_point(tmp_path: Path) -> None:
    plan = {"batches": 2, "rows": 4, "drop": [[batch, point] for batch in range(2) for point in POINTS]}
    async with fake_spark(max_restarts=9) as spark:
        out = await collect(plan, tmp_path, spark, 8)
    assert sorted(numbers(out.batches)) == list(range(8))
    assert places(out.batches) == whole(2, 4)


async def test_batch_ids_are_the_checkpoints(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        await collect({"batches": 2}, tmp_path, spark, 10)
        out = await collect({"batches": 4}, tmp_path, spark, 10)
    assert out.ready_at == {0: offset_of(2, 0)}
    assert places(out.batches) == [(batch, row) for batch in (2, 3) for row in range(5)]


async def test_empty_batches_move_the_place_and_publish_nothing(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        with trio.fail_after(SECONDS):
            out = memory()
            await source({"rows": 0, "over": True}, tmp_path, spark, trigger="available_now").run(out, None)
        assert spark.batches("s").next == 3
    assert out.batches == []


async def test_a_large_batch_goes_through_a_file(tmp_path: Path) -> None:
    async with fake_spark(stage_bytes=50_000) as spark:
        out = await collect({"batches": 2, "rows": 30_000, "part": 4_000}, tmp_path, spark, 60_000)
        assert spark.budget.used == 0
    assert sorted(numbers(out.batches)) == list(range(60_000))
    assert places(out.batches) == whole(2, 30_000)


class Stubborn(MemoryPublisher):
    """Its gateway fails at a piece: before it was taken, or after."""

    failed = 0

    def __init__(self, at: int, taken: bool) -> None:
        super().__init__(memory()._event_schema)
        self._at, self._taken = at, taken

    async def publish(self, batch: Batch) -> None:
        if len(self.batches) == self._at and not self.failed and not self._taken:
            Stubborn.failed = 1
            raise OSError("the gateway has a fault")
        await super().publish(batch)
        if len(self.batches) == self._at and not self.failed and self._taken:
            Stubborn.failed = 1
            raise OSError("the gateway has a fault")


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_built_again_while_a_batch_was_half_published(tmp_path: Path, at: int, taken: bool) -> None:
    plan = {"batches": 3, "rows": 9, "part": 2}
    Stubborn.failed = 0
    async with fake_spark() as spark:
        first = Stubborn(at, taken)
        with trio.fail_after(SECONDS), pytest.raises(OSError, match="fault"):
            await source(plan, tmp_path, spark).run(first, None)
        out = memory(first.positions)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source(plan, tmp_path, spark).run, out, first.positions)
                await out.wait_events(27 - first.events)
                nursery.cancel_scope.cancel()
    assert out.ready_at == first.positions
    batches = [*first.batches, *out.batches]
    assert sorted(numbers(batches)) == list(range(27))
    assert places(batches) == whole(3, 9)


async def test_cancelled_while_a_batch_was_half_published(tmp_path: Path) -> None:
    """And the driver dies meanwhile: the rest is what was staged, not what is sent again."""
    plan = {"batches": 2, "rows": 9, "part": 2, "kill": [[0, "end"]]}

    class Slow(MemoryPublisher):
        async def publish(self, batch: Batch) -> None:
            await super().publish(batch)
            if len(self.batches) == 2:
                await died(spark)
                scope.cancel()
                await trio.lowlevel.checkpoint()

    async with fake_spark() as spark:
        first, scope = Slow(), trio.CancelScope()
        with trio.fail_after(SECONDS), scope:
            await source(plan, tmp_path, spark).run(first, None)
        out = memory(first.positions)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source(plan, tmp_path, spark).run, out, first.positions)
                await out.wait_events(18 - first.events)
                nursery.cancel_scope.cancel()
    batches = [*first.batches, *out.batches]
    assert sorted(numbers(batches)) == list(range(18))
    assert places(batches) == whole(2, 9)


async def test_the_checkpoint_is_lost(tmp_path: Path) -> None:
    plan = {"batches": 9, "rows": 3, "kill": [[2, "before"]]}
    out = memory()

    class Thief(MemoryPublisher):
        async def publish(self, batch: Batch) -> None:
            await super().publish(batch)
            if self.events == 6:
                await away(spark, hold)
                (tmp_path / "s.json").unlink()
                hold.may.set()

    async with fake_spark() as spark:
        out = Thief()
        hold = held(spark, lambda: out.events >= 6)
        with trio.fail_after(SECONDS), pytest.raises(SourceChanged, match="another one"):
            # The kill is not repeated with the new checkpoint before the source has said so.
            await source(plan | {"kill": [[1, "end"]]}, tmp_path, spark).run(out, None)
    assert places(out.batches) == whole(2, 3)


@pytest.mark.parametrize("row", [1, 3, MAX_ROWS - 1])
async def test_nobody_knows_what_of_a_batch_was_taken(tmp_path: Path, row: int) -> None:
    async with fake_spark() as spark:
        with trio.fail_after(SECONDS), pytest.raises(SourceChanged, match=f"of batch 0 {row} rows"):
            await source({}, tmp_path, spark).run(memory(), {0: offset_of(0, row)})


async def test_the_service_was_lost_after_a_batch_was_done(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        first = await collect({"batches": 2}, tmp_path, spark, 10)
    async with fake_spark() as spark:
        out = memory(first.positions)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source({"batches": 3}, tmp_path, spark).run, out, first.positions)
                await out.wait_events(5)
                nursery.cancel_scope.cancel()
    assert out.ready_at == {0: offset_of(2, 0)}
    assert places(out.batches) == [(2, row) for row in range(5)]


async def test_somebody_else_used_the_checkpoint(tmp_path: Path) -> None:
    class Meddler(MemoryPublisher):
        async def publish(self, batch: Batch) -> None:
            await super().publish(batch)
            if self.events == 3 and batch.gap is None:
                path = tmp_path / "s.json"
                await away(spark, hold)
                path.write_text(path.read_text().replace('"next": 0', '"next": 4'))
                hold.may.set()

    async with fake_spark() as spark:
        out = Meddler()
        hold = held(spark, lambda: out.events >= 3)
        plan = {"batches": 5, "rows": 3, "kill": [[0, "end"]]}
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source(plan, tmp_path, spark).run, out, None)
                await out.wait_events(6)
                nursery.cancel_scope.cancel()
    gaps = [batch.gap for batch in out.batches if batch.gap is not None]
    assert [gap.ranges for gap in gaps] == [{0: (offset_of(1, 0), offset_of(4, 0) - 1)}]
    assert places(out.batches) == [(batch, row) for batch in (0, 4) for row in range(3)]
