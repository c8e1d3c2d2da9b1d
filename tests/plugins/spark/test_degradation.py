"""What subscribers are told of a query's troubles, and when these are over. No driver, no process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
import trio

from kiwi_gw.api import SourceContext
from kiwi_gw.model import Positions
from kiwi_gw.testing import MemoryPublisher
from kiwi_spark.driver.progress import follow, follow_remote
from kiwi_spark.gateway.batches import SourceBatches
from kiwi_spark.gateway.driver_supervisor import DriverState
from kiwi_spark.gateway.positions import SCHEMA
from kiwi_spark.gateway.query_run import RunEnd
from kiwi_spark.gateway.query_supervisor import DEGRADED_BY, DRIVER_AWAY, QuerySupervisor
from kiwi_spark.gateway.schema_fit import MANY, NONE_FITS
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.gateway.source import SparkSource
from kiwi_spark.protocol.messages import BatchProgress, Message, QueryIdle, QueryReads, QueryStarted
from tests.plugins.spark.bench import context, settings

pytestmark = pytest.mark.usefixtures("short_pauses")

AWAY = RunEnd("unreachable", "TimeoutException: no node")
RAISED, GONE = RunEnd("user", "ZeroDivisionError"), RunEnd("gone", "SparkException: FAILED_READ_FILE")
LOST, ENDED = RunEnd(message="SIGKILL", lost=True), RunEnd()
STARTED, IDLE, READS, WRITES, DONE = (
    QueryStarted(run=1, query="q", next_batch=0),
    QueryIdle(run=1),
    QueryReads(run=1),
    QueryReads(run=1, writes=True),
    BatchProgress(run=1, batch=0, input_rows=1, seconds=0.1),
)
ONE_BAD = BatchProgress(run=1, batch=0, input_rows=1, bad=1, seconds=0.1)
MANY_BAD = BatchProgress(run=1, batch=0, input_rows=MANY, bad=MANY, seconds=0.1)
NO_INPUT = BatchProgress(run=1, batch=0, input_rows=0, seconds=0.1)

REPORT = json.dumps(
    {
        "id": str(UUID(int=1)),
        "runId": str(UUID(int=2)),
        "name": "a name\u2028of\x85lines",
        "timestamp": "2013-01-01T00:00:00.000Z",
        "batchId": 4,
        "batchDuration": 250,
        "numInputRows": 9,
        "stateOperators": [],
        "sources": [],
        "sink": {"description": "", "numOutputRows": 3},
    },
    ensure_ascii=False,
)
"""What Spark says of a batch."""

Step = Sequence[object]
"""One run: what its driver says, and why it ended, if it did."""


class ScriptedRun:
    def __init__(self, step: Step, told: Callable[[Any], None]) -> None:
        self._step = step
        self._told = told

    async def started(self) -> QueryStarted | RunEnd:
        await trio.lowlevel.checkpoint()
        return cast("QueryStarted | RunEnd", self._step[0])

    async def rows(self) -> None:
        await trio.lowlevel.checkpoint()

    async def ended(self) -> RunEnd:
        await trio.lowlevel.checkpoint()
        for said in self._step[1:]:
            if isinstance(said, RunEnd):
                return said
            self._told(said)
        await trio.sleep_forever()
        raise AssertionError


class ScriptedSpark:
    """A service, and its driver, whose runs are written down."""

    state = DriverState.READY
    max_restarts = 9
    deaths = pid = 0
    spark = ""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.driver = self
        self.threads = trio.CapacityLimiter(1)
        self._batches = SourceBatches()
        self._steps = iter(steps)

    async def ready(self) -> None:
        await trio.lowlevel.checkpoint()

    def batches(self, source_id: str) -> SourceBatches:
        return self._batches

    @asynccontextmanager
    async def run(self, query: object, told: Callable[[Any], None]) -> AsyncIterator[ScriptedRun]:
        await trio.lowlevel.checkpoint()
        yield ScriptedRun(next(self._steps), told)


async def told(folder: Path, *steps: Step, **more: str) -> list[str]:
    """Of these runs, until the last one waits for ever or the query is over."""
    spark = cast("SparkService", ScriptedSpark(steps))
    runner = QuerySupervisor(
        settings({}, **more), SourceContext("s", context(folder), {"spark": spark}), spark
    )
    found: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.run_beside, found.append, lambda: None)
        await trio.testing.wait_all_tasks_blocked(0.1)
        nursery.cancel_scope.cancel()
    return found


ISNT_THERE, HAS_FAILED, HAS_ENDED = DEGRADED_BY["unreachable"], DEGRADED_BY["user"], DEGRADED_BY["gone"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[AWAY], [STARTED]], [ISNT_THERE]),
        ([[AWAY], [STARTED, IDLE]], [ISNT_THERE, ""]),
        ([[AWAY], [STARTED, LOST], [STARTED]], [ISNT_THERE, DRIVER_AWAY, ISNT_THERE]),
        ([[STARTED, RAISED], [LOST], [STARTED, RAISED], [STARTED]], [HAS_FAILED, DRIVER_AWAY, HAS_FAILED]),
        ([[STARTED, RAISED], [STARTED, IDLE]], [HAS_FAILED]),
        ([[STARTED, RAISED], [STARTED, DONE]], [HAS_FAILED, ""]),
        ([[AWAY], [STARTED, READS]], [ISNT_THERE, ""]),
        ([[STARTED, RAISED], [STARTED, READS]], [HAS_FAILED]),
        ([[STARTED, RAISED], [STARTED, READS, WRITES]], [HAS_FAILED, ""]),
        ([[LOST], [STARTED]], [DRIVER_AWAY, ""]),
        ([[STARTED, GONE], [STARTED, GONE], [STARTED]], [HAS_ENDED]),
        ([[STARTED, GONE], [STARTED, IDLE, GONE], [STARTED]], [HAS_ENDED, "", HAS_ENDED]),
        ([[AWAY], [GONE], [STARTED, AWAY], [STARTED]], [ISNT_THERE, HAS_ENDED, ISNT_THERE]),
        (
            [[AWAY], [STARTED, IDLE, GONE], [STARTED, AWAY], [STARTED]],
            [ISNT_THERE, "", HAS_ENDED, ISNT_THERE],
        ),
    ],
)
async def test_a_trouble_lasts_until_the_query_has_shown_that_it_is_over(
    tmp_path: Path, steps: list[Step], expected: list[str]
) -> None:
    """Being started again shows nothing but that there is a driver."""
    assert await told(tmp_path, *steps) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[STARTED, ONE_BAD, IDLE, NO_INPUT]], [NONE_FITS]),
        ([[STARTED, ONE_BAD, DONE]], [NONE_FITS, ""]),
        ([[STARTED, DONE, ONE_BAD]], []),
        ([[STARTED, DONE, MANY_BAD, DONE]], [NONE_FITS, ""]),
        ([[STARTED, ONE_BAD, LOST], [STARTED]], [NONE_FITS, DRIVER_AWAY, NONE_FITS]),
        ([[STARTED, ONE_BAD, AWAY], [STARTED, IDLE]], [NONE_FITS, ISNT_THERE, NONE_FITS]),
    ],
)
async def test_it_is_told_that_no_record_fits_the_schema(
    tmp_path: Path, steps: list[Step], expected: list[str]
) -> None:
    assert await told(tmp_path, *steps) == expected


async def test_a_query_that_ends_by_itself_ends_its_trouble(tmp_path: Path) -> None:
    """Also where nobody says that it has looked for input (Spark Connect)."""
    assert await told(tmp_path, [AWAY], [STARTED, ENDED], trigger="available_now") == [ISNT_THERE, ""]


async def test_being_ready_does_not_end_a_trouble_that_there_still_is(tmp_path: Path) -> None:
    class SourceHub(MemoryPublisher):
        """As the gateway's own: being ready is being out of trouble."""

        async def ready(self, positions: Positions) -> None:
            await super().ready(positions)
            self.report_degraded("")

    out, spark = (
        SourceHub(SCHEMA),
        cast("SparkService", ScriptedSpark([[AWAY], [STARTED, AWAY], [STARTED]])),
    )
    source = SparkSource(settings({}), SourceContext("s", context(tmp_path), {"spark": spark}), spark)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.run, out, None)
        await trio.testing.wait_all_tasks_blocked(0.1)
        nursery.cancel_scope.cancel()
    assert out.troubles == [ISNT_THERE, "", ISNT_THERE]
    assert not source.statistics().reachable


