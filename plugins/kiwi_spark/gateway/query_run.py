"""One run of a query in the driver, as the source sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import trio

from kiwi_spark.gateway.connection import MessageConnection
from kiwi_spark.protocol.messages import (
    BatchProgress,
    Message,
    QueryAnalysed,
    QueryEnded,
    QueryIdle,
    QueryStarted,
)
from kiwi_spark.protocol.query_spec import ErrorKind, QuerySpec

PROOF_SECONDS = 60.0
"""A query that has run so long has proved itself, too."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Why a run is over. lost: the driver is gone, and with it the reason; else as in `QueryEnded`."""

    error_kind: ErrorKind | None = None
    message: str = ""
    lost: bool = False


class QueryRun:
    """A query that the driver was asked to run (or to analyse). Made by the service.

    query: None for one that is only analysed. on_progress: called with what Spark says of every
    batch, and when it has looked for one in vain.
    over: why it is over; None while it is not. worked: whether it has done a batch, or looked for one.
    """

    def __init__(
        self, number: int, query: QuerySpec | None, on_progress: Callable[[BatchProgress | QueryIdle], None]
    ) -> None:
        self.number = number
        self.query = query
        self.over: RunEnd | None = None
        self.analysed: QueryAnalysed | None = None
        self.worked = False
        self._started_at = math.inf
        self._on_progress = on_progress
        self._started: QueryStarted | None = None
        self._rows: MessageConnection | None = None
        self._open: MessageConnection | None = None
        self._changed = trio.Event()

    @property
    def proved(self) -> bool:
        """Return whether the driver does not die of starting it. See `crash_attribution`."""
        return self.worked or trio.current_time() - self._started_at > PROOF_SECONDS

    async def started(self) -> QueryStarted | RunEnd:
        """Wait until the query runs, or never will."""
        while self._started is None:
            if self.over is not None:
                return self.over
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        return self._started

    async def rows(self) -> MessageConnection | None:
        """Wait for the connection on which the rows come; None when the run is over."""
        while self._rows is None and self.over is None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        found, self._rows = self._rows, None
        return found

    async def ended(self) -> RunEnd:
        """Wait until the run is over."""
        while self.over is None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        return self.over

    # --- for the service ---

    def receive(self, message: Message) -> None:
        """Take what the driver says about this run."""
        if isinstance(message, BatchProgress | QueryIdle):
            self.worked = True
            self._on_progress(message)
        elif isinstance(message, QueryStarted):
            self._started = message
            self._started_at = trio.current_time()
        elif isinstance(message, QueryAnalysed):
            self.analysed = message
            self.over = RunEnd()
        elif isinstance(message, QueryEnded):
            self.end(RunEnd(message.error_kind, message.message))
        self._wake()

    def rows_came(self, connection: MessageConnection) -> None:
        """Take the connection that the driver has made to bring rows."""
        if self.over is not None:
            connection.close()
            return
        if self._open is not None:  # the driver has given the last one up
            self._open.close()
        self._rows = self._open = connection
        self._wake()

    def end(self, over: RunEnd) -> None:
        """End the run: nothing more comes."""
        if self.over is None:
            self.over = over
            # A batch that is whole but was not read yet is sent again: it was not acknowledged.
            if self._open is not None:
                self._open.close()
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
