"""The results of a query as a source."""

from __future__ import annotations

from functools import partial
from typing import cast

import structlog
import trio

from kiwi_gw.api import (
    Out,
    Positions,
    Section,
    Source,
    SourceChanged,
    SourceContext,
    SourceFailed,
    SourceStatistics,
)
from kiwi_spark.connection import Connection
from kiwi_spark.frames import WireError
from kiwi_spark.inbox import Commit, Inbox, Keep, Repeated, TooManyRowsError
from kiwi_spark.pieces import count, lost, pieces
from kiwi_spark.query import QueryRunner
from kiwi_spark.runs import Run
from kiwi_spark.service import Cargo, Lane, Spark
from kiwi_spark.settings import SparkSourceSettings
from kiwi_spark.shape import offset_of, place_of
from kiwi_spark.sink import sink_source, writes_here
from kiwi_spark.stage import Stage
from kiwi_spark.states import WORKS
from kiwi_spark.wire import Ack, Rows, Started

log = structlog.get_logger("kiwi_spark")


class SparkSource:
    """Every row that the query commits, once, as long as its checkpoint is there.

    A batch enters as a whole and then stays ours, whatever becomes of the driver. `run` goes on while there
    is no driver: subscriptions stay. What is known of the batches is in the service's lane for this id, so
    that a source that is built again goes on where the last one was, within a batch even.
    """

    def __init__(self, settings: SparkSourceSettings, context: SourceContext, spark: Spark) -> None:
        self._id = settings.id
        self._spark = spark
        self._query = QueryRunner(settings, context, spark)
        self._out: Out | None = None
        self._ready = False
        self._anew = False

    def statistics(self) -> SourceStatistics:
        """How far a query is behind only Spark knows; reachable: whether the query can run."""
        reachable = self._spark.state in WORKS and not self._query.trouble
        return SourceStatistics(reachable=reachable, details=self._query.details())

    async def run(self, out: Out, start: Positions | None) -> None:
        """SourceFailed: the query can never work, or failed too often. SourceChanged: its checkpoint is
        another one, or part of a batch was published and the rest of it is not known any more."""
        self._out, self._ready, self._anew = out, False, start is None
        lane = self._spark.lane(self._id)
        try:
            await self._query.run(out.trouble, partial(self._attend, lane, start))
        except (SourceFailed, SourceChanged):
            lane.clear()  # nobody goes on from here
            raise
        except trio.Cancelled:
            lane.leave(self)
            raise

    async def _attend(self, lane: Lane, start: Positions | None, run: Run, started: Started) -> None:
        if self._anew:  # by now the source that had this id before has let go of it
            lane.clear()
            self._anew = False
        lane.enter(self)
        _continue(lane, started, start)
        if self._out is not None:
            self._out.describe(started.members)
        await self._be_ready(lane, start)
        await self._finish(lane)
        while (connection := await run.rows()) is not None:
            await self._receive(connection, lane)

    async def _be_ready(self, lane: Lane, start: Positions | None) -> None:
        if self._ready or self._out is None or lane.inbox is None:
            return
        self._ready = True
        at = 0 if start is None else start[0]
        next_at = offset_of(lane.inbox.next, 0)
        if lane.cargo is not None:
            next_at = offset_of(lane.cargo.commit.batch, 0)
            lane.cargo.taken = max(0, at - next_at)
        await self._out.ready({0: max(next_at, at)})
        if self._query.trouble:  # being ready means to be out of trouble, and this is not over
            self._out.trouble(self._query.trouble)

    async def _receive(self, connection: Connection, lane: Lane) -> None:
        """Take batches until the connection is over."""
        inbox = lane.inbox
        assert inbox is not None  # noqa: S101  set when the query started
        stage = Stage(self._spark.budget)
        try:
            while (message := await connection.receive()) is not None:
                rows = count(message.arrow) if isinstance(message, Rows) else 0
                decision = inbox.take(message, rows)
                if isinstance(decision, Keep):
                    await stage.add(decision.arrow, decision.rows)
                elif isinstance(decision, Repeated):
                    log.info("a batch came again and was dropped", source=self._id, batch=decision.batch)
                    await connection.send(Ack(batch=decision.batch))
                elif isinstance(decision, Commit):
                    # From here on it is the lane's: it is published, by whomever.
                    lane.cargo, stage = Cargo(decision, stage), Stage(self._spark.budget)
                    await self._finish(lane)
                    await connection.send(Ack(batch=decision.batch))
        except WireError as error:
            log.error("the rows of a query cannot be read", source=self._id, error=str(error))
        except TooManyRowsError as error:
            raise SourceFailed(str(error)) from error
        finally:
            stage.close()
            connection.close()
            cut = inbox.cut()
            if cut is not None:
                log.info("a batch that was not whole was dropped", source=self._id, batch=cut)

    async def _finish(self, lane: Lane) -> None:
        """Publish what was committed, from where it was left."""
        cargo, out = lane.cargo, self._out
        if cargo is None or out is None:
            return
        self._query.brought()  # first: whoever has the events has been told that all is well
        commit, stage = cargo.commit, cargo.stage
        if commit.lost_from is not None and not cargo.announced:
            cargo.announced = True
            await out.publish(lost(commit.lost_from, commit.batch))
        first = 0
        for index, rows in enumerate(stage.counts):
            if cargo.taken < first + rows:
                part = await self._part(stage, index)
                # Here, and piece by piece: in a thread it would hold Python's lock for as long, at one go.
                skip = max(0, cargo.taken - first)
                for piece in pieces(part, commit.batch, commit.timestamp, first, skip):
                    await out.publish(piece)
                    cargo.taken += len(piece)
            first += rows
        stage.close()
        lane.cargo = None

    async def _part(self, stage: Stage, index: int) -> bytes:
        """One part of a batch."""
        if stage.holds(index):
            return stage.read(index)
        return await trio.to_thread.run_sync(stage.read, index, limiter=self._spark.threads)


def _continue(lane: Lane, started: Started, start: Positions | None) -> None:
    """The query has been started: it must go on where the lane is. SourceChanged: it does not."""
    if lane.inbox is not None:
        lane.inbox.started(started.query, started.next_batch)
    else:
        batch = started.next_batch if start is None else _after(start[0], started.next_batch)
        lane.inbox = Inbox(started.query, batch)


def _after(start: int, next_batch: int) -> int:
    """The batch that comes next for a source that was at `start` and knows no more than that.

    SourceChanged: it had part of a batch (or all of it, nobody knows) and Spark sends that again.
    """
    batch, row = place_of(start)
    if next_batch > batch or (next_batch == batch and row == 0):
        return next_batch
    raise SourceChanged(
        f"of batch {batch} {row} rows were taken, and Spark begins with batch {next_batch} again, "
        "in another order"
    )


def build_source(settings: Section, context: SourceContext) -> Source:
    """SourceType.build: no I/O."""
    own = cast("SparkSourceSettings", settings)
    if own.sink is None:
        return SparkSource(own, context, cast("Spark", context.services["spark"]))
    if not writes_here(own.sink.write, context.plugins):
        return sink_source(own.sink.topic, context, None)
    query = QueryRunner(own, context, cast("Spark", context.services["spark"]))
    return sink_source(own.sink.topic, context, query.run, query.details)
