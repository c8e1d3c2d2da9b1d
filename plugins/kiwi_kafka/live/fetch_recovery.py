"""Recovery from a failed read, for everything that one consumer reads.

The readers know where reading has to go on. So every recovery moves the readers past what cannot be had, and
then sends the consumer where they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from kiwi_gw.api import SourceFailed, Unreadable
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.ports import (
    Consumer,
    CorruptRecordsError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    TopicPartition,
    UnreachableError,
)

log = structlog.get_logger("kiwi_kafka")

RECOVERABLE = (OffsetOutOfRangeError, TopicAuthorizationError, CorruptRecordsError)
Recoverable = OffsetOutOfRangeError | TopicAuthorizationError | CorruptRecordsError

FindCorruptBatch = Callable[[TopicPartition, int], Awaitable[tuple[int, int] | None]]
"""Find the first and next offset of a batch that cannot be decoded, from an offset on."""
OnOutOfRange = Callable[[TopicReader, int], None]
"""Find out where to go on with a partition that rests."""


class FetchRecovery:
    def __init__(
        self,
        topic_readers: Sequence[TopicReader],
        find_corrupt_batch: FindCorruptBatch,
        on_out_of_range: OnOutOfRange,
    ) -> None:
        self._topic_readers = topic_readers
        self._find_corrupt_batch = find_corrupt_batch
        self._on_out_of_range = on_out_of_range

    def positions(self) -> dict[TopicPartition, int]:
        """Return where to read on, of all that the consumer reads."""
        return {
            tp: offset
            for topic_reader in self._topic_readers
            for tp, offset in topic_reader.fetch_positions().items()
        }

    async def recover(self, consumer: Consumer, error: Recoverable) -> None:
        """Do what can be done, after which reading goes on.

        A reader whose topic cannot be read is over. Raises UnreachableError if another consumer is needed.
        """
        match error:
            case OffsetOutOfRangeError():
                self._resolve_out_of_range(error)
            case TopicAuthorizationError():
                for topic_reader in self._topic_readers:
                    if topic_reader.topic == error.topic:
                        # Rights may come back: the source is started again, with growing pauses.
                        topic_reader.end(PermissionError(str(error)))
            case CorruptRecordsError():
                await self._step_over(error)
        await self.rewind(consumer)

    async def rewind(self, consumer: Consumer) -> None:
        """Go back to the readers' positions: what the consumer had fetched may be lost."""
        tps = self.positions()
        await consumer.seek(tps)
        suspended = [
            TopicPartition(topic_reader.topic, p)
            for topic_reader in self._topic_readers
            if not topic_reader.ended
            for p in topic_reader.suspended
        ]
        await consumer.pause([tp for tp in suspended if tp not in tps])

    def _resolve_out_of_range(self, error: OffsetOutOfRangeError) -> None:
        for tp, offset in error.tps.items():
            for topic_reader in self._of(tp):
                if topic_reader.next[tp.partition] == offset:  # not a leftover of an earlier position
                    topic_reader.suspended.add(tp.partition)
                    self._on_out_of_range(topic_reader, tp.partition)

    async def _step_over(self, error: CorruptRecordsError) -> None:
        """Skip the batch that cannot be decoded; what stands before it has been read."""
        tp = error.tp
        for topic_reader in self._of(tp):
            bounds = await self._find_corrupt_batch(tp, topic_reader.next[tp.partition])
            if bounds is None:
                # Nothing that the broker holds is damaged: it was damaged on its way. Another connection.
                raise UnreachableError(str(error)) from error
            first, behind = bounds
            if behind <= topic_reader.next[tp.partition]:
                topic_reader.end(SourceFailed(f"{tp.topic}/{tp.partition} is damaged at offset {first}"))
                continue
            log.error(
                "kafka batch cannot be decoded, skipped",
                topic=tp.topic,
                partition=tp.partition,
                first=first,
                last=behind - 1,
                error=str(error),
            )
            topic_reader.skip(tp.partition, behind, unreadable=Unreadable.DAMAGED)

    def _of(self, tp: TopicPartition) -> list[TopicReader]:
        return [
            topic_reader
            for topic_reader in self._topic_readers
            if topic_reader.topic == tp.topic and tp.partition in topic_reader.next and not topic_reader.ended
        ]
