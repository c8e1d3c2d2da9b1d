"""Sources that share consumers do not get into each other's way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.kafka.support import Offsets, kafka_on, running, start_source
from tests.topics import Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]

ONE_CONSUMER = {"client": {"max_consumers": 1, "max_poll_records": 100}}


async def test_a_slow_source_holds_up_nobody(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    slow_topic, quick_topic = [await topics.create(new_topic(), 2) for _ in range(2)]
    async with (
        kafka_on(broker.bootstrap, **ONE_CONSUMER) as kafka,
        running(kafka, slow_topic) as slow,
        running(kafka, quick_topic) as quick,
    ):
        assert len(kafka.consumers) == 1
        slow.out.gate = trio.Event()
        await topics.fill(slow_topic, 50_000, 2)
        await topics.fill(quick_topic, 20_000, 2)
        with trio.fail_after(10):
            await quick.out.wait_for(20_000)
        assert slow.out.count == 0
        slow.out.gate.set()
        with trio.fail_after(10):
            await slow.out.wait_for(50_000)
    assert slow.out.offsets == {p: list(range(25_000)) for p in range(2)}
    assert quick.out.offsets == {p: list(range(10_000)) for p in range(2)}


async def test_two_sources_of_one_topic(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    async with (
        kafka_on(broker.bootstrap, **ONE_CONSUMER) as kafka,
        running(kafka, name, id="a") as one,
        running(kafka, name, id="b") as other,
    ):
        await topics.fill(name, 1_000, 2)
        for source in (one, other):
            with trio.fail_after(10):
                await source.out.wait_for(1_000)
            assert source.out.offsets == {p: list(range(500)) for p in range(2)}


async def test_sources_come_and_go_under_load(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    steady_topic, other_topic = [await topics.create(new_topic(), 4) for _ in range(2)]
    await topics.fill(steady_topic, 100_000, 4)
    start = dict.fromkeys(range(4), 0)
    changes = 0
    async with (
        kafka_on(broker.bootstrap, **ONE_CONSUMER) as kafka,
        running(kafka, steady_topic, start=start) as steady,
    ):
        while steady.out.count < 100_000:
            async with running(kafka, other_topic):
                changes += 1
                await steady.out.wait_for(min(100_000, steady.out.count + 3_000))
    assert changes > 5
    assert steady.out.offsets == {p: list(range(25_000)) for p in range(4)}


@pytest.mark.extended
async def test_interruptions_lose_nothing(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    # A source that is full, and has room again, thousands of times: each time a read is cancelled.
    slow_topic, quick_topic = [await topics.create(new_topic(), 4) for _ in range(2)]
    await topics.fill(slow_topic, 100_000, 4)
    await topics.fill(quick_topic, 100_000, 4)
    start = dict.fromkeys(range(4), 0)

    class Halting(Offsets):
        async def publish(self, batch: object) -> None:
            await trio.sleep(0.002)
            await super().publish(batch)  # type: ignore[arg-type]

    async with (
        kafka_on(broker.bootstrap, **ONE_CONSUMER) as kafka,
        running(kafka, slow_topic, out=Halting(), start=start) as slow,
        running(kafka, quick_topic, start=start) as quick,
    ):
        with trio.fail_after(30):
            await slow.out.wait_for(100_000)
            await quick.out.wait_for(100_000)
    for source in (slow, quick):
        assert source.out.offsets == {p: list(range(25_000)) for p in range(4)}


async def test_many_sources_share_few_consumers(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    names = [await topics.create(new_topic(), 1) for _ in range(12)]
    async with kafka_on(broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        sources = [start_source(nursery, kafka, name) for name in names]
        for source in sources:
            with trio.fail_after(10):
                await source.out.is_ready.wait()
        assert len(kafka.consumers) == 4
        for name in names:
            await topics.fill(name, 10, 1)
        for source in sources:
            with trio.fail_after(10):
                await source.out.wait_for(10)
            assert source.out.offsets == {0: list(range(10))}
        nursery.cancel_scope.cancel()
