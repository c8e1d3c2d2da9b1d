"""The result of a query over ranges of topics, between the driver and the client: the driver waits for
neither."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import trio

from kiwi_gw.api import SourceFailed
from kiwi_spark.gateway.batches import BatchSpool, SpoolBudget
from kiwi_spark.protocol.messages import BatchRows, BeginBatch, EndBatch, Message, WireError
from kiwi_spark.protocol.packed_rows import PackedRows

_MIB: Final = 1024 * 1024


class QueryResult:
    """Rows as they came, in parts; only those of whole batches are read.

    begun: whether the query is right, and runs. problem: why there is no (further) result; empty where there
    is, or it is not `over`.
    """

    def __init__(self, budget: SpoolBudget, most: int) -> None:
        """most: bytes of the result. budget: of what is kept in memory, with those of others."""
        self.begun = False
        self.over = False
        self.problem = ""
        self._most = most
        self._bytes = 0
        self._spool = BatchSpool(budget)
        self._timestamps: list[int] = []
        self._whole = 0
        self._batch: BeginBatch | None = None
        self._rows = 0
        self._changed = trio.lowlevel.ParkingLot()

    def begin(self) -> None:
        """Note that the query runs."""
        self.begun = True
        self._changed.unpark_all()

    def end(self, problem: str) -> None:
        """Note that there will be no more, and why: empty where that was all."""
        self.over, self.problem = True, problem
        self._changed.unpark_all()

    async def take(self, message: Message) -> int | None:
        """Take a message from the driver. Return the id of the batch that it ends, to be acknowledged.

        WireError: it does not belong there. SourceFailed: the result is too large. OSError: there is no room.
        """
        if isinstance(message, BeginBatch) and self._batch is None:
            self._batch, self._rows = message, 0
            return None
        batch = self._batch
        if batch is None or not isinstance(message, BatchRows | EndBatch):
            raise WireError(f"a {type(message).__name__} where it does not belong")
        if isinstance(message, EndBatch):
            if message.rows != self._rows:
                raise WireError(f"a batch of {self._rows} rows, which should have {message.rows}")
            self._batch, self._whole = None, len(self._timestamps)
            self._changed.unpark_all()
            return batch.batch
        self._bytes += len(message.rows)
        if self._bytes > self._most:
            raise SourceFailed(f"the result has more than {size_in_words(self._most)}")
        rows = PackedRows(message.rows).count
        await self._spool.add(message.rows, rows)
        self._timestamps.append(batch.timestamp)
        self._rows += rows
        return None

    async def wait_begun(self) -> bool:
        """Wait until the query runs, or never will. Return whether it does."""
        while not (self.begun or self.over):
            await self._changed.park()
        return self.begun

    async def parts(self, threads: trio.CapacityLimiter) -> AsyncGenerator[tuple[bytes, int], None]:
        """Read the parts of all batches that are whole, until it is over: each with the time (ms) of its
        batch."""
        at = 0
        while True:
            while at < self._whole:
                if self._spool.holds(at):
                    part = self._spool.read(at)
                else:
                    part = await trio.to_thread.run_sync(self._spool.read, at, limiter=threads)
                yield part, self._timestamps[at]
                at += 1
            if self.over:
                return
            await self._changed.park()

    def close(self) -> None:
        """Let go of everything."""
        self._spool.close()


def size_in_words(size: int) -> str:
    """Write a number of bytes."""
    return f"{size // _MIB:,} MiB" if size and size % _MIB == 0 else f"{size:,} bytes"
