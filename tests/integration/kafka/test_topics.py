"""Topics that do not exist yet, come, go, come again, and grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
from aiokafka.admin import AIOKafkaAdminClient

from kiwi_demo.broker import Broker
from kiwi_gw.api import SourceChanged
from tests.integration.kafka.support import Offsets, kafka_on, running, start_source
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]


@pytest.fixture
async def creating_broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """One that makes every topic that somebody asks for and allows it to."""
    options = ("-XX:TieredStopAtLevel=1",)
    async with Broker(tmp_path / "broker", auto_create=True, java_options=options) as broker:
        yield broker


async def names(broker: Broker, delete: str | None = None) -> set[str]:
    """The topics that there are. Asking for one by name would create it here."""

    async def ask() -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            if delete is not None:
                await admin.delete_topics([delete])
            return set(await admin.list_topics())
        finally:
            await admin.close()

    return await trio.to_thread.run_sync(lambda: asyncio.run(ask()))


@pytest.mark.extended
async def test_a_missing_topic_is_waited_for_and_never_created(
    creating_broker: Broker, new_topic: NewTopic
) -> None:
    topics = Topics(creating_broker.bootstrap)
    name = new_topic()
    async with kafka_on(creating_broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        source = start_source(nursery, kafka, name)
        await trio.sleep(2)
        assert not source.out.is_ready.is_set()
        assert name not in await names(creating_broker)
        await topics.create(name, 3)
        with trio.fail_after(8):
            await source.out.is_ready.wait()
        assert source.out.ready_at == {0: 0, 1: 0, 2: 0}

        # Deleted while it is read: nobody makes it anew.
        await topics.produce(name, [Record(b"x", partition=0)])
        await source.out.wait_for(1)
        await names(creating_broker, delete=name)
        with trio.fail_after(8):
            await source.ended.wait()
        assert isinstance(source.error, SourceChanged)
        assert "deleted" in str(source.error)
        again = start_source(nursery, kafka, name)
        await trio.sleep(2)
        assert name not in await names(creating_broker)
        assert not again.out.is_ready.is_set()
        nursery.cancel_scope.cancel()


async def test_recreated(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 1)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        await topics.produce(name, [Record(b"old")] * 3)
        await source.out.wait_for(3)
        await topics.delete(name)
        await topics.create(name, 1)
        await topics.produce(name, [Record(b"new")] * 10)  # longer than our position: only the id tells
        with trio.fail_after(8):
            await source.ended.wait()
        assert isinstance(source.error, SourceChanged)
        assert "deleted" in str(source.error)
        # Positions of the old one mean nothing in the new one.
        async with trio.open_nursery() as nursery:
            late = start_source(nursery, kafka, name, start={0: 3})
            with trio.fail_after(8):
                await late.ended.wait()
        assert isinstance(late.error, SourceChanged)


async def test_positions_beyond_the_end(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.fill(name, 5, 1)
    async with kafka_on(broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        source = start_source(nursery, kafka, name, start={0: 6})
        with trio.fail_after(8):
            await source.ended.wait()
    assert isinstance(source.error, SourceChanged)
    assert "ends at offset 5, before 6" in str(source.error)


async def test_grown_and_closed(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        await topics.fill(name, 100, 2)
        await source.out.wait_for(100)
        await topics.grow(name, 3)
        with trio.fail_after(8):
            await source.ended.wait()
    assert isinstance(source.error, SourceChanged)
    assert str(source.error) == f"topic {name!r} has grown from 2 to 3 partitions"


async def test_grown_and_continued(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    out = Offsets()
    async with (
        kafka_on(broker.bootstrap) as kafka,
        running(kafka, name, out=out, on_partition_change="continue") as source,
    ):
        await topics.fill(name, 100, 2)
        await out.wait_for(100)
        await topics.grow(name, 4)
        await topics.fill(name, 100, 4)
        with trio.fail_after(10):
            await out.wait_for(200)
        assert not source.ended.is_set()
    assert out.offsets == {
        0: list(range(75)),
        1: list(range(75)),
        2: list(range(25)),
        3: list(range(25)),
    }


async def test_grown_while_nobody_looked(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    await topics.fill(name, 40, 2)
    await topics.grow(name, 3)
    await topics.fill(name, 30, 3)
    async with kafka_on(broker.bootstrap) as kafka:
        start = {0: 20, 1: 20}
        async with running(kafka, name, on_partition_change="continue", start=start) as source:
            with trio.fail_after(10):
                await source.out.wait_for(30)
        assert source.out.offsets == {0: list(range(20, 30)), 1: list(range(20, 30)), 2: list(range(10))}
        async with trio.open_nursery() as nursery:
            closed = start_source(nursery, kafka, name, start=start)
            with trio.fail_after(8):
                await closed.ended.wait()
        assert isinstance(closed.error, SourceChanged)


async def test_growth_is_not_looked_for_when_told_not_to(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 1)
    async with (
        kafka_on(broker.bootstrap, partition_discovery_enabled=False, probe_interval_ms=100) as kafka,
        running(kafka, name) as source,
    ):
        await topics.grow(name, 2)
        await trio.sleep(1)  # ten looks
        await topics.produce(name, [Record(b"x", partition=0)])
        with trio.fail_after(5):
            await source.out.wait_for(1)
        assert not source.ended.is_set()
