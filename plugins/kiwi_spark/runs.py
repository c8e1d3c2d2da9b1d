"""One run of a query in the driver, as the source sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import trio

from kiwi_spark.connection import Connection
from kiwi_spark.frames import Message
from kiwi_spark.spec import Query, Trouble
from kiwi_spark.wire import Analysed, Ended, Idle, Progress, Started

PROOF_SECONDS = 60.0
"""A query that has run so long has proved itself, too."""


@dataclass(frozen=True, slots=True)
class Over:
    """Why a run is over. lost: the driver is gone, and nobody knows more; else as in `wire.Ended`."""

    trouble: Trouble | None = None
    message: str = ""
    lost: bool = False


class Run:
    """A query that the driver was asked to run (or to analyse). Made by the service.

    query: None for one that is only analysed. told: what to do with what Spark says of every batch, and
    when it has looked for one in vain.
    over: why it is over; None while it is not. worked: whether it has done a batch, or looked for one.
    """

    def __init__(self, number: int, query: Query | None, told: Callable[[Progress | Idle], None]) -> None:
        self.number = number
        self.query = query
        self.over: Over | None = None
        self.analysed: Analysed | None = None
        self.worked = False
        self._started_at = math.inf
        self._told = told
        self._started: Started | None = None
        self._rows: Connection | None = None
        self._open: Connection | None = None
        self._changed = trio.Event()

    @property
    def proved(self) -> bool:
        """Whether the driver does not die of starting it. See `suspects`."""
        return self.worked or trio.current_time() - self._started_at > PROOF_SECONDS

    async def started(self) -> Started | Over:
        """Until the query runs, or never will."""
        while self._started is None:
            if self.over is not None:
                return self.over
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        return self._started

    async def rows(self) -> Connection | None:
        """The connection on which the rows come, until the run is over; None if it is."""
        while self._rows is None and self.over is None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        found, self._rows = self._rows, None
        return found

    async def ended(self) -> Over:
        """Until the run is over."""
        while self.over is None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        return self.over

    # --- for the service ---

    def receive(self, message: Message) -> None:
        """What the driver says about this run."""
        if isinstance(message, Progress | Idle):
            self.worked = True
            self._told(message)
        elif isinstance(message, Started):
            self._started = message
            self._started_at = trio.current_time()
        elif isinstance(message, Analysed):
            self.analysed = message
            self.over = Over()
        elif isinstance(message, Ended):
            self.end(Over(message.trouble, message.message))
        self._wake()

    def rows_came(self, connection: Connection) -> None:
        """The driver has connected to bring rows."""
        if self.over is not None:
            connection.close()
            return
        if self._open is not None:  # the driver has given the last one up
            self._open.close()
        self._rows = self._open = connection
        self._wake()

    def end(self, over: Over) -> None:
        """Nothing more comes."""
        if self.over is None:
            self.over = over
            # A batch that is whole but was not read yet is sent again: nobody has said that it was taken.
            if self._open is not None:
                self._open.close()
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
