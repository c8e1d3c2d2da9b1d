"""Every row of a query in real time once, wherever the driver dies, on a driver that repeats what it has
sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_gw.api import SourceChanged, SourceFailed
from kiwi_gw.model import Batch
from kiwi_gw.testing import MemoryPublisher
from kiwi_spark.gateway.positions import RECORD_ROWS, partition_of
from kiwi_spark.gateway.service import SparkService
from tests.plugins.spark.bench import fake_spark, memory, source

POINTS = ("before", "within", "after", "end", "acked")
SECONDS = 50
PLAN = {"real_time": True, "batches": 3, "rows": 6}
ZERO, ONE = partition_of(0, 0), partition_of(0, 1)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses")]


def rows_of(first: int, stop: int) -> list[tuple[int, int, int]]:
    """Return partition, offset and row of all rows that these records make."""
    return sorted((p, n, row) for p in (0, 1) for n in range(first, stop) for row in range(n % 3))


def found(batches: list[Batch]) -> list[tuple[object, ...]]:
    names = ("from_partition", "from_offset", "row")
    columns = ([batch.columns[name] for name in names] for batch in batches)
    return sorted(row for one in columns for row in zip(*one, strict=True))


async def collect(
    plan: Mapping[str, Any],
    folder: Path,
    spark: SparkService,
    events: int,
    start: Mapping[int, int] | None = None,
) -> MemoryPublisher:
    """Run the source until it has published so many events, and its last epoch is done."""
    out = memory(start)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source(plan, folder, spark).run, out, start)
            await out.wait_events(events)
            await trio.sleep(0.1)  # for what should not come
            nursery.cancel_scope.cancel()
    return out


@pytest.mark.parametrize("how", ["kill", "drop"])
@pytest.mark.parametrize("point", POINTS)
async def test_the_driver_or_its_connection_is_lost(tmp_path: Path, point: str, how: str) -> None:
    async with fake_spark() as spark:
        out = await collect({**PLAN, how: [[1, point]]}, tmp_path, spark, 36)
        assert spark.driver.deaths == (how == "kill")
    assert found(out.batches) == rows_of(0, 18)


async def test_every_epoch_is_cut_off_at_every_point(tmp_path: Path) -> None:
    plan = {**PLAN, "drop": [[epoch, point] for epoch in range(3) for point in POINTS]}
    async with fake_spark(max_restarts=20) as spark:
        out = await collect(plan, tmp_path, spark, 36)
    assert found(out.batches) == rows_of(0, 18)


async def test_a_record_at_which_a_query_fails_every_time_fails_the_source(tmp_path: Path) -> None:
    """Though rows of others come each time, before it: only an epoch that is done is progress."""
    out = memory()
    async with fake_spark(max_restarts=2) as spark:
        with trio.fail_after(SECONDS), pytest.raises(SourceFailed, match="failed 3 times in a row: Stuck"):
            await source({**PLAN, "stuck": [1, "after"]}, tmp_path, spark).run(out, None)
    assert found(out.batches) == rows_of(0, 12)


async def test_positions_are_those_of_the_input(tmp_path: Path) -> None:
    async with fake_spark() as spark:
        out = await collect({**PLAN, "begin": 100, "end": 400}, tmp_path, spark, 36)
    assert out.ready_at == {ZERO: 100 * RECORD_ROWS, ONE: 100 * RECORD_ROWS}
    assert out.expected == {ZERO: 400 * RECORD_ROWS, ONE: 400 * RECORD_ROWS}
    assert found(out.batches) == rows_of(100, 118)


async def test_positions_begin_behind_the_last_rows(tmp_path: Path) -> None:
    """Though the query begins further on: what lies between has made none, so nobody misses anything."""
    async with fake_spark() as spark:
        out = await collect({**PLAN, "begin": 100, "had": {"1": (97, 2)}}, tmp_path, spark, 36)
    assert out.ready_at == {ZERO: 100 * RECORD_ROWS, ONE: 97 * RECORD_ROWS + 2}
    assert found(out.batches) == rows_of(100, 118)


async def test_a_gateway_that_starts_again_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    """What was given out since comes again, so that who has had some of it can go on there."""
    async with fake_spark() as spark:
        await collect({**PLAN, "kill": [[2, "after"]]}, tmp_path, spark, 36)
    first = 6 * json.loads((tmp_path / "s.json").read_text())["next"]
    async with fake_spark() as spark:
        out = await collect({**PLAN, "batches": 5}, tmp_path, spark, len(rows_of(first, 30)))
    assert out.ready_at == {ZERO: first * RECORD_ROWS, ONE: first * RECORD_ROWS}
    assert found(out.batches) == rows_of(first, 30)


async def test_a_source_that_is_built_again_goes_on_within_a_record(tmp_path: Path) -> None:
    start = {ZERO: 5 * RECORD_ROWS + 1, ONE: 8 * RECORD_ROWS}
    async with fake_spark() as spark:
        out = await collect(PLAN, tmp_path, spark, 24, start)
    assert out.ready_at == start
    had = {(0, n, row) for n in range(6) for row in range(n % 3)} - {(0, 5, 1)}
    had |= {(1, n, row) for n in range(8) for row in range(n % 3)}
    assert found(out.batches) == sorted(set(rows_of(0, 18)) - had)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({0: 5}, "the query runs in real time now"),
        ({ZERO: 5 * RECORD_ROWS}, "other partitions than before"),
        ({ZERO: 5 * RECORD_ROWS, ONE: 0, ONE + 1: 0}, "other partitions than before"),
    ],
)
async def test_a_source_that_cannot_go_on(tmp_path: Path, start: dict[int, int], words: str) -> None:
    async with fake_spark() as spark:
        with trio.fail_after(SECONDS), pytest.raises(SourceChanged, match=words):
            await source({**PLAN, "begin": 3}, tmp_path, spark).run(memory(start), start)


async def test_another_checkpoint(tmp_path: Path) -> None:
    """It goes on where nothing is missing, and else is another source."""
    out, plan = memory(), {**PLAN, "begin": 3, "batches": 1}
    async with fake_spark() as spark:
        running = source(plan, tmp_path, spark)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.run, out, None)
                await out.wait_events(12)
                nursery.cancel_scope.cancel()
    where = dict(out.positions)
    for begin, words in ((8, ""), (9, "the checkpoint of the query is another one")):
        (tmp_path / "s.json").write_text(json.dumps({"query": f"other{begin}", "next": 0, "done": []}))
        async with fake_spark() as spark:
            spark.batches("s").query = "q"
            again = source({**PLAN, "begin": begin}, tmp_path, spark)
            with trio.fail_after(SECONDS):
                if words:
                    with pytest.raises(SourceChanged, match=words):
                        await again.run(memory(where), where)
                else:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(again.run, more := memory(where), where)
                        await more.wait_events(len(rows_of(9, 26)))
                        nursery.cancel_scope.cancel()


async def test_micro_batches_after_real_time_are_another_source(tmp_path: Path) -> None:
    start = {ZERO: 5 * RECORD_ROWS}
    async with fake_spark() as spark:
        with trio.fail_after(SECONDS), pytest.raises(SourceChanged, match="runs in micro-batches now"):
            await source({}, tmp_path, spark).run(memory(start), start)
