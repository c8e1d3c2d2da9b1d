"""The rows of a query in real time, from the driver until they are published: every row once.

Theory of operation. Rows are given out before the query's checkpoint knows of them, so a query that begins
again repeats some. Each has the place of the record that it comes from, and its number among the rows of
that; a query in real time keeps no state, so a record makes the same rows again, in the same order. What lies
below the next place of its partition was published before, and is dropped. (A query whose rows come out
different each time, by `rand()` or a static table that was changed, has each place once all the same.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from kiwi_gw.api import Positions, Publisher, SourceChanged
from kiwi_spark.gateway.driver_supervisor import MessageConnection
from kiwi_spark.gateway.positions import partition_of
from kiwi_spark.gateway.rows import placed_batches
from kiwi_spark.protocol.messages import BatchTaken, BeginEpoch, EndEpoch, Message, PlacedRows, WireError

log = structlog.get_logger("kiwi_spark")


class Watcher(Protocol):
    """Who wants to know how the query does."""

    def input_found(self) -> None:
        """Note that the query has begun to read."""

    def rows_arrived(self) -> None:
        """Note that rows have come that had not come before."""

    def batch_arrived(self) -> None:
        """Note that an epoch is over: the query will not begin before it again."""


class PlacedResults:
    """The rows of one source. next: the place of the next row, by partition."""

    def __init__(self, out: Publisher, watcher: Watcher, inputs: Sequence[str], start: Positions) -> None:
        """inputs: names of the query's streams."""
        self.next = dict(start)
        self._out = out
        self._watcher = watcher
        self._inputs = inputs

    def resume(self, begin: Positions, *, same: bool) -> None:
        """Go on with a query that begins there. same: whether its checkpoint is the one that there was.

        SourceChanged: it does not go on from here.
        """
        if begin.keys() != self.next.keys():
            raise SourceChanged("an input of the query has other partitions than before")
        if not same and any(begin[partition] > place for partition, place in self.next.items()):
            raise SourceChanged("the checkpoint of the query is another one than before: it begins anew")
        # `next` stays, if it is before that: what lies between made no rows, or they had come here before the
        # checkpoint knew of them.

    async def receive(
        self, connection: MessageConnection, reads: Callable[[], None], moves: Callable[[], None]
    ) -> None:
        """Publish rows until the connection is over. reads: called when this run has begun to read. moves:
        called when it has brought new rows of every partition. SourceChanged: they are of a new partition."""
        before = dict(self.next)
        try:
            while (message := await connection.receive()) is not None:
                await self._take(message, connection, reads)
                if before and all(self.next[partition] > place for partition, place in before.items()):
                    before = {}  # once is enough
                    moves()
        except WireError as error:
            log.error("the rows of a query cannot be read", error=str(error))
        finally:
            connection.close()

    async def _take(self, message: Message, connection: MessageConnection, reads: Callable[[], None]) -> None:
        if isinstance(message, PlacedRows):
            await self._publish(message)
        elif isinstance(message, EndEpoch):
            self._watcher.batch_arrived()
            await connection.send(BatchTaken(batch=message.epoch))
        elif isinstance(message, BeginEpoch):
            reads()
            self._watcher.input_found()
        else:
            raise WireError(f"a {type(message).__name__} where rows should be")

    async def _publish(self, message: PlacedRows) -> None:
        if partition_of(message.input, message.partition) not in self.next:
            raise SourceChanged("an input of the query has other partitions than before")
        for batch in placed_batches(message, self.next, self._inputs):
            self._watcher.rows_arrived()  # first: events come after the notice that all is well
            await self._out.publish(batch)
            self.next[batch.partitions[-1]] = batch.offsets[-1] + 1
