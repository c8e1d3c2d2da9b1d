"""Execute a statement of Lenses SQL v2 about a topic that is written to without a pause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from websockets.asyncio.client import connect

Message = dict[str, Any]
Ends = Mapping[int, int]
"""The next offset of every partition."""

_ROUNDS = 3
"""Of every three transactions two are committed."""


@dataclass(frozen=True)
class Answer:
    """Hold what came, END at last. before, after: the ends right before the request and behind METADATA."""

    heard: list[Message]
    before: Ends
    after: Ends

    def bounds(self) -> Ends:
        """Return where it ended. Raises AssertionError: that was no end that Kafka had when it was asked."""
        assert self.heard[-2]["type"] == "STATS"
        (of_source,) = self.heard[-2]["data"]["sourcesStats"].values()
        found = {int(partition): each["offsetBound"] + 1 for partition, each in of_source.items()}
        assert all(self.before[p] <= found[p] <= self.after[p] for p in found), (
            self.before,
            found,
            self.after,
        )
        return found


class Writer:
    """Write to all partitions of a topic, round by round; a round may be a transaction."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partitions: int, transactional: bool) -> None:
        self._producer, self._topic, self._partitions = producer, topic, partitions
        self._transactional = transactional
        self._enough = False
        self._rounds = 0
        self._more = asyncio.Event()

    async def run(self) -> None:
        """Write until `stop`."""
        for n in count():
            await self._round(n)
            self._rounds += 1
            self._more.set()
            if self._enough:
                return

    def stop(self) -> None:
        self._enough = True

    async def written(self) -> None:
        """Return when more has been written than now, and is there for good."""
        wanted = self._rounds + _ROUNDS
        while self._rounds < wanted:
            self._more.clear()
            await self._more.wait()

    async def _round(self, n: int) -> None:
        if self._transactional:
            await self._producer.begin_transaction()
        for partition in range(self._partitions):
            await self._producer.send(self._topic, b'{"n":%d}' % n, b'"%d"' % (n % 50), partition)
        await self._producer.flush()
        if self._transactional and n % _ROUNDS == _ROUNDS - 1:
            await self._producer.abort_transaction()
        elif self._transactional:
            await self._producer.commit_transaction()


async def asked_while_written(
    url: str, sql: str, bootstrap: str, topic: str, partitions: int, *, transactional: bool = False
) -> Answer:
    """Execute a statement about a topic; there is more behind its end before it is all read. Callable from
    Trio."""
    ask = partial(_asked, url, sql, bootstrap, topic, partitions, transactional)
    return await trio.to_thread.run_sync(lambda: asyncio.run(ask()))


async def _asked(
    url: str, sql: str, bootstrap: str, topic: str, partitions: int, transactional: bool
) -> Answer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed"
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer" if transactional else None
    )

    async def ends() -> Ends:
        found = await consumer.end_offsets([TopicPartition(topic, n) for n in range(partitions)])
        return {each.partition: offset for each, offset in found.items()}

    async with consumer, producer, connect(url, max_size=None) as socket:
        writer = Writer(producer, topic, partitions, transactional)
        writing = asyncio.create_task(writer.run())
        await writer.written()
        heard: list[Message] = []
        before = await ends()
        after: Ends = {}
        await socket.send(json.dumps({"sql": sql, "stats": 60_000}))
        async for text in socket:
            heard.append(json.loads(text))
            if heard[-1]["type"] == "METADATA":
                after = await ends()
                await writer.written()
        writer.stop()
        await writing
    return Answer(heard, before, after)
