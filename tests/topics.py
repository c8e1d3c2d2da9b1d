"""Topics of a Kafka for tests and benchmarks: makes, grows, fills and removes them.

Callable from Trio. Each call runs an asyncio loop of its own in a worker thread and closes its client
again, so nothing is shared between calls; it is meant for set-up, not for a hot path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import for_code

_Answer = TypeVar("_Answer")
_POLL = 0.05
_WAIT = 20.0


@dataclass(frozen=True, slots=True)
class Record:
    """One record to produce. `partition` None: chosen by the key's hash; `timestamp` in ms, None: now."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Topics:
    """The topics of one cluster. `client` are further options of every aiokafka client (security, say)."""

    def __init__(self, bootstrap: str, **client: Any) -> None:
        self._client = {"bootstrap_servers": bootstrap, **client}

    async def create(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        replication: int = 1,
    ) -> str:
        """Makes a topic; returns its name when every partition has a leader. Raises aiokafka's errors."""

        async def make() -> str:
            async with self._admin() as admin:
                answer = await admin.create_topics(
                    [NewTopic(name, partitions, replication, topic_configs=dict(config or {}))]
                )
                _raise_first(answer.topic_errors)
                await _until(lambda: _has_leaders(admin, name, partitions))
            return name

        return await _in_thread(make)

    async def delete(self, name: str) -> None:
        """Removes a topic; returns when the cluster no longer knows it."""

        async def remove() -> None:
            async with self._admin() as admin:
                answer = await admin.delete_topics([name])
                _raise_first(answer.topic_error_codes)
                await _until(lambda: _is_gone(admin, name))

        await _in_thread(remove)

    async def grow(self, name: str, partitions: int) -> None:
        """Gives a topic more partitions: `partitions` in all."""

        async def add() -> None:
            async with self._admin() as admin:
                answer = await admin.create_partitions({name: NewPartitions(partitions)})
                _raise_first(answer.topic_errors)
                await _until(lambda: _has_leaders(admin, name, partitions))

        await _in_thread(add)

    async def partitions(self, name: str) -> int:
        """How many partitions a topic has; 0 if there is none of that name (it is not created by asking)."""

        async def count() -> int:
            async with self._admin() as admin:
                topic = (await admin.describe_topics([name]))[0]
            return 0 if topic["error_code"] else len(topic["partitions"])

        return await _in_thread(count)

    async def produce(
        self,
        name: str,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        transactional_id: str | None = None,
        abort: bool = False,
    ) -> list[tuple[int, int]]:
        """Produces the records; returns (partition, offset) of each, in their order, once all
        are acknowledged.

        `codec`: gzip, snappy, lz4, zstd. With a `transactional_id` all of them are one transaction,
        which `abort` throws away again.
        """

        async def send() -> list[tuple[int, int]]:
            options: dict[str, Any] = {"compression_type": codec, "linger_ms": 5, "max_batch_size": 262_144}
            if transactional_id is not None:
                options["transactional_id"] = transactional_id
            producer = AIOKafkaProducer(**self._client, **options)
            await producer.start()
            try:
                if transactional_id is not None:
                    await producer.begin_transaction()
                sent = [
                    await producer.send(
                        name,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                placed = [await future for future in sent]
                if transactional_id is not None:
                    await (producer.abort_transaction() if abort else producer.commit_transaction())
            finally:
                await producer.stop()
            return [(one.partition, one.offset) for one in placed]

        return await _in_thread(send)

    async def fill(self, name: str, count: int, partitions: int, size: int = 128) -> None:
        """Produces `count` records fast, round-robin over the partitions, in order in each.

        A value is the record's number (12 ASCII digits) filled up with "x" to `size` bytes; the key is
        the number of the partition. Returns once all are acknowledged.
        """

        async def send() -> None:
            producer = AIOKafkaProducer(**self._client, max_batch_size=1_048_576)
            await producer.start()
            try:
                sent = []
                for partition in range(partitions):
                    key, numbers = b"%d" % partition, iter(range(partition, count, partitions))
                    number = next(numbers, None)
                    while number is not None:
                        batch = producer.create_batch()
                        while number is not None:
                            value = (b"%012d" % number).ljust(size, b"x")
                            if batch.append(key=key, value=value, timestamp=None) is None:
                                break  # the batch is full
                            number = next(numbers, None)
                        sent.append(await producer.send_batch(batch, name, partition=partition))
                await asyncio.gather(*sent)
            finally:
                await producer.stop()

        await _in_thread(send)

    async def trim(self, name: str, before: Mapping[int, int]) -> None:
        """Removes the records of a topic before these offsets (by partition), as retention would."""

        async def remove() -> None:
            async with self._admin() as admin:
                await admin.delete_records(
                    {TopicPartition(name, one): RecordsToDelete(offset) for one, offset in before.items()}
                )

        await _in_thread(remove)

    async def end_offsets(self, name: str, *, committed: bool = False) -> dict[int, int]:
        """The next offset of every partition of a topic that exists. committed: for those who read up to the
        first transaction that is open; one that has ended is open until its marker is written."""
        level = "read_committed" if committed else "read_uncommitted"
        count = await self.partitions(name)

        async def look() -> dict[int, int]:
            consumer = AIOKafkaConsumer(**self._client, enable_auto_commit=False, isolation_level=level)
            await consumer.start()
            try:
                ends = await consumer.end_offsets([TopicPartition(name, one) for one in range(count)])
            finally:
                await consumer.stop()
            return {one.partition: offset for one, offset in ends.items()}

        return await _in_thread(look)

    @asynccontextmanager
    async def _admin(self):  # type: ignore[no-untyped-def]  # aiokafka carries no types
        admin = AIOKafkaAdminClient(**self._client)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()


async def _in_thread(work: Callable[[], Awaitable[_Answer]]) -> _Answer:
    async def main() -> _Answer:
        return await work()

    return await trio.to_thread.run_sync(lambda: asyncio.run(main()))


def _raise_first(errors: Iterable[Sequence[Any]]) -> None:
    """`errors`: (topic, error code, message?) of the admin client, which does not raise by itself."""
    for topic, code, *message in errors:
        if code:
            raise for_code(code)(f"{topic}: {message[0] if message else ''}")


async def _until(done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_WAIT):
        while not await done():  # noqa: ASYNC110  (a cluster does not say when it is done)
            await asyncio.sleep(_POLL)


async def _has_leaders(admin: AIOKafkaAdminClient, name: str, partitions: int) -> bool:
    topic = (await admin.describe_topics([name]))[0]
    leaders = [one["leader"] for one in topic["partitions"]]
    return topic["error_code"] == 0 and len(leaders) == partitions and min(leaders) >= 0


async def _is_gone(admin: AIOKafkaAdminClient, name: str) -> bool:
    code: int = (await admin.describe_topics([name]))[0]["error_code"]
    return code == 3  # UNKNOWN_TOPIC_OR_PARTITION
