"""The batches of a query, from the driver until they are published: every row once.

Theory of operation. Spark repeats a batch that it does not know to be done, with the same id but in another
order of rows. So a batch counts only as a whole: at its end it is committed, and from then on its id is
known. What is cut off before that never was; what comes again after that is acknowledged and dropped. That
holds for one checkpoint, which has an id of its own; with another one the ids mean other batches.
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass
from typing import IO

import trio

from kiwi_gw.api import Positions, SourceChanged, SourceFailed
from kiwi_spark.gateway.positions import MAX_ROWS, batch_and_row
from kiwi_spark.protocol.messages import BatchRows, BeginBatch, EndBatch, Message, QueryStarted, WireError
from kiwi_spark.protocol.packed_rows import PackedRows

ABANDONED_SECONDS = 60.0
"""How long a source that was stopped may take until it goes on; then what it has spooled is given up."""


class SpoolBudget:
    """Bytes that all spooled batches may hold in memory together. used: what they hold now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class BatchSpool:
    """The parts of a batch in their order. counts: the rows of each.

    What the budget has no room for goes to a temporary file without a name, which is gone with this process
    whatever ends it. One thread may read it while another writes: both name the place, for a file has only
    one position that it remembers.
    """

    def __init__(self, budget: SpoolBudget) -> None:
        self._budget = budget
        self._parts: list[bytes | tuple[int, int]] = []
        self._file: IO[bytes] | None = None
        self._written = 0
        self._held = 0
        self.counts: list[int] = []

    async def add(self, part: bytes, rows: int) -> None:
        """Take one part. OSError: it would have to go to disk, and there is no room."""
        if self._budget.used + len(part) <= self._budget.limit:
            self._budget.used += len(part)
            self._held += len(part)
            self._parts.append(part)
        else:
            self._parts.append(await trio.to_thread.run_sync(self._write, part))
        self.counts.append(rows)

    def holds(self, index: int) -> bool:
        """Return whether a part is in memory."""
        return isinstance(self._parts[index], bytes)

    def read(self, index: int) -> bytes:
        """Return one part again. Blocks if it is on disk: call it in a worker thread."""
        part = self._parts[index]
        if isinstance(part, bytes):
            return part
        place, size = part
        assert self._file is not None  # noqa: S101  it was written there
        found = os.pread(self._file.fileno(), size, place)
        if len(found) < size:
            raise OSError("the file of a spooled batch has become shorter")
        return found

    def close(self) -> None:
        """Let go of everything."""
        self._budget.used -= self._held
        self._held = 0
        self._parts.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, part: bytes) -> tuple[int, int]:
        """Return where it is in the file, and its size."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="kiwi-spark-", buffering=0)  # noqa: SIM115
        place = end = self._written
        left = memoryview(part)
        while left:
            count = os.pwrite(self._file.fileno(), left, end)
            left, end = left[count:], end + count
        self._written = end
        return place, len(part)


@dataclass(slots=True)
class CommittedBatch:
    """A batch that counts and is not wholly published yet. timestamp: when it was computed (ms).

    lost_from: the first batch that should have come before it and never will, until that is announced; None
    if nothing is missing. published: how many of its rows are.
    """

    batch: int
    timestamp: int
    spool: BatchSpool
    lost_from: int | None = None
    published: int = 0


class SourceBatches:
    """What is known of the batches of a source. It outlives a source that fails and is built again.

    query: id of the checkpoint; empty before its query has ever started. next: id of the batch that comes
    next. committed: what is to be published first.
    """

    def __init__(self) -> None:
        self.query = ""
        self.next = 0
        self.committed: CommittedBatch | None = None
        self._owner: object = None
        self._left_at = math.inf

    def enter(self, owner: object) -> None:
        """Let a source go on from here."""
        self._owner, self._left_at = owner, math.inf

    def leave(self, owner: object) -> None:
        """Note that the source was stopped. If none of its id is built again soon, none will be."""
        if self._owner is owner:
            self._left_at = trio.current_time()

    def clear_if_abandoned(self) -> None:
        """Give up the batch of a source that was taken away: the budget of spools is for others."""
        if trio.current_time() - self._left_at > ABANDONED_SECONDS:
            self._left_at = math.inf
            self.clear()

    def clear(self) -> None:
        """Forget everything: the source begins anew."""
        if self.committed is not None:
            self.committed.spool.close()
        self.query, self.committed = "", None

    def resume(self, started: QueryStarted, start: Positions | None) -> None:
        """Check that a query that was started goes on from here. start: where its source is, if it knows.

        SourceChanged: it does not.
        """
        if not self.query:
            first = started.next_batch
            self.next = first if start is None else _next_batch(start[0], first)
            self.query = started.query
        elif started.query != self.query:
            raise SourceChanged("the checkpoint of the query is another one than before: it begins anew")
        elif started.next_batch < self.next - 1:
            # Of the last one Spark may not know that it was done; of those before it does.
            raise SourceChanged(
                f"the checkpoint of the query was put back from batch {self.next} to {started.next_batch}: "
                "what comes now is not what came then"
            )


class IncomingBatches:
    """The batches that come on one connection. What is whole is committed."""

    def __init__(self, batches: SourceBatches, budget: SpoolBudget) -> None:
        self._batches = batches
        self._budget = budget
        self._begun: BeginBatch | None = None
        self._rows = 0
        self._spool = BatchSpool(budget)

    async def take(self, message: Message) -> int | None:
        """Take a message. Return the id of the batch that it ends, to be acknowledged: if it is new, it is
        in `SourceBatches.committed`, and is published first.

        WireError: it does not belong there. SourceFailed: the batch cannot be numbered. OSError: there is
        no room for it.
        """
        if isinstance(message, BeginBatch):
            self._begin(message)
            return None
        begun = self._begun
        if begun is None or not isinstance(message, BatchRows | EndBatch):
            raise WireError(f"a {type(message).__name__} where a batch should begin")
        if isinstance(message, EndBatch):
            return self._end(begun, message)
        rows = PackedRows(message.rows).count
        self._rows += rows
        if self._rows > MAX_ROWS:
            raise SourceFailed(
                f"batch {begun.batch} has more than {MAX_ROWS:,} rows; a smaller `max_offsets` of its inputs "
                "makes smaller batches"
            )
        if begun.batch >= self._batches.next:
            await self._spool.add(message.rows, rows)
        return None

    def cut(self) -> int | None:
        """End the connection. Return the id of the batch that is dropped because it was not whole."""
        self._spool.close()
        begun, self._begun = self._begun, None
        return None if begun is None else begun.batch

    def _begin(self, message: BeginBatch) -> None:
        if self._begun is not None:
            raise WireError(f"batch {message.batch} begins within batch {self._begun.batch}")
        if message.query != self._batches.query:
            raise WireError("a batch of another query")
        if message.batch < 0:
            raise WireError(f"a batch with the id {message.batch}")
        self._begun, self._rows = message, 0

    def _end(self, begun: BeginBatch, message: EndBatch) -> int:
        if message.rows != self._rows:
            raise WireError(
                f"batch {begun.batch} ends after {self._rows} rows and should have {message.rows}"
            )
        self._begun = None
        known = self._batches
        if begun.batch >= known.next:
            lost_from = known.next if begun.batch > known.next else None
            known.committed = CommittedBatch(begun.batch, begun.timestamp, self._spool, lost_from)
            known.next = begun.batch + 1
            self._spool = BatchSpool(self._budget)
        return begun.batch


def _next_batch(start: int, next_batch: int) -> int:
    """Return the batch that comes next for a source that knows no more than its position `start`.

    SourceChanged: it had a part of a batch, or all of it, and Spark sends that again.
    """
    batch, row = batch_and_row(start)
    if next_batch > batch or (next_batch == batch and row == 0):
        return next_batch
    raise SourceChanged(
        f"of batch {batch} {row} rows were taken, and Spark begins with batch {next_batch} again, "
        "in another order"
    )
