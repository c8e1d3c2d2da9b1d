"""A Kafka source on its own, without a gateway: what it hands over is kept as offsets by partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from kiwi_gw.api import Batch, Gap, PluginContext, Positions, SourceContext
from kiwi_gw.testing import MemoryPublisher
from kiwi_kafka import KAFKA, Kafka, KafkaSettings, KafkaSourceSettings, open_kafka


class Offsets:
    """A `Publisher` that keeps every offset, in order, and checks that none comes twice.

    `gate`: publish waits while it is not set.
    """

    def __init__(self) -> None:
        self.ready_at: dict[int, int] = {}
        self.is_ready = trio.Event()
        self.offsets: dict[int, list[int]] = {}
        self.gaps: list[Gap] = []
        self.troubles: list[str] = []
        self.positions: dict[int, int] = {}
        self.count = 0
        self.gate = trio.Event()
        self.gate.set()
        self._grown = trio.Event()

    async def ready(self, positions: Positions) -> None:
        self.ready_at = dict(positions)
        self.positions = dict(positions)
        self.is_ready.set()
        await trio.lowlevel.checkpoint()

    async def publish(self, batch: Batch) -> None:
        await self.gate.wait()
        for partition, offset in batch.starts.items():
            assert offset >= self.positions.get(partition, 0), "a batch begins before the last one's end"
        self.positions = dict(batch.starts)
        for partition, offset in zip(batch.partitions, batch.offsets, strict=True):
            assert offset >= self.positions[partition], f"offset {offset} of {partition} came twice, or late"
            self.offsets.setdefault(partition, []).append(offset)
            self.positions[partition] = offset + 1
        if batch.gap is not None:
            self.gaps.append(batch.gap)
        self.count += len(batch)
        self._grown.set()
        await trio.lowlevel.checkpoint()

    def describe(self, members: str) -> None:
        raise AssertionError("nobody knows what is in the records of a topic")

    def report_degraded(self, message: str) -> None:
        self.troubles.append(message)

    @property
    def subscribed(self) -> bool:
        return True

    async def wait_subscribed(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_for(self, count: int) -> None:
        await self.wait_until(lambda: self.count >= count)

    async def wait_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._grown = trio.Event()
            await self._grown.wait()


@asynccontextmanager
async def kafka_on(bootstrap: str, **settings: Any) -> AsyncIterator[Kafka]:
    async with open_kafka(context_of(bootstrap, **settings)) as kafka:
        yield kafka


def context_of(bootstrap: str, **settings: Any) -> PluginContext:
    return PluginContext({"kafka": KafkaSettings(bootstrap_servers=bootstrap, **settings)})


class Running:
    """A source that runs: `out` takes its events; `ended` is set, with `error`, when `run` has ended."""

    def __init__(self, source: Any, out: Any) -> None:
        self.source = source
        self.out = out
        self.error: Exception | None = None
        self.ended = trio.Event()
        self.scope = trio.CancelScope()

    async def run(self, start: Positions | None) -> None:
        with self.scope:
            try:
                await self.source.run(self.out, start)
            except Exception as error:  # noqa: BLE001  (a test looks at it)
                self.error = error
        self.ended.set()


def start_source(
    nursery: trio.Nursery,
    kafka: Kafka,
    topic: str,
    out: Offsets | MemoryPublisher | None = None,
    start: Positions | None = None,
    **settings: Any,
) -> Running:
    section = KafkaSourceSettings(type="kafka", topic=topic, **settings)
    context = SourceContext(topic, PluginContext({}), {"kafka": kafka})
    running = Running(KAFKA.build(section, context), Offsets() if out is None else out)
    nursery.start_soon(running.run, start)
    return running


@asynccontextmanager
async def running(kafka: Kafka, topic: str, **options: Any) -> AsyncIterator[Running]:
    """The source, ready; it is stopped when the block is left."""
    async with trio.open_nursery() as nursery:
        source = start_source(nursery, kafka, topic, **options)
        with trio.fail_after(30):
            await source.out.is_ready.wait()
        yield source
        nursery.cancel_scope.cancel()


async def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """What retention does, at once: the first offsets of the partitions are then these."""

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.delete_records(
                {TopicPartition(topic, p): RecordsToDelete(offset) for p, offset in before.items()}
            )
        finally:
            await admin.close()

    await trio.to_thread.run_sync(lambda: asyncio.run(delete()))
