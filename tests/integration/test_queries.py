"""Queries over a real topic: a hundred clients with one query cost one encoding, and get what passes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.testing import GatewayUnderTest, open_gateway
from tests.edge.wire import Client, connect
from tests.integration.gateway import gateway, kafka_config
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

CLIENTS = 100
EVENTS = 3_000
PARTITIONS = 2
LATE = "value.delay > 30 AND value.carrier IN ('AA', 'UA')"
CARRIERS = ("AA", "UA", "DL")


def record(n: int, partitions: int = PARTITIONS) -> Record:
    value = {"n": n, "carrier": CARRIERS[n % 3], "delay": n % 61}
    return Record(b"no JSON" if n % 100 == 99 else json.dumps(value).encode(), partition=n % partitions)


def passes(n: int) -> bool:
    return n % 61 > 30 and n % 3 != 2 and n % 100 != 99


async def read(client: Client, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = await client.message()
        if message["type"] == "RESULT":
            found.append(message["data"]["value"])
    return found


def hub_of(gateway: GatewayUnderTest) -> SourceHub:
    (runner,) = gateway.gateway.runners()
    return runner.hub


async def come(hub: SourceHub, events: int) -> None:
    """Wait until so many have come, also those behind the last one that passes."""
    while hub.events_in < events:
        await trio.lowlevel.checkpoint()


async def test_a_hundred_clients_with_one_query_and_with_two(
    broker: Broker, topics: Topics, new_topic: Callable[[], str]
) -> None:
    topic = await topics.create(new_topic(), partitions=PARTITIONS)
    records = [record(n) for n in range(EVENTS)]
    late = sorted(n for n in range(EVENTS) if passes(n))
    small = sorted(n for n in range(EVENTS) if n % 100 != 99 and n < 50)
    async with open_gateway(json.dumps(kafka_config(broker.bootstrap, topic))) as under_test:
        hub, memo = hub_of(under_test), under_test.gateway.encodings
        with trio.fail_after(90):
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(connect(under_test)) for _ in range(CLIENTS)]
                for client in clients:
                    await client.subscribe(topic, where=LATE, select="value.n, partition")
                assert hub.wire_keys == 1
                await topics.produce(topic, records)
                for client in clients:
                    found = await read(client, len(late))
                    assert sorted(value["n"] for value in found) == late
                    for partition in range(PARTITIONS):  # in order, each
                        of_one = [value["n"] for value in found if value["partition"] == partition]
                        assert of_one == sorted(of_one)
                await come(hub, EVENTS)
                assert hub.events_in == EVENTS
                assert memo.events_encoded == EVENTS
                other = clients[0]
                assert (await other.ask("UNSUBSCRIBE", topic))["type"] == "UNSUBSCRIBE_OK"
                await other.subscribe(topic, where="value.n < 50 OR value.n IS NULL")
                assert hub.wire_keys == 2
                await topics.produce(topic, records)
                found = await read(other, len(small))
                assert sorted(json.loads(value)["n"] for value in found) == small
                assert sorted(value["n"] for value in await read(clients[1], len(late))) == late
                await come(hub, 2 * EVENTS)
                assert memo.events_encoded == EVENTS * 3
                (subscription,) = [
                    item
                    for connection in under_test.gateway.connections
                    for item in connection.subscriptions.values()
                    if "IS NULL" in repr(item.group.wire.key) or item.delivery.matched == len(small)
                ]
                delivery = subscription.delivery
                assert (delivery.scanned, delivery.decode_errors) == (EVENTS, EVENTS // 100)


async def test_tail_with_a_query(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), partitions=1)
    await topics.produce(topic, [record(n, 1) for n in range(200)])
    late = [n for n in range(200) if passes(n)]
    async with gateway(tmp_path, kafka_config(broker.bootstrap, topic)) as running:
        words = ["tail", running.address, topic, "--from", "earliest", "--raw", "-n", str(len(late))]
        ended = await trio.to_thread.run_sync(
            partial(
                subprocess.run,
                [sys.executable, "-m", "kiwi_gw", *words, "--where", LATE, "--select", "value.n AS late"],
                capture_output=True,
                timeout=50,
                text=True,
            )
        )
        assert ended.returncode == 0, ended.stderr
        assert [json.loads(line) for line in ended.stdout.splitlines()] == [{"late": n} for n in late]
        ended = await trio.to_thread.run_sync(
            partial(
                subprocess.run,
                [sys.executable, "-m", "kiwi_gw", *words, "--where", "value.n >"],
                capture_output=True,
                timeout=50,
                text=True,
            )
        )
        assert ended.returncode == 1
        assert "it ends too early" in ended.stderr


@pytest.mark.parametrize(
    ("decode", "key", "value", "where", "select", "seen"),
    [
        ("string", b"k", "héllo".encode(), "value LIKE 'h%'", "upper(value) AS v", {"v": "HÉLLO"}),
        (
            {"value": "long", "key": "int"},
            b"\0\0\0\7",
            b"\0" * 7 + b"\x09",
            "key = 7",
            "value + 1 AS v",
            {"v": 10},
        ),
        ("binary", b"k", b"\xff\x00", "length(value) = 4", "value", {"value": "/wA="}),
        ("json", b"k", b'{"a":[{"b":1.5}]}', "headers.trace = 'x'", "value.a[0].b", {"b": 1.5}),
    ],
)
async def test_how_a_source_is_decoded(
    broker: Broker,
    topics: Topics,
    new_topic: Callable[[], str],
    decode: object,
    key: bytes,
    value: bytes,
    where: str,
    select: str,
    seen: object,
) -> None:
    topic = await topics.create(new_topic(), partitions=1)
    config = kafka_config(broker.bootstrap, topic)
    fields = ["key", "value", "headers"]
    config["sources"] = [{"type": "kafka", "topic": topic, "fields": fields, "decode": decode}]
    async with open_gateway(json.dumps(config)) as under_test, connect(under_test) as client:
        with trio.fail_after(60):
            await client.subscribe(topic, where=where, select=select)
            await topics.produce(topic, [Record(value, key, headers=[("trace", b"x")])])
            assert await read(client, 1) == [seen]
