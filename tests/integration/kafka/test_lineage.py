"""Of which history positions are, with a real broker: a topic made anew, a log that was lost and regrown."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.api import SourceChanged
from kiwi_kafka.ports import TopicDescription
from kiwi_kafka.positions import BY_TOPIC
from tests.integration.client import client
from tests.integration.gateway import gateway, kafka_config
from tests.integration.kafka.support import kafka_on, running, start_source
from tests.offsets_of import offsets_of
from tests.topics import Topics

pytestmark = pytest.mark.integration

WITHIN = 60.0


async def lose(broker: Broker, topic: str) -> None:
    """What an unclean election does, to its last record: a leader without anything that the last one had."""
    await broker.kill()
    for folder in (broker.folder / "data").glob(f"{topic}-*"):
        shutil.rmtree(folder)
    await broker.start()


async def refusal(address: str, topic: str, positions: object) -> str:
    async with client(address, topic) as one:
        await one.say("SUBSCRIBE", mode="push", **{"from": {"positions": positions}}, onMissing="earliest")
        return str((await one.reply("SUBSCRIBE_ERROR"))["data"]["error"])


async def test_who_comes_back_to_a_topic_made_anew_is_told(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 1)
    await topics.fill(topic, 10, 1)
    with trio.fail_after(WITHIN):
        async with gateway(tmp_path, kafka_config(broker.bootstrap, topic)) as first:
            async with client(first.address, topic) as one:
                opened = await one.subscribe(**{"from": "earliest"})
                await one.events(10)
            at: dict[str, Any] = {**opened["positions"], "0": 10}
            assert len(at["topic"]) == 22
            assert at["epochs"] == {"0": [0, 0]}
            async with client(first.address, topic) as again:
                wish: dict[str, Any] = {"from": {"positions": at}}
                assert offsets_of((await again.subscribe(**wish))["positions"]) == {"0": 10}
        await topics.delete(topic)
        await topics.create(topic, 1)
        await topics.fill(topic, 30, 1)  # longer than it was: bare offsets are in its range
        async with gateway(tmp_path, kafka_config(broker.bootstrap, topic)) as second:
            assert "deleted and created anew" in await refusal(second.address, topic, at)
            async with client(second.address, topic) as bare:
                plain: dict[str, Any] = {"from": {"positions": {"0": 10}}}
                begins = (await bare.subscribe(**plain))["positions"]
                assert offsets_of(begins) == {"0": 10}
                assert begins["topic"] != at["topic"]


@pytest.mark.extended
async def test_a_broker_says_where_an_epoch_ends(own_broker: Broker) -> None:
    topics = Topics(own_broker.bootstrap)
    topic = await topics.create("epochs", 1)
    await topics.fill(topic, 10, 1)
    await own_broker.kill()
    await own_broker.start()
    await topics.fill(topic, 5, 1)
    with trio.fail_after(WITHIN):
        async with kafka_on(own_broker.bootstrap) as kafka, running(kafka, topic) as source:
            info = await kafka.lookup.describe(topic)
            assert isinstance(info, TopicDescription)
            epoch = info.epochs[0]
            assert epoch > 0
            assert await kafka.lookup.epoch_end_offsets(info, {0: 0}) == {0: 10}
            assert await kafka.lookup.epoch_end_offsets(info, {0: epoch}) == {0: 15}
            await topics.fill(topic, 1, 1)
            await source.out.wait_for(1)
            assert source.source.lineage.known(0) == (epoch, 16)


@pytest.mark.extended
async def test_a_log_that_was_lost_and_has_grown_again_is_told_live_and_after_a_reconnect(
    own_broker: Broker, tmp_path: Path
) -> None:
    topics = Topics(own_broker.bootstrap)
    topic = await topics.create("lost", 1)
    with trio.fail_after(WITHIN):
        async with kafka_on(own_broker.bootstrap) as kafka, trio.open_nursery() as nursery:
            source = start_source(nursery, kafka, topic)
            await source.out.is_ready.wait()
            await topics.fill(topic, 10, 1)
            await source.out.wait_for(10)
            at = BY_TOPIC.dump({0: 10}) | dict(source.source.lineage.marks({0: 10}))
            source.scope.cancel()
            await source.ended.wait()
            await lose(own_broker, topic)
            await topics.fill(topic, 30, 1)
            again = start_source(nursery, kafka, topic, start={0: 10})
            await again.ended.wait()
            assert isinstance(again.error, SourceChanged)
            assert "cut off" in str(again.error)
            assert again.out.count == 0
            nursery.cancel_scope.cancel()
        async with gateway(tmp_path, kafka_config(own_broker.bootstrap, topic)) as other:
            assert "was cut off" in await refusal(other.address, topic, at)
            async with client(other.address, topic) as fresh:
                await fresh.subscribe(**{"from": "earliest"})
                await fresh.events(30)
