"""Reading over Pulsar's REST interface, from a real Kafka, with the HTTP client of the standard library."""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
import termios
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
from aiokafka import AIOKafkaConsumer, TopicPartition

from kiwi_demo.broker import Broker
from kiwi_gw.dialects.pulsar.message_ids import MessageId, read_message_id
from tests.integration.gateway import gateway
from tests.integration.kafka.test_replay import compacted, compacting_broker
from tests.integration.test_pulsar import Client, NewTopic, clients, config
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

__all__ = ["compacting_broker"]  # a fixture


class Reader(Client):
    """A client that reads one partition."""

    def _get(self, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        connection: HTTPConnection = self._connection
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.read()

    async def lines(self, partition: int = 0, query: Mapping[str, object] = {}) -> tuple[int, bytes]:
        path = f"/topics/public/default/{self._topic}/partitions/{partition}/messages?{urlencode(query)}"
        return await trio.to_thread.run_sync(self._get, path, {"Accept": "application/x-ndjson"})

    async def read(self, partition: int = 0, query: Mapping[str, object] = {}) -> tuple[int, Any]:
        path = f"/topics/public/default/{self._topic}/partitions/{partition}/messages?{urlencode(query)}"
        status, body = await trio.to_thread.run_sync(self._get, path, {})
        return status, json.loads(body)


def reader_of(connect: Callable[[], Client]) -> Reader:
    client = connect()
    client.__class__ = Reader
    assert isinstance(client, Reader)
    return client


async def committed(bootstrap: str, topic: str) -> list[tuple[int, bytes | None]]:
    """What aiokafka reads of partition 0, of committed transactions only: offsets and values."""

    async def consume() -> list[tuple[int, bytes | None]]:
        place = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
        async with consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            found: list[tuple[int, bytes | None]] = []
            while await consumer.position(place) < end:
                for batch in (await consumer.getmany(place, timeout_ms=1_000)).values():
                    found += [(record.offset, record.value) for record in batch]
        return found

    with trio.fail_after(60):
        return await trio.to_thread.run_sync(lambda: asyncio.run(asyncio.wait_for(consume(), 55)))


async def test_what_was_written_is_read_back(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 3)
    written: list[dict[str, object]] = [
        {"key": "k", "value": {"a": 1}, "properties": {"p": "é"}, "eventTime": 17, "sequenceId": 5},
        {"key": None, "value": None, "properties": {}, "eventTime": 18, "sequenceId": None},
        {"key": None, "value": "text", "properties": {}, "eventTime": 19, "sequenceId": None},
    ]
    async with clients(tmp_path, config(broker, name)) as connect:
        client = reader_of(connect)
        sent = await client.send(*[message | {"partition": 1} for message in written], kind="none")
        status, answer = await client.read(1)
        assert status == 200
        assert answer["messages"] == [
            {**message, "messageId": each["messageId"], "partition": 1, "replicationClusters": []}
            for message, each in zip(written, sent, strict=True)
        ]
        assert (await client.read(0, {"timeout": 0}))[1]["messages"] == []
        assert (await client.read(1, {"from": 18}))[1]["messages"] == answer["messages"][1:]
        status, lines = await client.lines(1, {"from": sent[1]["messageId"], "timeout": 1})
        *found, last = [json.loads(line) for line in lines.splitlines()]
        assert found == answer["messages"][1:]
        assert last == {"next": answer["next"]}


async def test_pages_go_on_over_what_kafka_left_out(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Markers, aborted transactions and what was deleted: sets and order are Kafka's, losses exact."""
    name = await topics.create(new_topic(), 1)
    for n in range(5):
        records = [Record(b'"%d-%d"' % (n, m)) for m in range(20)]
        await topics.produce(name, records, transactional_id=f"{name}-{n}")
        await topics.produce(name, [Record(b'"never"')] * 7, transactional_id=f"{name}-{n}", abort=True)
    expected = await committed(broker.bootstrap, name)
    async with clients(tmp_path, config(broker, name)) as connect:
        client = reader_of(connect)
        assert await pages(client, "earliest", 7) == expected
        place = read_message_id((await client.read(0, {"max_messages": 30}))[1]["next"])
        await topics.trim(name, {0: 60})
        gone = str(place)
        with trio.fail_after(10):
            while (await client.read(0, {"from": gone}))[0] != 409:
                pass  # what is known of the topic's beginning is a moment old
        left = [each for each in expected if each[0] >= 60]
        assert await pages(client, "earliest", 10_000) == left


@pytest.mark.extended
async def test_pages_of_a_compacted_topic(
    compacting_broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = new_topic()
    await compacted(compacting_broker, name)
    async with clients(tmp_path, config(compacting_broker, name)) as connect:
        client = reader_of(connect)
        with trio.fail_after(30):  # it may be compacted further meanwhile
            while True:
                found, expected = (
                    await pages(client, "earliest", 13),
                    await committed(compacting_broker.bootstrap, name),
                )
                if found == expected:
                    break
    assert expected[-1][0] == 1_999


async def pages(client: Reader, place: str, most: int) -> list[tuple[int, bytes | None]]:
    """Read to the end, so many messages at a time, each time from where the answer before says."""
    found: list[tuple[int, bytes | None]] = []
    while True:
        status, answer = await client.read(0, {"from": place, "max_messages": most, "timeout": 0})
        assert status == 200, answer
        assert "lost" not in answer
        for message in answer["messages"]:
            offset = MessageId(*read_message_id(message["messageId"])).offset
            found.append((offset, json.dumps(message["value"]).encode()))
        if not answer["messages"]:
            return found
        place = answer["next"]


async def test_clients_that_do_not_read_cost_little_memory(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A hundred of them, each in the midst of 16 MiB: less than 20 MiB, what was read for them included."""
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 80_000, 4, size=1_000)
    query = "from=earliest&max_messages=10000&max_bytes=16777216&timeout=20000"
    async with gateway(tmp_path, config(broker, name)) as running:
        host, port = running.address.split(":")

        async def ask(partition: int) -> trio.SocketStream:
            stream = await trio.open_tcp_stream(host, int(port))
            path = f"/topics/public/default/{name}/partitions/{partition}/messages?{query}"
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {running.address}\r\n\r\n".encode())
            return stream

        first = await ask(0)
        await first.receive_some()
        await first.aclose()
        before, _ = running.memory()
        async with AsyncExitStack() as stack:
            with trio.fail_after(100):
                slow = [await stack.enter_async_context(await ask(number % 4)) for number in range(100)]
                for stream in slow:  # the gateway has sent it all that it will
                    while waiting_bytes(stream) < 64 * 1024:  # noqa: ASYNC110  (nobody tells)
                        await trio.sleep(0.05)
                while running.memory()[0] - before > 20 << 20:  # noqa: ASYNC110
                    await trio.sleep(0.1)


def waiting_bytes(stream: trio.SocketStream) -> int:
    """How much has arrived that was not read."""
    found = fcntl.ioctl(stream.socket.fileno(), termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(found, sys.byteorder)
