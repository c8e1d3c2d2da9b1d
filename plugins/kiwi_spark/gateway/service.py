"""The service `spark`: one driver for all queries of the gateway, and the runs of queries in it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast
from weakref import WeakValueDictionary

import msgspec
import structlog
import trio

from kiwi_gw.api import PluginContext, SourceFailed
from kiwi_spark.gateway.batches import SourceBatches, SpoolBudget
from kiwi_spark.gateway.crash_attribution import GUILTY, CrashAttribution
from kiwi_spark.gateway.driver_supervisor import DriverSupervisor, Launch, MessageConnection
from kiwi_spark.gateway.query_run import Progress, QueryRun, RunEnd
from kiwi_spark.gateway.query_turns import QueryTurns
from kiwi_spark.gateway.redaction import options_of, redact
from kiwi_spark.gateway.settings import SparkSettings
from kiwi_spark.protocol.messages import (
    AnalyseQuery,
    BatchProgress,
    Message,
    QueryAnalysed,
    QueryEnded,
    QueryIdle,
    StartQuery,
    StartRangeQuery,
    StopQuery,
)
from kiwi_spark.protocol.query_spec import QuerySpec
from kiwi_spark.protocol.range_query import RangeQuery

log = structlog.get_logger("kiwi_spark")

_GRACE_SECONDS = 0.4
"""How long queries may take to stop when the driver is to end. They go on from their checkpoints."""

_LOOK_SECONDS = 1.0
"""How often a query that is held back checks whether it may start, if nothing wakes it."""

_LAST: Final = WeakValueDictionary[tuple[str, str], QueryRun]()
"""The last run of a query, by its checkpoint, in any driver of this process: after a reload there may be two
for a moment, and only one of them may use a checkpoint."""


class SparkService:
    """What sources use: `run` has the driver run a query, `analyse` has it look at one, `compute` has it run
    one over ranges of topics. turns: of the latter."""

    def __init__(self, launch: Launch, stage_bytes: int) -> None:
        self.max_restarts = launch.max_restarts
        self.budget = SpoolBudget(stage_bytes)
        self.threads = trio.CapacityLimiter(2)
        self._numbers = itertools.count(1)
        self._runs: dict[int, QueryRun] = {}
        self._batches: dict[str, SourceBatches] = {}
        self._scope = trio.CancelScope(shield=True)
        self._crashes = CrashAttribution()
        self._waiting = Counter[str]()
        self.turns = QueryTurns()
        self._woken = trio.lowlevel.ParkingLot()
        self.driver = DriverSupervisor(launch, self._message, self._rows, self._gone)

    def batches(self, source_id: str) -> SourceBatches:
        """Return what is known of the batches of a source, also of one of its id that was built before."""
        return self._batches.setdefault(source_id, SourceBatches())

    @asynccontextmanager
    async def run(self, query: QuerySpec, on_progress: Callable[[Progress], None]) -> AsyncIterator[QueryRun]:
        """Have the driver run a query as long as the block lasts. Waits for the driver, for the end of the
        query that the source had before, and for its turn where one of them seems to kill the driver
        (`crash_attribution`). on_progress: called for every batch.

        SourceFailed: no driver can be started, or they die of this query.
        """
        self._waiting[query.source] += 1
        try:
            await self._wait_to_start(query)
        finally:
            self._waiting[query.source] -= 1
            self._wake_waiting()
        run = QueryRun(next(self._numbers), query, on_progress)
        self._begin(run, StartQuery(run=run.number, query=query))
        _LAST[query.checkpoint, query.source] = run
        try:
            yield run
        finally:
            if run.over is None:
                self.driver.send(StopQuery(run=run.number))

    async def _wait_to_start(self, query: QuerySpec) -> None:
        """Wait until it may be started: at once then, for nothing is awaited behind the last check."""
        source = query.source
        while True:
            await self.driver.ready()
            if self._crashes.guilty(source):
                self._crashes.proved(source)  # if it is altered it is another one
                raise SourceFailed(
                    f"the Spark driver has died {GUILTY} times when it began to run this query "
                    f"({self.driver.problem}): the others go on without it"
                )
            before = _LAST.get((query.checkpoint, source))
            if before is not None and before.over is None:
                await before.ended()
            elif self._may_start(source):
                return
            else:
                with trio.move_on_after(_LOOK_SECONDS):
                    await self._woken.park()

    def _may_start(self, source: str) -> bool:
        unproved = {run.query.source for run in self._runs.values() if run.query and not run.proved}
        if self._crashes.suspected(source):
            return not unproved
        return not any(map(self._crashes.suspected, {*unproved, *+self._waiting}))

    def _wake_waiting(self) -> None:
        """Have queries that are held back check again whether they may start."""
        self._woken.unpark_all()

    async def analyse(self, query: QuerySpec, *, explain: bool = False) -> QueryAnalysed | RunEnd:
        """Return what Spark says about a query that is not run; RunEnd if the driver went away meanwhile.

        SourceFailed: no driver can be started.
        """
        await self.driver.ready()
        run = QueryRun(next(self._numbers), None)
        self._begin(run, AnalyseQuery(run=run.number, query=query, explain=explain))
        over = await run.ended()
        found = run.analysed
        if found is None:
            return over
        error, plan = self._redacted(found.error, query), self._redacted(found.plan, query)
        return msgspec.structs.replace(found, error=error, plan=plan)

    @asynccontextmanager
    async def compute(self, query: RangeQuery) -> AsyncIterator[QueryRun]:
        """Have the driver run a query over ranges of topics as long as the block lasts, when it is its turn
        and the driver is there. The turn is another's when the driver has stopped it.

        SourceFailed: too many wait for their turns, or no driver can be started.
        """
        number, run = next(self._numbers), None
        await self.turns.take(number)
        try:
            await self.driver.ready()
            asked = QueryRun(number, None, ranges=query)
            self._begin(asked, StartRangeQuery(run=number, query=query))
            run = asked
            yield run
        finally:
            if run is not None and run.over is None:
                self.driver.send(StopQuery(run=number))
            else:
                self.turns.give_back(number)

    # --- life ---

    async def serve(self) -> None:
        """Serve until `stop`. Cancellation alone does not end it: queries are to be stopped in order."""
        try:
            with self._scope:
                await self.driver.serve()
        finally:
            for run in self._runs.values():
                run.end(RunEnd(message="the Spark driver was stopped", lost=True))

    async def stop(self) -> None:
        """Stop all queries, then the driver. Takes about a second and a half at most; not cancelled."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(_GRACE_SECONDS):
                for run in list(self._runs.values()):
                    if run.over is None:
                        self.driver.send(StopQuery(run=run.number))
                for run in list(self._runs.values()):
                    await run.ended()
            self._scope.cancel()
            for batches in self._batches.values():
                batches.clear()

    # --- what the driver says ---

    def _begin(self, run: QueryRun, message: Message) -> None:
        """Have the driver begin a run. There is none if the message cannot be written, which raises."""
        self.driver.send(message)
        self._runs[run.number] = run  # before it can have answered

    def _message(self, message: Message) -> None:
        run = self._runs.get(getattr(message, "run", 0))
        if run is None:
            log.debug("about a query that is over", message=type(message).__name__)
            return
        asked = run.query or run.ranges
        if isinstance(message, QueryEnded) and asked is not None:  # subscribers see it
            message = msgspec.structs.replace(message, message=self._redacted(message.message, asked))
        run.receive(message)
        if run.worked and run.query is not None:
            self._crashes.proved(run.query.source)
        if isinstance(message, QueryIdle | BatchProgress | QueryEnded):
            self._wake_waiting()
            for batches in self._batches.values():
                batches.clear_if_abandoned()
        if isinstance(message, QueryEnded | QueryAnalysed):
            del self._runs[run.number]
            self.turns.give_back(run.number)

    def _redacted(self, text: str, query: QuerySpec | RangeQuery) -> str:
        return redact(text, options_of(query), also=(self.driver.token,))

    def _rows(self, role: str, connection: MessageConnection) -> None:
        run = self._runs.get(int(role)) if role.isascii() and role.isdigit() else None
        if run is None:
            connection.close()
        else:
            run.rows_came(connection)

    def _gone(self, problem: str) -> None:
        runs, self._runs = self._runs, {}
        queries = [run for run in runs.values() if run.query is not None]
        unproved = [run.query.source for run in queries if run.query is not None and not run.proved]
        for run in queries:
            if run.query is not None and run.proved:
                self._crashes.proved(run.query.source)
        others = len(queries) > 1 or any(+self._waiting)
        if not any(run.ranges for run in runs.values()):  # which it may as well have died of
            self._crashes.died(unproved, others=others)
        self._wake_waiting()
        for run in runs.values():
            run.end(RunEnd(message=problem, lost=True))
            self.turns.give_back(run.number)


@asynccontextmanager
async def serving(launch: Launch, stage_bytes: int) -> AsyncIterator[SparkService]:
    """Open a service with this driver, as long as the block lasts."""
    spark = SparkService(launch, stage_bytes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(spark.serve)
        try:
            yield spark
        finally:
            await spark.stop()


@asynccontextmanager
async def open_spark(context: PluginContext) -> AsyncIterator[SparkService]:
    """Open the service, for one section `spark`. The driver starts meanwhile: it is not waited for here."""
    from kiwi_spark.gateway.resolve import prepare

    settings = cast("SparkSettings", context.section("spark"))
    launch = Launch(
        prepare=lambda: prepare(settings),
        nice=settings.nice,
        start_seconds=settings.start_timeout_ms / 1000,
        max_restarts=settings.max_restarts,
        longest_pause=settings.restart_pause_ms / 1000,
    )
    async with serving(launch, settings.stage_bytes) as spark:
        yield spark
