"""Consumers of a scripted cluster, and a check of what they read against what was written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kiwi_kafka.client.consumer import FetchingConsumer
from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.ports import FetchedPartition, TopicPartition
from tests.plugins.kafka.scripted_broker import SECONDS, Cluster

WAIT_MS = 100
"""How long a broker holds a fetch here, and no longer than that a reader waits."""


class Reader:
    """Read, and check at once that nothing is lost, doubled or out of order."""

    def __init__(
        self, cluster: Cluster, consumer: FetchingConsumer, positions: Mapping[TopicPartition, int]
    ) -> None:
        self.cluster = cluster
        self.consumer = consumer
        self.next = dict(positions)
        self.paused: set[TopicPartition] = set()
        self.count = 0

    async def read(
        self, only: Sequence[TopicPartition] = (), wait_ms: int = WAIT_MS, most: int | None = None
    ) -> set[TopicPartition]:
        """Read once. Returns the partitions that moved on."""
        resting = self.next.keys() - set(only) if only else ()
        return self.check(await self.consumer.read(resting, wait_ms, most), only)

    def check(
        self, fetched: dict[str, list[FetchedPartition]], only: Sequence[TopicPartition] = ()
    ) -> set[TopicPartition]:
        moved = set()
        for topic, parts in fetched.items():
            for part in parts:
                tp = TopicPartition(topic, part.partition)
                assert tp not in moved, "twice in one read"
                moved.add(tp)
                self._check(tp, part)
        assert not moved & self.paused
        assert not only or moved <= set(only)
        return moved

    def _check(self, tp: TopicPartition, part: FetchedPartition) -> None:
        rows = self.cluster.logs[tp].rows
        wanted = [(n, rows[n]) for n in range(self.next[tp], part.next) if n in rows]
        assert [(record.offset, record.value) for record in part.records] == wanted
        assert part.next > self.next[tp]
        self.next[tp] = part.next
        self.count += len(wanted)

    async def read_all(self, tps: Iterable[TopicPartition] | None = None) -> None:
        """Read until the ends of these partitions, or of all."""
        wanted = list(self.next if tps is None else tps)
        with trio.fail_after(SECONDS):
            while any(self.next[tp] < self.cluster.logs[tp].end for tp in wanted):
                await self.read()

    async def read_on(self) -> None:
        """Read until it raises."""
        with trio.fail_after(SECONDS):
            while True:
                await self.read()

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        await self.consumer.seek({tp: offset})
        self.next[tp] = offset

    async def pause(self, *tps: TopicPartition) -> None:
        await self.consumer.pause(tps)
        self.paused |= set(tps)

    async def resume(self, *tps: TopicPartition) -> None:
        await self.consumer.resume({tp: self.next[tp] for tp in tps})
        self.paused -= set(tps)


@asynccontextmanager
async def reader_of(
    cluster: Cluster, start: Mapping[TopicPartition, int] | None = None, *, live: bool = True, **client: Any
) -> AsyncIterator[Reader]:
    """Open a consumer for all partitions of the cluster, from their beginnings if not said otherwise."""
    settings = cluster.settings(**{"fetch_max_wait_ms": WAIT_MS, **client})
    async with trio.open_nursery() as nursery:
        consumer = await BrokerClientFactory(settings, nursery).consumer(live=live)
        assert isinstance(consumer, FetchingConsumer)
        positions = dict.fromkeys(cluster.logs, 0) | dict(start or {})
        try:
            await consumer.assign(positions)
            yield Reader(cluster, consumer, positions)
        finally:
            await consumer.close()
