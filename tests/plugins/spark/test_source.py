"""A source of type spark beside what goes wrong: queries, checkpoints, a gateway that has no room."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from kiwi_gw.api import SourceFailed
from kiwi_gw.model import Batch
from kiwi_gw.testing import MemoryPublisher, check_source
from kiwi_spark.plugin import SPARK
from tests.plugins.spark.bench import context, fake_spark, memory, numbers, places, settings, source

pytestmark = pytest.mark.slow

SECONDS = 50


@asynccontextmanager
async def run_of(
    plan: Mapping[str, Any], folder: Path, out: MemoryPublisher | None = None, max_restarts: int = 2
) -> AsyncIterator[MemoryPublisher]:
    """Run the source of this plan while the block lasts; gives what it publishes to."""
    out = out or memory()
    async with fake_spark(max_restarts=max_restarts) as spark:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source(plan, folder, spark).run, out, None)
                yield out
                nursery.cancel_scope.cancel()


async def test_it_keeps_the_contract(tmp_path: Path) -> None:
    world = context(tmp_path)
    async with fake_spark() as spark:
        given = settings({"batches": 40, "rows": 4})

        def build(settings: object, context: object) -> object:
            return source({"batches": 40, "rows": 4}, tmp_path, spark)

        kind = dataclasses.replace(SPARK, build=build)  # type: ignore[arg-type]
        report = await check_source(
            kind,
            given,
            source_id="s",
            sections=world.sections,
            sources=world.sources,
            services={"spark": spark},
            timeout_seconds=SECONDS,
        )
    assert report.events >= 10


async def test_a_finite_query_ends(tmp_path: Path) -> None:
    out = memory()
    async with fake_spark() as spark:
        with trio.fail_after(SECONDS):
            await source({"over": True}, tmp_path, spark, trigger="available_now").run(out, None)
    assert len(places(out.batches)) == 15
    assert {key for batch in out.batches for key in batch.columns["key"]} <= {
        b'{"k": 0}',
        b'{"k": 1}',
        b'{"k": 2}',
    }


@pytest.mark.parametrize("trouble", ["query", "data_loss", "bad_record", "checkpoint", "no_space"])
async def test_trouble_that_trying_again_does_not_mend(tmp_path: Path, trouble: str) -> None:
    async with fake_spark() as spark:
        plan = {"fail": [trouble, "[UNRESOLVED_COLUMN] no column `x`"]}
        with trio.fail_after(SECONDS), pytest.raises(SourceFailed, match="no column `x`"):
            await source(plan, tmp_path, spark).run(memory(), None)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("trouble", ["user", "gone"])
async def test_a_query_that_always_fails_is_over_after_some_tries(tmp_path: Path, trouble: str) -> None:
    out = memory()
    async with fake_spark(max_restarts=1) as spark:
        plan = {"trouble": [1, trouble, 99]}
        with (
            trio.fail_after(SECONDS),
            pytest.raises(SourceFailed, match="failed 2 times in a row: a user fu"),
        ):
            await source(plan, tmp_path, spark).run(out, None)
    assert sorted(numbers(out.batches)) == list(range(5))


@pytest.mark.usefixtures("short_pauses")
async def test_a_query_that_fails_now_and_then_goes_on(tmp_path: Path) -> None:
    async with run_of({"trouble": [1, "user", 1]}, tmp_path, max_restarts=1) as out:
        await out.wait_events(15)
    assert sorted(numbers(out.batches)) == list(range(15))
    assert out.troubles == ["the query has failed and is started again", ""]


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("TimeoutException: waiting for a node", "the Kafka cluster does not answer"),
        (
            "UnknownTopicOrPartitionException: This server does not host this topic-partition.",
            "a Kafka topic of the query does not exist, and is waited for",
        ),
        (
            "TimeoutException: Topic out not present in metadata after 60000 ms.",
            "the topic of the results does not exist, or Kafka does not answer",
        ),
        (
            "TopicAuthorizationException: Not authorized to access topics: [x]",
            "Kafka does not let Spark use a topic of the query",
        ),
        ("SaslAuthenticationException: denied", "Kafka does not accept Spark's name and password"),
        ("SparkException: Python worker failed to connect back.", "Spark's Python workers do not start"),
    ],
)
async def test_what_does_not_answer_is_waited_for(tmp_path: Path, message: str, words: str) -> None:
    plan = {"trouble": [0, "unreachable", 2, message]}
    async with run_of(plan, tmp_path, max_restarts=0) as out:
        await out.wait_events(15)
    assert out.troubles == [words, ""]


@pytest.mark.usefixtures("short_pauses")
async def test_what_does_not_answer_is_away_until_the_query_has_looked_for_input(tmp_path: Path) -> None:
    """Though the query was started twice meanwhile, and nothing new has come since."""
    plan = {"trouble": [3, "unreachable", 2, "TimeoutException: waiting for a node"]}
    async with run_of(plan, tmp_path, max_restarts=0) as out:
        while "" not in out.troubles:
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert out.troubles == ["the Kafka cluster does not answer", ""]


async def test_the_acknowledgement_waits_for_the_gateway(tmp_path: Path) -> None:
    """Where the window has no room (policy `block`), Spark reads no further."""
    room, full = trio.Event(), trio.Event()

    class Blocked(MemoryPublisher):
        async def publish(self, batch: Batch) -> None:
            await super().publish(batch)
            if self.events == 10:
                full.set()
                await room.wait()

    def committed() -> int:
        found: int = json.loads((tmp_path / "s.json").read_text())["next"]
        return found

    async with run_of({"batches": 4, "part": 9}, tmp_path, Blocked()) as out:
        await full.wait()
        await trio.sleep(0.3)  # for what should not come
        assert (committed(), out.events) == (1, 10)
        room.set()
        await out.wait_events(20)
    assert sorted(numbers(out.batches)) == list(range(20))


@pytest.mark.usefixtures("short_pauses")
async def test_rows_of_another_query_are_not_taken(tmp_path: Path) -> None:
    out = memory()
    async with fake_spark(max_restarts=0) as spark:
        with structlog.testing.capture_logs() as lines, pytest.raises(SourceFailed):
            with trio.fail_after(SECONDS):
                await source({"query": "another"}, tmp_path, spark).run(out, None)
    assert out.batches == []
    assert any(line.get("error") == "a batch of another query" for line in lines)


async def test_bad_records_are_in_the_log(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines, trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            plan = {"bad": 3, "batches": 1, "over": True}
            await source(plan, tmp_path, spark, trigger="available_now").run(memory(), None)
    (line,) = [line for line in lines if line["event"] == "records could not be decoded"]
    assert (line["count"], line["sample"]) == (3, "{")


@pytest.mark.cost
async def test_a_hundred_thousand_rows_do_not_hold_the_event_loop(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """What is asserted is the processor's time: how long one step runs, not what else the machine does."""

    class Steps(trio.abc.Instrument):
        longest = 0.0
        began: float | None = None

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.began = time.thread_time()

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            if self.began is not None:
                self.longest = max(self.longest, time.thread_time() - self.began)

    class Counter(MemoryPublisher):
        """Without the checks, which take longer than the source."""

        async def publish(self, batch: Batch) -> None:
            self._events += len(batch)
            self._changed.unpark_all()
            await trio.lowlevel.checkpoint()

    out, steps = Counter(), Steps()
    plan = {"batches": 1, "rows": 100_000, "part": 20_000}
    async with fake_spark(stage_bytes=1_000_000) as spark:
        await spark.driver.ready()
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                trio.lowlevel.add_instrument(steps)
                nursery.start_soon(source(plan, tmp_path, spark).run, out, None)
                await out.wait_events(100_000)
                trio.lowlevel.remove_instrument(steps)
                nursery.cancel_scope.cancel()
    figure("Spark source: longest step while 100,000 rows are taken", f"{steps.longest * 1000:.2f} ms")
    assert steps.longest < 0.01
