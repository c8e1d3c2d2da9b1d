"""Records whose schemas are in a registry, from a real broker to a client of Kiwi."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import kiwi_kafka
from kiwi_demo.broker import Broker
from kiwi_gw.api import Diagnostic
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.testing import open_gateway
from kiwi_kafka import KafkaSourceSettings
from kiwi_kafka.registry.schema_registry import AWAY
from tests.edge.wire import Client, connect
from tests.integration.gateway import gateway
from tests.integration.kafka.support import context_of
from tests.plugins.kafka.registry_server import V1, V2, RegistryServer, registered, registry_server
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]
SELECT = "value.carrier, value.delay, value.gate, offset"
BY_REGISTRY = {"value": "avro", "key": "avro", "registry": True}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.add(1, V1)
        server.add(2, V2)
        server.add(3, '"string"')
        server.user = "ada", "sesame"
        yield server


def config(broker: Broker, server: RegistryServer, *topics: str, **source: Any) -> dict[str, object]:
    registry = {"url": server.url, "user": "ada", "password": "sesame"}
    return {
        "server": {"address": "127.0.0.1:0"},
        "kafka": {"bootstrap_servers": broker.bootstrap, "registry": registry},
        "sources": [{"type": "kafka", "topic": topic, "decode": BY_REGISTRY, **source} for topic in topics],
    }


def record(n: int, gate: str | None = None) -> Record:
    """One of two versions: those with a gate are of the second."""
    value = {"carrier": "AA", "delay": n}
    row = registered(1, V1, value) if gate is None else registered(2, V2, {**value, "gate": gate})
    return Record(row, key=registered(3, "string", f"k{n}"), partition=0)


async def results(
    client: Client, count: int, others: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Hear so many values. others: gets what comes between them."""
    found: list[dict[str, Any]] = []
    with trio.fail_after(60):
        while len(found) < count:
            message = await client.message()
            if message["type"] == "RESULT":
                found.append(message["data"]["value"])
            elif others is not None:
                others.append(message)
    return found


async def notice(client: Client, kind: str) -> dict[str, Any]:
    with trio.fail_after(60):
        while (message := await client.message())["data"].get("type") != kind:
            assert message["type"] != "RESULT", message
    return message


async def test_two_versions_in_replay_and_live_without_what_is_damaged(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer
) -> None:
    topic = await topics.create(new_topic(), 1)
    damaged = [Record(value) for value in (record(1).value, b"no Avro", b"\0\0\0\0\x63x")]
    damaged[0] = Record((record(1).value or b"")[:-1])
    before = [*(record(n, "B1" if n % 2 else None) for n in range(20)), *damaged]
    await topics.produce(topic, before)
    settings = config(broker, server, topic)
    async with open_gateway(json.dumps(settings)) as under_test, connect(under_test) as client:
        await client.subscribe(topic, select=SELECT, where="key LIKE 'k%'", **{"from": "earliest"})
        await topics.produce(topic, [record(n, "B1" if n % 2 else None) for n in range(20, 40)])
        found = await results(client, 40)
        (connection,) = under_test.gateway.connections
        (subscription,) = connection.subscriptions.values()
    expected = [
        {
            "carrier": "AA",
            "delay": n,
            "gate": "B1" if n % 2 else None,
            "offset": n if n < 20 else n + len(damaged),
        }
        for n in range(40)
    ]
    assert found == expected
    assert (subscription.delivery.scanned, subscription.delivery.matched) == (43, 40)
    assert sorted(set(server.requests)) == [f"/schemas/ids/{n}" for n in (1, 2, 3, 99)]
    assert len(server.requests) == 4


