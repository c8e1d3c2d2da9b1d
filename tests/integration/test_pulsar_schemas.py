"""Producing over Pulsar's REST interface by the schemas of a registry, to a real Kafka.

What was written is read back by an Avro reader of its own, and through the same interface.
"""

from __future__ import annotations

import io
import json
import urllib.request
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.schema_registry import url as url
from tests.integration.test_pulsar import Client, clients, config, read
from tests.integration.test_pulsar_reading import reader_of
from tests.plugins.kafka.registry_server import RegistryServer, registry_server
from tests.topics import Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]
BY_REGISTRY = {"value": "avro", "key": "avro", "registry": True}
V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "long"},
        {"name": "data", "type": "bytes"},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
V3 = {**V1, "fields": [{"name": "item", "type": "int"}]}


def registered(broker: Broker, url: str, topic: str) -> dict[str, Any]:
    found = config(broker, topic)
    found["kafka"]["registry"] = {"url": url}
    found["sources"][0]["decode"] = BY_REGISTRY
    return found


def order(count: int, **more: object) -> dict[str, object]:
    return {"item": "é", "count": count, "data": "AP8=", "tags": {"a": 0.5}, **more}


def pair(schema: object, *messages: object) -> dict[str, object]:
    return {
        "schema_type": "key_value",
        "key_schema": {"type": "AVRO", "schema": "string"},
        "value_schema": {"type": "AVRO", "schema": schema},
        "messages": messages,
    }


async def schema_of(url: str, data: bytes) -> Any:
    """What the registry has under the id that a record begins with."""
    assert data[0] == 0
    address = f"{url}/schemas/ids/{int.from_bytes(data[1:5], 'big')}"

    def get() -> Any:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310  (it is ours)
            return json.loads(json.loads(answer.read())["schema"])

    return await trio.to_thread.run_sync(get)


def datum(data: bytes, schema: Any) -> Any:
    rest = io.BytesIO(data[5:])
    found = fastavro.schemaless_reader(rest, schema, None)
    assert not rest.read()
    return found


async def test_what_is_written_by_a_registry_is_read_back_equal(
    broker: Broker, topics: Topics, new_topic: NewTopic, url: str, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 1)
    async with clients(tmp_path, registered(broker, url, topic)) as connect:
        client = connect()
        for version, schema, body in (
            (1, V1, pair(V1, {"key": "k0", "value": order(0)}, {"key": "k1", "value": None})),
            (2, V2, pair(V2, {"key": "k2", "value": order(2, note="n")})),
            (1, V1, {"messages": [{"value": order(3)}], "schema_version": 1}),
        ):
            status, answer = await client.post(body)
            assert (status, answer["schema_version"]) == (200, version), (schema, answer)
        # What is not compatible, and a version that is not there, leave nothing behind.
        status, answer = await client.post(pair(V3, {"key": "k", "value": {"item": 5}}))
        assert (status, answer["error_code"]) == (422, 42203)
        assert "ncompatible" in answer["message"]
        status, answer = await client.post({"messages": [{"value": order(4)}], "schema_version": 3})
        assert (status, answer["error_code"]) == (422, 42204)
        _, seen = await reader_of(connect).read(0, {"include_schema": "true"})
    records = await read(broker.bootstrap, topic, 4)
    assert [(message["key"], message["value"]) for message in seen["messages"]] == [
        ("k0", order(0)),
        ("k1", None),
        ("k2", order(2, note="n")),
        (None, order(3)),
    ]
    shown = [(each["type"], each["version"], json.loads(b64decode(each["data"]))) for each in seen["schemas"]]
    assert shown == [("AVRO", 1, V1), ("AVRO", 2, V2)]
    assert len(records) == 4
    assert records[1].value is None
    assert records[3].key is None
    written = [record.value for record in records if record.value is not None]
    schemas = [await schema_of(url, data) for data in written]
    assert schemas == [V1, V2, V1]
    found = [datum(data, schema) for data, schema in zip(written, schemas, strict=True)]
    plain = {"data": b"\x00\xff"}
    assert found == [order(0) | plain, order(2, note="n") | plain, order(3) | plain]
    assert [datum(record.key, "string") for record in records[:3]] == ["k0", "k1", "k2"]


async def test_a_registry_that_is_down_is_503_and_nothing_is_written(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 1)
    with registry_server() as server:
        async with clients(tmp_path, registered(broker, server.url, topic)) as connect:
            client = connect()
            status, _ = await client.post(pair(V1, {"key": "k", "value": order(0)}))
            assert status == 200
            await _down(client, server)
            await _crowd(connect, server)
    assert [record.value[0] for record in await read(broker.bootstrap, topic, 3)] == [0, 0, 0]


async def _down(client: Client, server: RegistryServer) -> None:
    """What is known is written all the same; what is not is, when the registry is back."""
    server.down()
    status, _ = await client.post(pair(V1, {"key": "k", "value": order(1)}))
    assert status == 200
    status, answer = await client.post(pair(V2, {"key": "k", "value": order(2)}))
    assert (status, answer["error_code"]) == (503, 50301)
    assert answer["message"].startswith("nothing was written: the schema registry does not answer")
    server.up()
    server.gate.clear()  # it hears, and says nothing
    with trio.fail_after(10):
        status, answer = await client.post({"messages": [{"value": order(3)}], "schema_version": 1})
    assert (status, answer["error_code"]) == (503, 50301)
    server.gate.set()


async def _crowd(connect: Callable[[], Client], server: RegistryServer) -> None:
    """Many come with schemas of their own to a registry that says nothing: all have their answers in time,
    and what is known is written meanwhile."""
    server.gate.clear()
    began, answers = trio.current_time(), []

    async def post(n: int) -> None:
        body = pair({**V1, "name": f"Order{n}"}, {"key": "k", "value": order(n)})
        status, answer = await connect().post(body)
        answers.append((status, answer["error_code"]))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for n in range(40):
                nursery.start_soon(post, n)
            known = await connect().post({"messages": [{"value": order(3)}], "schema_version": 1})
            assert known[1]["error_code"] == 50301  # it was never found
            status, _ = await connect().post(pair(V1, {"key": "k", "value": order(4)}))
            assert status == 200
    assert answers == [(503, 50301)] * 40
    assert trio.current_time() - began < 10
    server.gate.set()
