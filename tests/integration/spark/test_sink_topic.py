"""A source whose rows come through a real topic, served by two gateways, of which one fills it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio

import kiwi_kafka
from kiwi_demo.broker import Broker
from kiwi_gw.api import PluginContext, Section, Source, SourceContext, SourceDescription, SourceType, hookimpl
from kiwi_gw.testing import GatewayUnderTest, open_gateway
from kiwi_kafka import KafkaSettings
from kiwi_spark.gateway.sink import SERVICE, SINK_SCHEMA, check_sinks, sink_source, writes_here
from tests.edge.wire import Client, connect
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

NewTopic = Callable[[], str]

PARTITIONS = 2


class Settings(Section):
    type: Literal["rows"]
    id: str
    topic: str
    write: bool = True


class BatchRows:
    """A source type `rows` with a sink; its query writes batches of rows when it is told to."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.wanted, self._batches = trio.open_memory_channel[Sequence[Record]](10)
        self.queries = 0

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (
            SourceType(
                "rows",
                Settings,
                self._build,
                SourceDescription(SINK_SCHEMA, services=(SERVICE,), sections=(SERVICE,), replayable=True),
            ),
        )

    def _build(self, settings: Section, context: SourceContext) -> Source:
        assert isinstance(settings, Settings)

        async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
            self.queries += 1
            begun()
            async for records in self._batches:
                await self._topics.produce(settings.topic, records)

        runs = writes_here(settings.write, context.plugins)
        return sink_source(settings.topic, context, query if runs else None)


@asynccontextmanager
async def serving(
    rows: BatchRows, bootstrap: str, topic: str, **more: object
) -> AsyncIterator[GatewayUnderTest]:
    config = {
        "plugins": ["kafka", "rows"],
        "kafka": {"bootstrap_servers": bootstrap},
        "sources": [{"type": "rows", "id": "late", "topic": topic, **more}],
    }
    async with open_gateway(json.dumps(config), plugins={"kafka": kiwi_kafka, "rows": rows}) as gateway:
        yield gateway


def row(number: int, key: bytes | None = None) -> Record:
    return Record(b'{"n":%d,"name":"\xc3\xa9"}' % number, key, partition=number % PARTITIONS)


async def results(client: Client, count: int) -> list[dict[str, Any]]:
    found: list[Any] = []
    with trio.fail_after(20):
        while len(found) < count:
            message = await client.message()
            if message["type"] == "RESULT":
                found.append(message["data"])
    return found


async def test_two_gateways_serve_what_one_query_writes(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    topic = await topics.create(new_topic(), PARTITIONS)
    rows, only_reads = BatchRows(topics), BatchRows(topics)
    async with (
        serving(rows, broker.bootstrap, topic) as first,
        serving(only_reads, broker.bootstrap, topic, write=False) as second,
    ):
        async with connect(first) as one, connect(second) as two:
            await one.subscribe("late")
            await two.subscribe("late")
            await rows.wanted.send([row(0, b'{"carrier":"AA"}'), row(1)])
            here, there = await results(one, 2), await results(two, 2)
        by_partition = {item["partition"]: item for item in here}
        assert by_partition[0] == {
            "sourceId": "late",
            "sourceType": "rows",
            "partition": 0,
            "offset": 0,
            "timestamp": by_partition[0]["timestamp"],
            "key": {"carrier": "AA"},
            "value": {"n": 0, "name": "é"},
        }
        assert by_partition[0]["timestamp"] > 1_700_000_000_000
        assert by_partition[1]["key"] is None
        assert {item["partition"]: item for item in there} == by_partition

        # A client of the one goes on with the other, exactly behind what it has had.
        await rows.wanted.send([row(number) for number in range(2, 8)])
        async with connect(second) as two:
            await two.subscribe("late", **{"from": {"positions": {"0": 1, "1": 1}}})
            found = await results(two, 6)
        assert sorted(item["value"]["n"] for item in found) == list(range(2, 8))
        assert [item["offset"] for item in found if item["partition"] == 0] == [1, 2, 3]
    assert (rows.queries, only_reads.queries) == (1, 0)


async def test_a_gateway_that_comes_later_has_everything(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    topic = await topics.create(new_topic(), PARTITIONS)
    await topics.produce(topic, [row(number) for number in range(10)])
    async with serving(BatchRows(topics), broker.bootstrap, topic) as gateway, connect(gateway) as client:
        await client.subscribe("late", **{"from": "earliest"})
        found = await results(client, 10)
    assert sorted(item["value"]["n"] for item in found) == list(range(10))


async def test_what_is_not_json_is_left_out_and_breaks_nothing(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    topic = await topics.create(new_topic(), 1)
    async with serving(BatchRows(topics), broker.bootstrap, topic) as gateway, connect(gateway) as client:
        await client.subscribe("late")
        await topics.produce(
            topic,
            [
                Record(b'{"n":1}'),
                Record(b"not json"),
                Record(b'{"n":2}', key=b"AA"),
                Record(b'{"n":"\xff"}'),
                Record(b"", key=b"1"),
                Record(None, key=b'"gone"'),
                Record(b'{"n":3}'),
            ],
        )
        found = await results(client, 3)
        assert [(item["offset"], item["key"], item["value"]) for item in found] == [
            (0, None, {"n": 1}),
            (5, "gone", None),
            (6, None, {"n": 3}),
        ]
        await topics.produce(topic, [Record(b'{"n":4}')])
        assert [item["value"] for item in await results(client, 1)] == [{"n": 4}]


async def test_check_asks_for_the_topics(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    topic, missing = await topics.create(new_topic(), 1), new_topic()
    context = PluginContext({"kafka": KafkaSettings(bootstrap_servers=broker.bootstrap)})
    found = await check_sinks(context, [topic, missing, topic])
    assert [(item.level, item.subject) for item in found] == [
        ("ok", f"kafka topic {topic}"),
        ("warning", f"kafka topic {missing}"),
    ]
    nobody = PluginContext({"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1")})
    assert [item.level for item in await check_sinks(nobody, [topic])] == ["error"]
    assert await check_sinks(nobody, []) == []
