"""Producing over Pulsar's REST interface, to a real Kafka, with the HTTP client of Python's standard library.

What was written is read back by aiokafka's consumer, and keys land where Kafka's own clients put them.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import fastavro
import pyspark
import pytest
import trio
from aiokafka import AIOKafkaConsumer
from aiokafka.partitioner import DefaultPartitioner
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from kiwi_demo.broker import Broker
from kiwi_demo.jars import fetch_broker
from kiwi_gw.dialects.pulsar.message_ids import read_message_id
from kiwi_spark.java.home import java_home
from tests.integration.gateway import gateway, kafka_config
from tests.topics import Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]
Answer = tuple[int, Any]


def config(broker: Broker, topic: str, **pulsar: object) -> dict[str, Any]:
    found = kafka_config(broker.bootstrap, topic, pulsar={"enabled": True, **pulsar})
    found["sources"][0]["publish"] = True  # type: ignore[index]
    return found


class Client:
    """One connection that is kept, used by one thread at a time."""

    def __init__(self, address: str, topic: str) -> None:
        self._connection = HTTPConnection(address, timeout=60)
        self._topic = topic

    def close(self) -> None:
        self._connection.close()

    def _post(self, body: object, path: str) -> Answer:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    async def post(self, body: object, more: str = "", root: str = "/topics") -> Answer:
        path = f"{root}/public/default/{self._topic}{more}"
        return await trio.to_thread.run_sync(self._post, body, path)

    async def send(self, *messages: object, kind: str = "string", **more: object) -> Sequence[Any]:
        status, answer = await self.post({"schema_type": kind, "messages": messages, **more})
        assert status == 200, answer
        return answer["messageIds"]  # type: ignore[no-any-return]


def folder_of(parent: Path, number: int) -> Path:
    found = parent / str(number)
    found.mkdir()
    return found


@asynccontextmanager
async def clients(folder: Path, settings: dict[str, Any]) -> AsyncIterator[Callable[[], Client]]:
    """Run a gateway with one topic, which it reads. Yields what makes a client of it."""
    with ExitStack() as made:
        async with gateway(folder, settings) as running:
            await running.logged("source runs")

            def connect() -> Client:
                client = Client(running.address, settings["sources"][0]["topic"])
                made.callback(client.close)
                return client

            yield connect


async def read(bootstrap: str, topic: str, count: int) -> list[Any]:
    """So many records of all partitions, in the order of each."""

    async def consume() -> list[Any]:
        records: list[Any] = []
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            while len(records) < count:
                for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                    records += batch
        return sorted(records, key=lambda record: (record.partition, record.offset))

    with trio.fail_after(60):
        return await trio.to_thread.run_sync(lambda: asyncio.run(asyncio.wait_for(consume(), 55)))


async def test_everything_of_a_message_is_in_its_record(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    async with clients(tmp_path, config(broker, name)) as connect:
        client = connect()
        sent = await client.send(
            {
                "key": "k",
                "value": "é",
                "properties": {"a": "b"},
                "eventTime": 1_763_800_000_000,
                "sequenceId": 5,
            },
            {"key": "gone", "value": None},
        )
        values: list[tuple[str, object, bytes]] = [
            ("bytes", "AP8=", b"\x00\xff"),
            ("boolean", True, b"\x01"),
            ("int8", -1, b"\xff"),
            ("int16", 258, b"\x01\x02"),
            ("int32", 7, struct.pack(">i", 7)),
            ("int64", -(2**63), struct.pack(">q", -(2**63))),
            ("float", 0.5, struct.pack(">f", 0.5)),
            ("double", 1e300, struct.pack(">d", 1e300)),
        ]
        for kind, value, _ in values:
            sent = [*sent, *await client.send({"value": value}, kind=kind)]
        sent = [*sent, *await client.send({"value": {"n": [1]}}, kind="JSON", value_schema={"type": "JSON"})]
        record = {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "string"]}]}
        avro = {"value_schema": {"type": "AVRO", "schema": record}}
        sent = [*sent, *await client.send({"value": {"a": "é"}}, kind="avro", **avro)]
        pair = {"key_schema": {"type": "INT32"}, "value_schema": '{"type": "STRING"}'}
        sent = [*sent, *await client.send({"key": 9, "value": "v"}, kind="key_value", **pair)]
        body = {"messages": [{"key": "b", "payload": "of a broker", "properties": {"c": ""}}]}
        status, answer = await client.post(body, root="/topics/persistent")
        assert status == 200
    found = await read(broker.bootstrap, name, len(sent) + 1)
    assert [read_message_id(each["messageId"]).offset for each in sent] == list(range(len(sent)))
    shown = await console(broker.bootstrap, name, len(found), await fetch_broker())
    assert shown == [
        (record.timestamp, record.partition, record.offset, record.headers, record.key, record.value)
        for record in found
    ]
    first, second, *others, of_json, of_avro, of_pair, of_broker = found
    assert (first.key, first.value, first.timestamp) == (b"k", "é".encode(), 1_763_800_000_000)
    assert first.headers == (("a", b"b"), ("__pulsar.sequence", b"5"))
    assert (second.key, second.value) == (b"gone", None)
    assert [record.value for record in others] == [expected for _, _, expected in values]
    assert json.loads(of_json.value) == {"n": [1]}
    assert fastavro.schemaless_reader(io.BytesIO(of_avro.value), record, None) == {"a": "é"}
    assert (of_pair.key, of_pair.value) == (struct.pack(">i", 9), b"v")
    assert (of_broker.key, of_broker.value, of_broker.headers) == (b"b", b"of a broker", (("c", b""),))
    ledger, offset, partition = answer["messagePublishResults"][0]["messageId"].split(":")
    assert (offset, partition) == (str(len(sent)), "0")
    assert {read_message_id(each["messageId"]).life for each in sent} == {int(ledger)}


_LINE, _TAB, _NULL = b"\n-- line --\n", b"\n-- tab --\n", b"\n-- null --\n"
"""What a record holds nowhere."""


async def console(bootstrap: str, topic: str, count: int, jars: Sequence[Path]) -> list[tuple[Any, ...]]:
    """What kafka-console-consumer shows of so many records: timestamp, partition, offset, headers, key,
    value."""
    shown = ("timestamp", "partition", "offset", "headers", "key")
    marks = {
        "line.separator": _LINE,
        "key.separator": _TAB,
        "headers.separator": b";",
        "null.literal": _NULL,
    }
    properties = {f"print.{what}": "true" for what in shown} | {k: v.decode() for k, v in marks.items()}
    options = [item for name, value in properties.items() for item in ("--property", f"{name}={value}")]
    command = [str(java_home() / "bin" / "java"), "-cp", os.pathsep.join(map(str, jars))]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    command += ["--topic", topic, "--from-beginning", "--max-messages", str(count), *options]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
    found: list[tuple[Any, ...]] = []
    for line in done.stdout.split(_LINE)[:-1]:
        when, partition, offset, headers, key, value = line.split(_TAB)
        pairs = [pair.partition(b":") for pair in headers.split(b";") if pair != b"NO_HEADERS"]
        found.append(
            (
                int(when.partition(b":")[2]),
                int(partition.partition(b":")[2]),
                int(offset.partition(b":")[2]),
                tuple((name.decode(), content) for name, _, content in pairs),
                None if key == _NULL else key,
                None if value == _NULL else value,
            )
        )
    return found


async def test_who_comes_before_the_topic_is_read_waits_for_it(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """And not where it is known that there is no topic."""
    name, missing = await topics.create(new_topic(), 2), new_topic()
    settings = config(broker, name)
    settings["sources"].append({**settings["sources"][0], "id": missing, "topic": missing})
    body = {"messages": [{"value": "a"}]}
    async with gateway(tmp_path, settings) as running:
        with closing(Client(running.address, name)) as client:
            assert (await client.post(body))[0] == 200
        await running.logged("waiting for kafka topic", topic=missing)
        with closing(Client(running.address, missing)) as client, trio.fail_after(5):
            status, answer = await client.post(body)
        assert (status, answer["error_code"]) == (503, 50301)
        assert answer["message"].endswith("nothing was written: the Kafka topic does not exist")


async def test_where_messages_go(broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path) -> None:
    name = await topics.create(new_topic(), 5)
    keys = [f"key-{n}-{'x' * (n % 9)}" for n in range(1_000)]
    async with clients(tmp_path, config(broker, name)) as connect:
        client = connect()
        placed = await client.send(*[{"key": key, "value": "v"} for key in keys])
        expected = [DefaultPartitioner()(key.encode(), list(range(5)), list(range(5))) for key in keys]
        assert [each["partition"] for each in placed] == expected
        around = await client.send(*[{"value": str(n)} for n in range(100)])
        assert set(Counter(each["partition"] for each in around).values()) == {20}
        of_one = await client.send(*[{"value": str(n), "partition": 3} for n in range(10)])
        places = [read_message_id(each["messageId"]) for each in of_one]
        assert [place.partition for place in places] == [3] * 10
        assert [place.offset for place in places] == list(range(places[0].offset, places[0].offset + 10)), (
            "in the order of the request"
        )
        status, answer = await client.post({"messages": [{"value": "x"}]}, "/partitions/4")
        assert (status, answer["messageIds"][0]["partition"]) == (200, 4)
        status, answer = await client.post({"messages": [{"value": "x"}]}, "/partitions/5")
        assert (status, answer["error_code"]) == (404, 40402)


async def test_keys_land_where_the_java_producer_puts_them(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 7)
    keys = [f"{'é' * (n % 3)}key-{n}-{'x' * (n % 9)}" for n in range(1_000)]
    async with clients(tmp_path, config(broker, name)) as connect:
        placed = await connect().send(*[{"key": key, "value": "v"} for key in keys])
    jars = await fetch_broker()
    expected = await trio.to_thread.run_sync(java_partitions, broker.bootstrap, name, keys, jars)
    assert [each["partition"] for each in placed] == expected


def java_partitions(bootstrap: str, topic: str, keys: Sequence[str], jars: Sequence[Path]) -> list[int]:
    """Where Kafka's own Java producer writes records with these keys."""
    with java_gateway(jars) as java:
        settings = java.jvm.java.util.Properties()
        text = "org.apache.kafka.common.serialization.StringSerializer"
        settings.setProperty("bootstrap.servers", bootstrap)
        settings.setProperty("key.serializer", text)
        settings.setProperty("value.serializer", text)
        kafka = java.jvm.org.apache.kafka.clients.producer
        producer = kafka.KafkaProducer(settings)
        sent = [producer.send(kafka.ProducerRecord(topic, key, "v")) for key in keys]
        found = [each.get().partition() for each in sent]
        producer.close()
        return found