class ConnectEngine:
    """A query over Spark Connect that says what it does, each time that it is asked, and then fails."""

    recentProgress = ()  # noqa: N815

    def __init__(self, *messages: str) -> None:
        self._messages = list(messages)

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        if not self._messages:
            raise RuntimeError("Kafka has never answered")
        return False

    @property
    def status(self) -> dict[str, object]:
        return {"message": self._messages.pop(0), "isDataAvailable": False, "isTriggerActive": False}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (["Initializing sources", "Getting offsets from KafkaV2[Subscribe[a]]"], []),
        (["Getting offsets from KafkaV2[Subscribe[a]]", "Waiting for next trigger"], [QueryIdle(run=7)]),
        (["Waiting for data to arrive"], [QueryIdle(run=7)]),
    ],
)
def test_a_query_over_connect_has_looked_for_input_when_it_waits_for_the_next_time(
    messages: list[str], expected: list[Message]
) -> None:
    said: list[Message] = []
    with pytest.raises(RuntimeError, match="never"):
        follow_remote(ConnectEngine(*messages), 7, [], said.append)
    assert said == expected


class LocalQuery:
    """A query in the JVM that has ended, and failed, once all was said of it."""

    def __init__(self, *reports: str) -> None:
        self._reports = list(reports)

    @property
    def isActive(self) -> bool:  # noqa: N802
        return len(self._reports) > 1

    runId = UUID(int=2)  # noqa: N815

    def take(self, run: str, milliseconds: int) -> str:
        assert run == str(self.runId)
        return self._reports.pop(0) if self._reports else ""

    def awaitTermination(self) -> None:  # noqa: N802
        raise RuntimeError("Kafka has never answered")


@pytest.mark.parametrize("last", [["over"], [f"{REPORT}\nover"], [REPORT], ["", REPORT, ""], []])
def test_all_is_told_that_spark_says_of_a_query_in_the_jvm(last: list[str]) -> None:
    """Also where Spark does not say that it is over."""
    said: list[Message] = []
    query = LocalQuery("idle", "", f"{REPORT}\nidle\n{REPORT}", *last)
    with pytest.raises(RuntimeError, match="never"):
        follow(query, query, 7, {}, said.append)
    reports = 2 + sum(one.count("{") > 0 for one in last)
    assert [type(one) for one in said].count(QueryIdle) == 2
    done = [one for one in said if isinstance(one, BatchProgress)]
    assert [(one.batch, one.input_rows, one.seconds) for one in done] == [(4, 9, 0.25)] * reports


def test_it_is_told_once_that_a_query_reads_and_that_it_writes() -> None:
    said: list[Message] = []
    query = LocalQuery("", "", "", "", "over")
    progress = iter([0, 1, 1, 2, 2])
    with pytest.raises(RuntimeError, match="never"):
        follow(query, query, 7, {}, said.append, lambda: next(progress))
    assert said == [QueryReads(run=7), QueryReads(run=7, writes=True)]
