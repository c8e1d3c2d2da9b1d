"""A broker that dies or freezes costs time and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio
from structlog.testing import capture_logs

from kiwi_demo.broker import Broker
from kiwi_kafka import Kafka
from tests.integration.kafka.support import kafka_on, running
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

NewTopic = Callable[[], str]


async def until(done: Callable[[], bool], seconds: float) -> float:
    """How long it took; TooSlowError if longer than `seconds`."""
    began = trio.current_time()
    with trio.fail_after(seconds):
        while not done():  # noqa: ASYNC110  (the service tells nobody)
            await trio.sleep(0.02)
    return trio.current_time() - began


def is_away(kafka: Kafka) -> Callable[[], bool]:
    return lambda: not kafka.up


async def test_killed_and_restarted_in_the_middle(
    own_broker: Broker, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topics = Topics(own_broker.bootstrap)
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 200_000, 4)
    with capture_logs() as logs:
        async with (
            kafka_on(own_broker.bootstrap) as kafka,
            running(kafka, name, start=dict.fromkeys(range(4), 0)) as source,
        ):
            await source.out.wait_for(50_000)
            source.out.gate = trio.Event()  # so that the rest is certainly read after the return
            await own_broker.kill()
            assert await until(is_away(kafka), 5) < 5
            source.out.gate.set()
            await own_broker.start()
            with trio.fail_after(5):
                await source.out.wait_for(200_000)
            await topics.fill(name, 1_000, 4)
            with trio.fail_after(5):
                await source.out.wait_for(201_000)
            assert not source.ended.is_set()
    assert source.out.offsets == {p: list(range(50_250)) for p in range(4)}
    assert not source.out.gaps
    told = [entry["event"] for entry in logs if entry["log_level"] in ("info", "warning", "error")]
    assert told == ["kafka broker away", "kafka broker back"]
    assert len([record for record in caplog.records if record.name.startswith("aiokafka")]) < 40


async def test_frozen(own_broker: Broker, new_topic: NewTopic) -> None:
    topics = Topics(own_broker.bootstrap)
    name = await topics.create(new_topic(), 4)
    async with kafka_on(own_broker.bootstrap) as kafka, running(kafka, name) as source:
        await topics.fill(name, 10_000, 4)
        await source.out.wait_for(10_000)
        own_broker.freeze()
        noticed = await until(is_away(kafka), 5)
        own_broker.thaw()
        back = await until(lambda: kafka.up, 5)
        await topics.fill(name, 10_000, 4)
        with trio.fail_after(5):
            await source.out.wait_for(20_000)
        assert not source.ended.is_set()
    assert noticed < 5
    assert back < 5
    assert source.out.offsets == {p: list(range(5_000)) for p in range(4)}


async def test_away_when_it_begins(own_broker: Broker, new_topic: NewTopic) -> None:
    topics = Topics(own_broker.bootstrap)
    name = await topics.create(new_topic(), 2)
    await topics.fill(name, 100, 2)
    await own_broker.kill()
    async with kafka_on(own_broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        nursery.start_soon(own_broker.start)
        async with running(kafka, name) as source:
            assert source.out.ready_at == {0: 50, 1: 50}
            await topics.fill(name, 100, 2)
            with trio.fail_after(5):
                await source.out.wait_for(100)


async def test_the_service_ends_at_once_though_the_broker_is_frozen(
    own_broker: Broker, new_topic: NewTopic
) -> None:
    name = await Topics(own_broker.bootstrap).create(new_topic(), 4)
    for seconds in (0.0, 2.5, 4.0):  # unnoticed, being noticed, while it is tried again
        async with kafka_on(own_broker.bootstrap) as kafka, running(kafka, name):
            own_broker.freeze()
            await trio.sleep(seconds)
            began = trio.current_time()
        assert trio.current_time() - began < 1
        own_broker.thaw()