@contextmanager
def java_gateway(jars: Sequence[Path]) -> Iterator[JavaGateway]:
    """A JVM with these jars, and a way to call what is in them."""
    (py4j_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=os.pathsep.join(map(str, jars)),
        java_path=str(java_home() / "bin" / "java"),
        die_on_exit=True,
    )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield java
    finally:
        java.shutdown()


async def test_an_id_says_which_life_of_the_topic_it_is_of(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """All gateways say the same; a topic that is made anew is another one."""
    name = await topics.create(new_topic(), 1)
    lives = []
    for number in range(3):
        async with clients(folder_of(tmp_path, number), config(broker, name)) as connect:
            (written,) = await connect().send({"value": "a"})
            lives.append(read_message_id(written["messageId"]).life)
        if number == 1:
            await topics.delete(name)
            await topics.create(name, 1)
    assert lives[0] == lives[1] != lives[2]


@pytest.mark.extended
async def test_what_was_said_to_be_written_is_there_though_the_broker_is_killed(
    own_broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Under eight producers. What was called unwritten is not there, and none is there twice."""
    name = await Topics(own_broker.bootstrap).create(new_topic(), 4)
    said: dict[str, Any] = {}
    killed = trio.Event()
    async with clients(tmp_path, config(own_broker, name, produce_timeout_ms=5_000)) as connect:

        async def produce(number: int) -> None:
            client = connect()
            for turn in range(40):
                values = [f"{number}-{turn}-{n}" for n in range(20)]
                _, answer = await client.post(
                    {"schema_type": "string", "messages": [{"value": v} for v in values]}
                )
                said.update(zip(values, answer["messageIds"], strict=True))
                if turn == 20:
                    await killed.wait()

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(produce, number)
            while len(said) < 1_600:  # noqa: ASYNC110  (they tell nobody)
                await trio.sleep(0.01)
            await own_broker.kill()
            killed.set()
            await own_broker.start()
    written = {value: each for value, each in said.items() if each["error_code"] is None}
    assert len(written) >= 1_600
    found = await read(own_broker.bootstrap, name, len(written))
    values = [record.value.decode() for record in found]
    assert len(set(values)) == len(values)
    places = {record.value.decode(): (record.partition, record.offset) for record in found}
    for value, each in written.items():
        place = read_message_id(each["messageId"])
        assert places[value] == (place.partition, place.offset)
    unwritten = {value for value, each in said.items() if (each["error"] or "").startswith("not written")}
    assert not unwritten & set(values)