async def test_a_damaged_one_ends_the_subscription_where_that_is_wanted(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer
) -> None:
    topic = await topics.create(new_topic(), 1)
    settings = config(broker, server, topic, subscriber={"on_bad_record": "close"})
    async with open_gateway(json.dumps(settings)) as under_test, connect(under_test) as client:
        await client.subscribe(topic, select=SELECT)
        await topics.produce(topic, [record(0)])
        assert [value["delay"] for value in await results(client, 1)] == [0]
        await topics.produce(topic, [Record(b"\0\0\0\0\x63x")])
        closed = await notice(client, "SUBSCRIPTION_CLOSED")
        assert "offset 1" in json.dumps(closed)


async def test_nothing_is_lost_while_the_registry_is_down(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer
) -> None:
    topic, other = [await topics.create(new_topic(), 1) for _ in range(2)]
    async with (
        open_gateway(json.dumps(config(broker, server, topic, other))) as under_test,
        connect(under_test) as client,
        connect(under_test) as beside,
    ):
        await beside.subscribe(other, select=SELECT)
        await topics.produce(other, [record(0)])
        assert len(await results(beside, 1)) == 1
        await client.subscribe(topic, select=SELECT)
        server.down()
        await topics.produce(topic, [record(n) for n in range(300)])
        await topics.produce(topic, [record(n, "B1") for n in range(300, 600)])
        # The schema of the first ones is known: of the other source. If all come at once, the notice may be
        # before them.
        early: list[dict[str, Any]] = []
        found = await results(client, 300, early)
        degraded = early or [await notice(client, "SOURCE_DEGRADED")]
        assert AWAY in json.dumps(degraded)
        await topics.produce(other, [record(n) for n in range(1, 50)])
        assert [value["delay"] for value in await results(beside, 49)] == [*range(1, 50)]
        server.up()
        assert (await notice(client, "SOURCE_RESTORED"))["type"] == "NOTICE"
        found += await results(client, 300)
    assert [value["delay"] for value in found] == [*range(600)]
    assert [value["offset"] for value in found] == [*range(600)]


async def test_a_snapshot_is_read_by_the_schemas_of_its_events(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer
) -> None:
    topic = await topics.create(new_topic(), 1)
    settings = config(broker, server, topic, window={"last_values": True})
    async with open_gateway(json.dumps(settings)) as under_test, connect(under_test) as client:
        await client.subscribe(topic, select=SELECT)
        for gate in (None, "B1"):  # in batches of their own
            await topics.produce(topic, [record(n, gate) for n in range(3)])
            await results(client, 3)
        await topics.produce(topic, [record(1), Record(b"\0\0\0\0\x63x", key=b"bad")])
        await results(client, 1)
        await client.ask("UNSUBSCRIBE", topic)
        await client.subscribe(topic, select=SELECT, **{"from": "snapshot"})
        found = await results(client, 3)
    assert [(value["delay"], value["gate"], value["offset"]) for value in found] == [
        (0, "B1", 3),
        (2, "B1", 5),
        (1, None, 6),
    ]


async def test_the_gateway_says_what_it_waits_for_and_no_password(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 1)
    server.trouble = 503, b""
    async with gateway(tmp_path, config(broker, server, topic)) as running:
        await running.logged("source runs")
        await topics.produce(topic, [record(0)])
        away = await running.logged("schema registry away")
        assert (away["url"], away["error"]) == (server.url, "HTTP status 503")
        server.trouble = None
        await running.logged("schema registry back")
        assert "sesame" not in json.dumps(running.log)


async def test_check_asks_the_registry(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer
) -> None:
    topic = await topics.create(new_topic(), 1)
    manager = PluginManager()
    manager.register(kiwi_kafka, "kafka")
    source = KafkaSourceSettings(type="kafka", topic=topic, decode=BY_REGISTRY)
    registry = {"url": server.url, "user": "ada", "password": "sesame"}
    (check,) = manager.hook.check(context=context_of(broker.bootstrap, registry=registry), sources=[source])
    subject = f"kafka schema registry {server.url}"
    assert (await check())[-1] == Diagnostic("ok", subject, "answers")
    server.user = "ada", "changed"
    refused = "it refuses user and password (HTTP status 401)"
    assert (await check())[-1] == Diagnostic("error", subject, refused)
