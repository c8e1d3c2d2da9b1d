"""The service `spark`: one driver for all queries of the gateway."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast
from weakref import WeakValueDictionary

import msgspec
import structlog
import trio

from kiwi_gw.api import PluginContext, SourceFailed
from kiwi_spark.connection import Connection
from kiwi_spark.frames import Message
from kiwi_spark.inbox import Commit, Inbox
from kiwi_spark.runs import Over, Run
from kiwi_spark.secrecy import options_of, without_secrets
from kiwi_spark.settings import SparkSettings
from kiwi_spark.spec import Query
from kiwi_spark.stage import Stage, StageBudget
from kiwi_spark.states import State
from kiwi_spark.supervisor import Launch, Supervisor
from kiwi_spark.suspects import GUILTY, Suspects
from kiwi_spark.wire import Analyse, Analysed, Ended, Idle, Progress, Start, Stop

log = structlog.get_logger("kiwi_spark")

_GRACE_SECONDS = 0.4
"""How long queries may take to stop when the driver is to end. They go on from their checkpoints."""

LEFT_SECONDS = 60.0
"""How long a source that was stopped may take until it goes on."""

_LOOK_SECONDS = 1.0
"""How often a query that is held back looks whether its turn has come, if nothing tells it."""


@dataclass(slots=True)
class Cargo:
    """A batch that was committed and is not wholly published yet.

    taken: how many of its rows are. announced: whether it was said what is missing before it.
    """

    commit: Commit
    stage: Stage
    taken: int = 0
    announced: bool = False


@dataclass(slots=True)
class Lane:
    """What is known of the batches of a source. It outlives a source that fails and is built again.

    inbox: None before its query has ever started. cargo: what it must publish first.
    """

    inbox: Inbox | None = None
    cargo: Cargo | None = None
    _owner: object = None
    _left_at: float = math.inf

    def enter(self, owner: object) -> None:
        """A source goes on here."""
        self._owner, self._left_at = owner, math.inf

    def leave(self, owner: object) -> None:
        """It was stopped. If none of its id is built again soon, none will be."""
        if self._owner is owner:
            self._left_at = trio.current_time()

    def tidy(self) -> None:
        """What is staged for a source that was taken away is in the way of others."""
        if trio.current_time() - self._left_at > LEFT_SECONDS:
            self._left_at = math.inf
            self.clear()

    def clear(self) -> None:
        """Begin anew."""
        if self.cargo is not None:
            self.cargo.stage.close()
        self.inbox = self.cargo = None


_LAST: Final = WeakValueDictionary[tuple[str, str], Run]()
"""The last run of a query, by its checkpoint, in any driver of this process: after a reload there may be two
for a moment, and only one of them may use a checkpoint."""


class Spark:
    """What sources use: `run` has the driver run a query, `analyse` has it look at one."""

    def __init__(self, launch: Launch, stage_bytes: int, max_restarts: int) -> None:
        self.max_restarts = max_restarts
        self.budget = StageBudget(stage_bytes)
        self.threads = trio.CapacityLimiter(2)
        self._numbers = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._lanes: dict[str, Lane] = {}
        self._scope = trio.CancelScope(shield=True)
        self._suspects = Suspects()
        self._waiting = Counter[str]()
        self._stirred = trio.Event()
        self.driver = Supervisor(launch, self._message, self._rows, self._gone)

    @property
    def state(self) -> State:
        """The driver's."""
        return self.driver.state

    def lane(self, source_id: str) -> Lane:
        """What this source, or one of its id that was built before it, knows of its batches."""
        return self._lanes.setdefault(source_id, Lane())

    @asynccontextmanager
    async def run(self, query: Query, told: Callable[[Progress | Idle], None]) -> AsyncIterator[Run]:
        """Have the driver run a query as long as the block lasts. Waits for the driver, for the end of the
        query that the source had before, and for its turn where one of them seems to kill the driver
        (`suspects`). told: of every batch.

        SourceFailed: no driver can be started, or they die of this query.
        """
        self._waiting[query.source] += 1
        try:
            await self._turn(query)
        finally:
            self._waiting[query.source] -= 1
            self._stir()
        run = _LAST[query.checkpoint, query.source] = self._begin(query, told)
        self.driver.send(Start(run=run.number, query=query))
        try:
            yield run
        finally:
            if run.over is None:
                self.driver.send(Stop(run=run.number))

    async def _turn(self, query: Query) -> None:
        """Until it may be started: at once then, for nothing is awaited behind the last look."""
        source = query.source
        while True:
            await self.driver.ready()
            if self._suspects.guilty(source):
                self._suspects.proved(source)  # if it is altered it is another one
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
                    await self._stirred.wait()

    def _may_start(self, source: str) -> bool:
        unproved = {run.query.source for run in self._runs.values() if run.query and not run.proved}
        if self._suspects.suspected(source):
            return not unproved
        return not any(map(self._suspects.suspected, {*unproved, *+self._waiting}))

    def _stir(self) -> None:
        """Whose turn it is may be another question now."""
        self._stirred.set()
        self._stirred = trio.Event()

    async def analyse(self, query: Query, *, explain: bool = False) -> Analysed | Over:
        """What Spark says about a query that is not run; Over if the driver went away meanwhile.

        SourceFailed: no driver can be started.
        """
        await self.driver.ready()
        run = self._begin(None, _untold)
        self.driver.send(Analyse(run=run.number, query=query, explain=explain))
        over = await run.ended()
        found = run.analysed
        if found is None:
            return over
        error, plan = self._blanked(found.error, query), self._blanked(found.plan, query)
        return msgspec.structs.replace(found, error=error, plan=plan)

    # --- life ---

    async def serve(self) -> None:
        """Until `stop`. Cancellation alone does not end it: queries are to be stopped in order."""
        with self._scope:
            await self.driver.serve()

    async def stop(self) -> None:
        """Stop all queries, then the driver. Takes about a second and a half at most; not cancelled."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(_GRACE_SECONDS):
                for run in list(self._runs.values()):
                    if run.over is None:
                        self.driver.send(Stop(run=run.number))
                for run in list(self._runs.values()):
                    await run.ended()
            self._scope.cancel()
            for lane in self._lanes.values():
                lane.clear()

    def closed(self) -> None:
        """The driver is no more, and nothing that it ran."""
        for run in self._runs.values():
            run.end(Over(message="the Spark driver was stopped", lost=True))

    # --- what the driver says ---

    def _begin(self, query: Query | None, told: Callable[[Progress | Idle], None]) -> Run:
        run = Run(next(self._numbers), query, told)
        self._runs[run.number] = run
        self.driver.busy(True)
        return run

    def _message(self, message: Message) -> None:
        run = self._runs.get(getattr(message, "run", 0))
        if run is None:
            log.debug("about a query that is over", message=type(message).__name__)
            return
        if isinstance(message, Ended) and run.query is not None:  # subscribers are told
            message = msgspec.structs.replace(message, message=self._blanked(message.message, run.query))
        run.receive(message)
        if run.worked and run.query is not None:
            self._suspects.proved(run.query.source)
        if isinstance(message, Idle | Progress | Ended):
            self._stir()
            for lane in self._lanes.values():
                lane.tidy()
        if isinstance(message, Ended | Analysed):
            del self._runs[run.number]
            if not self._runs:
                self.driver.busy(False)

    def _blanked(self, text: str, query: Query) -> str:
        return without_secrets(text, options_of(query), also=(self.driver.token,))

    def _rows(self, role: str, connection: Connection) -> None:
        run = self._runs.get(int(role)) if role.isascii() and role.isdigit() else None
        if run is None:
            connection.close()
        else:
            run.rows_came(connection)

    def _gone(self, problem: str) -> None:
        runs, self._runs = self._runs, {}
        queries = [run for run in runs.values() if run.query is not None]
        unproved = [run.query.source for run in queries if run.query is not None and not run.proved]
        others = len(queries) > 1 or any(+self._waiting)
        self._suspects.died(unproved, others=others)
        self._stir()
        for run in runs.values():
            run.end(Over(message=problem, lost=True))


@asynccontextmanager
async def serving(launch: Launch, stage_bytes: int, max_restarts: int) -> AsyncIterator[Spark]:
    """A service with this driver, open as long as the block lasts."""
    spark = Spark(launch, stage_bytes, max_restarts)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spark.serve)
            try:
                yield spark
            finally:
                await spark.stop()
    finally:
        spark.closed()


@asynccontextmanager
async def open_spark(context: PluginContext) -> AsyncIterator[Spark]:
    """The service, for one section `spark`. The driver starts meanwhile: nobody waits for it here."""
    from kiwi_spark.resolve import prepare

    settings = cast("SparkSettings", context.section("spark"))
    launch = Launch(
        prepare=lambda: prepare(settings),
        nice=settings.nice,
        start_seconds=settings.start_timeout_ms / 1000,
        max_restarts=settings.max_restarts,
    )
    async with serving(launch, settings.stage_bytes, settings.max_restarts) as spark:
        yield spark


def _untold(progress: Progress | Idle) -> None:
    """A query that is analysed has no batches."""
