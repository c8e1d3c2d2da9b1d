"""One run of a query in the driver, as the gateway follows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import trio

from kiwi_spark.gateway.driver_supervisor import MessageConnection
from kiwi_spark.protocol.messages import (
    BatchProgress,
    Message,
    QueryAnalysed,
    QueryEnded,
    QueryIdle,
    QueryReads,
    QueryStarted,
)
from kiwi_spark.protocol.query_spec import ErrorKind, QuerySpec
from kiwi_spark.protocol.range_query import RangeQuery

PROOF_SECONDS = 60.0
"""A query that has run so long has proved itself, too."""

READING_SECONDS = 5.0
"""One in real time that has read so long: it reports nothing before the end of an epoch. That rows came is no
proof, as they may be of other partitions than the record is that the driver dies of."""


Progress = BatchProgress | QueryIdle | QueryReads
"""How a query does, as the driver tells."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Why a run is over. lost: the driver is gone, and with it the reason; else as in `QueryEnded`."""

    error_kind: ErrorKind | None = None
    message: str = ""
    lost: bool = False


class QueryRun:
    """A query that the driver was asked to run (or to analyse). Made by the service.

    query: the streaming query of a source; None for one that is only analysed, or reads `ranges`.
    on_progress: called with what Spark says of every batch, and when it has looked for one in vain.
    over: why it is over; None while it is not. worked: whether it has done a batch, or looked for one, or in
    real time `moves`.
    """

    def __init__(
        self,
        number: int,
        query: QuerySpec | None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        ranges: RangeQuery | None = None,
    ) -> None:
        self.number = number
        self.query = query
        self.ranges = ranges
        self.over: RunEnd | None = None
        self.analysed: QueryAnalysed | None = None
        self.worked = False
        self._started_at = math.inf
        self._reads_since = math.inf
        self._on_progress = on_progress
        self._started: QueryStarted | None = None
        self._rows: MessageConnection | None = None
        self._open: MessageConnection | None = None
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def proved(self) -> bool:
        """Return whether the driver does not die of starting it. See `crash_attribution`."""
        now = trio.current_time()
        return (
            self.worked or now - self._started_at > PROOF_SECONDS or now - self._reads_since > READING_SECONDS
        )

    def reads(self) -> None:
        """Note that the query, one in real time, reads its input."""
        self._reads_since = min(self._reads_since, trio.current_time())

    def moves(self) -> None:
        """Note that the query, one in real time, has brought rows of every partition that had not come
        before: at whatever record a driver has died, it is behind it."""
        self.worked = True

    async def started(self) -> QueryStarted | RunEnd:
        """Wait until the query runs, or never will."""
        while self._started is None:
            if self.over is not None:
                return self.over
            await self._changed.park()
        await trio.lowlevel.checkpoint()
        return self._started

    async def rows(self) -> MessageConnection | None:
        """Wait for the connection on which the rows come; None when the run is over."""
        while self._rows is None and self.over is None:
            await self._changed.park()
        await trio.lowlevel.checkpoint()
        found, self._rows = self._rows, None
        return found

    async def ended(self) -> RunEnd:
        """Wait until the run is over."""
        while self.over is None:
            await self._changed.park()
        await trio.lowlevel.checkpoint()
        return self.over

    # --- for the service ---

    def receive(self, message: Message) -> None:
        """Take what the driver says about this run."""
        if isinstance(message, BatchProgress | QueryIdle):
            self.worked = True
            self._on_progress(message)
        elif isinstance(message, QueryReads):
            self.reads()
            self._on_progress(message)
        elif isinstance(message, QueryStarted):
            self._started = message
            self._started_at = trio.current_time()
        elif isinstance(message, QueryAnalysed):
            self.analysed = message
            self.over = RunEnd()
        elif isinstance(message, QueryEnded):
            self.end(RunEnd(message.error_kind, message.message))
        self._changed.unpark_all()

    def rows_came(self, connection: MessageConnection) -> None:
        """Take the connection that the driver has made to bring rows."""
        if self.over is not None:
            connection.close()
            return
        if self._open is not None:  # the driver has given the last one up
            self._open.close()
        self._rows = self._open = connection
        self._changed.unpark_all()

    def end(self, over: RunEnd) -> None:
        """End the run. What is left in the connection for rows is still read, to its end: the driver has
        closed it before it said so."""
        if self.over is None:
            self.over = over
            if over.lost and self._open is not None:  # whole batches that are in it are sent again
                self._open.close()
            self._changed.unpark_all()
