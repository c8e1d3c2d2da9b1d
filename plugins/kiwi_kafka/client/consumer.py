"""The consumer on aiokafka: reads partitions, as long as it works."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any, TypeVar

import aiokafka
from aiokafka import errors as kafka_errors

from kiwi_kafka.client.asyncio_loop import AsyncioLoop, close
from kiwi_kafka.client.errors import LOST, unreachable, unreachable_by
from kiwi_kafka.client.internals import ReadOnlyConsumer
from kiwi_kafka.ports import (
    CorruptRecordsError,
    FetchedPartition,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationError,
    TopicPartition,
)

T = TypeVar("T")


_HEAD = Struct(">qiib")
"""Of a batch: first offset, length of what follows it, epoch of the leader that took it, version of the
format (Kafka protocol guide, record batch)."""
_BEFORE_LENGTH_COUNTS = 12
_WITH_EPOCHS = 2
_MOST = 16
"""Changes of epoch that are kept of one partition: of what has been fetched and not been read yet."""


class AioConsumer:
    def __init__(self, loop: AsyncioLoop, consumer: ReadOnlyConsumer) -> None:
        self._loop = loop
        self._consumer = consumer
        self._epochs = LeaderEpochs()
        consumer.client.on_batches = self._epochs.note

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        # No fetch sees the assignment without its positions.
        await self._in_one_step(
            partial(self._consumer.assign, _partitions(positions)), *self._seeks(positions)
        )

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        await self._in_one_step(*self._seeks(positions))

    async def pause(self, tps: Collection[TopicPartition]) -> None:
        await self._in_one_step(partial(self._consumer.pause, *_partitions(tps)))

    async def resume(self, positions: Mapping[TopicPartition, int]) -> None:
        resume = partial(self._consumer.resume, *_partitions(positions))
        await self._in_one_step(*self._seeks(positions), resume)

    async def positions(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        async def asked() -> dict[TopicPartition, int]:
            return {tp: await self._consumer.position(aiokafka.TopicPartition(*tp)) for tp in tps}

        return await self._run(asked())

    def _seeks(self, positions: Mapping[TopicPartition, int]) -> list[Callable[[], None]]:
        return [
            partial(self._consumer.seek, aiokafka.TopicPartition(*tp), offset)
            for tp, offset in positions.items()
        ]

    async def _in_one_step(self, *calls: Callable[[], None]) -> None:
        async def called() -> None:
            for call in calls:
                call()

        await self._run(called())

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with unreachable():
            return await self._loop.run_aio_coroutine(work)

    async def read(
        self, only: Sequence[TopicPartition], wait_ms: int, max_records: int | None = None
    ) -> dict[str, list[FetchedPartition]]:
        try:
            return await self._loop.run_aio_coroutine(self._read(_partitions(only), wait_ms, max_records))
        except kafka_errors.OffsetOutOfRangeError as error:
            raise OffsetOutOfRangeError(
                {TopicPartition(*tp): offset for tp, offset in error.args[0].items()}
            ) from error
        except kafka_errors.RecordTooLargeError as error:
            raise RecordTooLargeError(TopicPartition(*error.args[1]), error.args[2]) from error
        except kafka_errors.TopicAuthorizationFailedError as error:
            raise TopicAuthorizationError(str(error.args[0])) from error
        except kafka_errors.CorruptRecordException as error:
            raise CorruptRecordsError(str(error)) from error
        except LOST as error:
            raise unreachable_by(error) from error
        except Exception as error:
            # A decompressor's own exception, or what a nonsensical record made the decoder do.
            raise CorruptRecordsError(f"{type(error).__name__}: {error}") from error

    async def _read(
        self, only: Sequence[aiokafka.TopicPartition], wait_ms: int, max_records: int | None
    ) -> dict[str, list[FetchedPartition]]:
        fetched = await self._consumer.getmany(*only, timeout_ms=wait_ms, max_records=max_records)
        if self._consumer.client.missed:
            # Nothing of it counts: it may be from a new topic of the same name.
            raise kafka_errors.UnknownTopicOrPartitionError("a topic is not there")
        # From here on nothing suspends, so that a cancellation cannot lose what was fetched.
        by_topic: dict[str, list[FetchedPartition]] = {}
        for tp, records in fetched.items():
            behind = await self._consumer.position(tp)
            epoch = self._epochs.before(tp, behind)
            by_topic.setdefault(tp.topic, []).append(FetchedPartition(tp.partition, records, behind, epoch))
        return by_topic

    def set_fetch_interval(self, wait_ms: int) -> None:
        self._consumer.set_fetch_interval(wait_ms)

    async def close(self) -> None:
        await close(self._loop, self._consumer.stop)


class LeaderEpochs:
    """Hold, by partition, from which offset on which epoch holds."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def note(self, tp: tuple[str, int], data: bytes) -> None:
        """Note the epochs of batches that a fetch of that partition has brought; the last batch may be cut
        off."""
        at, end = 0, len(data) - _HEAD.size
        changes = self._changes.get(tp)
        while at <= end:
            first, length, epoch, version = _HEAD.unpack_from(data, at)
            at += _BEFORE_LENGTH_COUNTS + length
            if version != _WITH_EPOCHS or length <= 0:
                self._changes.pop(tp, None)
                return
            if changes is None:
                changes = self._changes[tp] = []
            while changes and changes[-1][0] >= first:  # it reads again from before
                changes.pop()
            if not changes or changes[-1][1] != epoch:
                changes.append((first, epoch))
                del changes[:-_MOST]

    def before(self, tp: tuple[str, int], offset: int) -> int:
        """Return the epoch of the last batch before that offset; -1 if it is not known."""
        changes = self._changes.get(tp, [])
        return next((epoch for first, epoch in reversed(changes) if first < offset), -1)


def _partitions(tps: Iterable[TopicPartition]) -> list[aiokafka.TopicPartition]:
    return [aiokafka.TopicPartition(*tp) for tp in tps]
