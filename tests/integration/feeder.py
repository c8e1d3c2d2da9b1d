"""A producer that is fed in steps, for tests that must know how far it is and cut it off in the middle."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from aiokafka import AIOKafkaProducer

PARTITIONS = 4
_OUTAGE_S = 120  # an outage of the broker is shorter, so that nothing is given up
_REQUEST_TIMEOUT_MS = 60_000


class Feeder:
    """Produces numbered records, round-robin over the partitions: the value of record n begins with n in 12
    digits, its key is the partition, and it is at offset n // 4 of partition n % 4 if none was repeated."""

    def __init__(
        self, producer: AIOKafkaProducer, loop: asyncio.AbstractEventLoop, topic: str, size: int
    ) -> None:
        self.sent = 0
        self._producer = producer
        self._loop = loop
        self._topic = topic
        self._size = size

    async def send(self, count: int) -> None:
        """Trio: produce so many more; returns when the broker has acknowledged all of them."""
        done = asyncio.run_coroutine_threadsafe(self._send(count), self._loop)
        await trio.to_thread.run_sync(done.result, abandon_on_cancel=True)

    async def _send(self, count: int) -> None:
        acknowledgements = []
        first, self.sent = self.sent, self.sent + count
        for partition in range(PARTITIONS):
            numbers = [n for n in range(first, first + count) if n % PARTITIONS == partition]
            key = b"%d" % partition
            while numbers:
                batch = self._producer.create_batch()
                taken = 0
                for number in numbers:
                    value = (b"%012d" % number).ljust(self._size, b"x")
                    if batch.append(key=key, value=value, timestamp=None) is None:
                        break
                    taken += 1
                del numbers[:taken]
                acknowledgements.append(
                    await self._producer.send_batch(batch, self._topic, partition=partition)
                )
        await asyncio.gather(*acknowledgements)


@asynccontextmanager
async def feeder(
    bootstrap: str, topic: str, size: int = 128, answer_within_ms: int = _REQUEST_TIMEOUT_MS
) -> AsyncIterator[Feeder]:
    """A producer whose retries never write a record twice (it is idempotent).

    answer_within_ms: a broker that does not answer for so long is left, and the new leaders are asked.
    """
    quiet = logging.getLogger("aiokafka")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)  # while a broker is away it writes sixty lines a second
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="feeder")
    thread.start()

    async def make() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=262_144,
            request_timeout_ms=answer_within_ms,
        )
        # aiokafka gives a record up when it is as old as one request may take. It has no option for that.
        producer._message_accumulator._batch_ttl = _OUTAGE_S
        await producer.start()
        return producer

    def on_its_loop(coroutine):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        producer = await trio.to_thread.run_sync(on_its_loop, make())
        try:
            yield Feeder(producer, loop, topic, size)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                await trio.to_thread.run_sync(on_its_loop, producer.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        quiet.setLevel(level)
