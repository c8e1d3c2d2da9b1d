"""Subscriptions over Pulsar's REST interface, on a real Kafka, with the standard library's HTTP client."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_demo.jars import fetch_broker
from kiwi_gw.dialects.pulsar.message_ids import MessageId
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.test_pulsar import NewTopic, config, folder_of, java_gateway
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration


@dataclass
class Caller:
    """One connection that is kept, to one topic at one gateway."""

    connection: HTTPConnection
    topic: str

    async def ask(self, method: str, path: str, body: object = None, **query: object) -> tuple[int, Any]:
        def call() -> tuple[int, Any]:
            data = None if body is None else json.dumps(body)
            headers = {} if body is None else {"Content-Type": "application/json"}
            where = f"/topics/public/default/{self.topic}/subscription/{path}?{urlencode(query)}"
            self.connection.request(method, where.rstrip("?"), data, headers)
            response = self.connection.getresponse()
            found = response.read()
            return response.status, json.loads(found) if found else None

        return await trio.to_thread.run_sync(call)

    async def consumer(self, to: str = "s", **wanted: object) -> str:
        status, answer = await self.ask("POST", to, {"start": "earliest", **wanted})
        assert status == 200, answer
        assert answer["base_uri"].endswith(f"/subscription/{to}/consumer/{answer['id']}")
        return answer["id"]  # type: ignore[no-any-return]

    async def fetch(self, consumer: str, name: str = "s", **query: object) -> Sequence[Any]:
        status, answer = await self.ask("GET", f"{name}/consumer/{consumer}/messages", **query)
        assert status == 200, answer
        return answer["messages"]  # type: ignore[no-any-return]

    async def acknowledge(
        self, messages: Sequence[Any], name: str = "s", kind: str = "individual"
    ) -> tuple[int, Any]:
        ids = [message["messageId"] for message in messages]
        return await self.ask("POST", f"{name}/cursor", {"type": kind, "messageIds": ids})


Connect = Callable[[], Caller]


@asynccontextmanager
async def gateways(
    folder: Path, settings: dict[str, Any], count: int = 1
) -> AsyncIterator[list[tuple[GatewayProcess, Connect]]]:
    """So many gateways with one topic. Yields each with what makes a caller of it."""
    with ExitStack() as made:
        async with trio.open_nursery() as nursery:
            found: list[tuple[GatewayProcess, Connect]] = []

            async def run(number: int, task_status: trio.TaskStatus[None]) -> None:
                async with gateway(folder_of(folder, number), settings) as running:
                    await running.logged("source runs")
                    topic = settings["sources"][0]["topic"]

                    def connect() -> Caller:
                        connection = HTTPConnection(running.address, timeout=60)
                        made.callback(connection.close)
                        return Caller(connection, topic)

                    found.append((running, connect))
                    task_status.started()
                    await trio.sleep_forever()

            for number in range(count):
                await nursery.start(run, number)
            yield found
            nursery.cancel_scope.cancel()


def open_to_all(broker: Broker, topic: str, **pulsar: object) -> dict[str, Any]:
    found = config(broker, topic, **pulsar)
    found["sources"][0]["commit"] = True
    return found


def values(messages: Sequence[Any]) -> list[Any]:
    return [message["value"] for message in messages]


async def test_a_subscription_from_its_beginning_to_its_end(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.produce(name, [Record(b"%d" % n, key=b"k%d" % (n % 3)) for n in range(10)])
    with trio.fail_after(60):
        async with gateways(tmp_path, open_to_all(broker, name)) as ((_, connect),):
            client = connect()
            one, two = await client.consumer(), await client.consumer()
            first = await client.fetch(one, max_messages=4)
            assert values(first) == [0, 1, 2, 3]
            assert {message["redeliveryCount"] for message in first} == {0}
            second = await client.fetch(two, max_messages=100)
            assert values(second) == [4, 5, 6, 7, 8, 9]
            assert await client.fetch(one, timeout=0) == []
            status, answer = await client.acknowledge([*first[1:], *second[:2]])
            seen = answer["cursor"]["partitions"]["0"]
            assert (status, answer["cursor"]["type"]) == (200, "shared")
            assert (seen["position"], seen["pending"], seen["lag"]) == (first[0]["messageId"], 5, 5)
            assert seen["acknowledged"] == [[first[1]["messageId"], second[1]["messageId"]]]
            assert [each["pending"] for each in answer["cursor"]["consumers"]] == [1, 4]
            # What is not wanted, and what a consumer leaves behind, comes again.
            assert (await client.acknowledge(first[:1], kind="negative"))[0] == 200
            again = list(await client.fetch(one))
            assert (values(again), again[0]["redeliveryCount"]) == ([0], 1)
            assert (await client.ask("DELETE", f"s/consumers/{two}"))[0] == 204
            again += await client.fetch(one)
            assert values(again) == [0, 6, 7, 8, 9]
            assert (await client.acknowledge(again))[0] == 200
            status, answer = await client.ask("GET", "s/cursor")
            assert answer["cursor"]["partitions"]["0"]["lag"] == 0
            assert (await client.ask("DELETE", "s"))[1]["error_code"] == 40903
            assert (await client.ask("DELETE", "s", force="true"))[0] == 204
            assert (await client.ask("GET", "s/cursor"))[1]["error_code"] == 40404
            assert (await client.ask("GET", f"s/consumer/{one}/messages"))[1]["error_code"] == 40403


async def test_check_says_who_may_write_and_how_far_behind_subscriptions_are(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 2)
    await topics.produce(name, [Record(b"%d" % n, partition=n % 2) for n in range(20)])
    settings = open_to_all(broker, name)
    (tmp_path / "check.yml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "kiwi_gw", "check", str(tmp_path / "check.yml"), "--json"]

    async def check() -> dict[str, str]:
        done = await trio.run_process(command, capture_stdout=True)
        findings = json.loads(done.stdout)["findings"]
        return {each["subject"]: each["message"] for each in findings if each["level"] == "ok"}

    group = f"kafka group kiwi-gw/subscription/public/default/{name}"
    with trio.fail_after(90):
        async with gateways(tmp_path, settings) as ((_, connect),):
            client = connect()
            one = await client.consumer()
            await client.consumer("late", start="latest", type="exclusive")
            had = await client.fetch(one, max_messages=20)
            assert (await client.acknowledge([m for m in had if m["value"] not in (18, 19)]))[0] == 200
            found = await check()
            assert found[f"{group}/s"] == f"topic {name}; lag: 2; members: 1 (kiwi-gw.shared)"
            assert found[f"{group}/late"] == f"topic {name}; lag: 0; members: 1 (kiwi-gw.exclusive)"
            assert "may be written to by anyone who reaches" in found[f"source {name}"]
            assert "can be read and written" in found[f"kafka topic {name}"]
        found = await check()  # a gateway that stops leaves its groups
        assert found[f"{group}/s"] == f"topic {name}; lag: 2; no members"


async def test_what_a_gateway_that_is_killed_had_comes_at_the_other(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Within the session; nothing is lost, and nothing that was acknowledged comes again."""
    name = await topics.create(new_topic(), 2)
    await topics.produce(name, [Record(b"%d" % n, partition=n % 2) for n in range(40)])
    with trio.fail_after(90):
        async with gateways(tmp_path, open_to_all(broker, name), 2) as ((dying, connect), (_, other)):
            client = connect()
            one = await client.consumer()
            had = await client.fetch(one, max_messages=30)
            done = [message for n, message in enumerate(had) if n % 3 == 0]
            assert (await client.acknowledge(done))[0] == 200
            dying.process.kill()
            began = trio.current_time()
            survivor = other()
            two = await survivor.consumer()
            found: list[Any] = []
            while len(found) < 40 - len(done):
                found += await survivor.fetch(two, timeout=1_000)
                assert trio.current_time() - began < 20, len(found)
            assert sorted([*values(found), *values(done)]) == list(range(40))
            assert (await survivor.acknowledge(found))[0] == 200
            assert await survivor.fetch(two, timeout=0) == []


async def test_an_answer_that_is_not_taken_comes_again_at_once(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.fill(name, 5_000, 1, size=2_000)
    with trio.fail_after(60):
        async with gateways(tmp_path, open_to_all(broker, name)) as ((running, connect),):
            client = connect()
            one = await client.consumer(ackTimeoutMs=0)
            host, port = running.address.split(":")
            path = f"/topics/public/default/{name}/subscription/s/consumer/{one}/messages"
            stream = await trio.open_tcp_stream(host, int(port))
            query = "max_messages=10000&max_bytes=16777216&timeout=20000"
            await stream.send_all(f"GET {path}?{query} HTTP/1.1\r\nHost: {running.address}\r\n\r\n".encode())
            await stream.receive_some(1_000)
            await stream.aclose()
            while (await client.ask("GET", "s/cursor"))[1]["cursor"]["consumers"][0]["pending"]:
                pass
            found = await client.fetch(one, max_messages=10)
            assert [message["redeliveryCount"] for message in found] == [1] * 10
            assert found[0]["value"].startswith("000000000000")


async def test_one_that_waits_and_leaves_takes_nothing(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    with trio.fail_after(60):
        async with gateways(tmp_path, open_to_all(broker, name)) as ((running, connect),):
            client = connect()
            one, two = await client.consumer(), await client.consumer()
            host, port = running.address.split(":")
            path = f"/topics/public/default/{name}/subscription/s/consumer/{one}/messages?timeout=60000"
            stream = await trio.open_tcp_stream(host, int(port))
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {running.address}\r\n\r\n".encode())
            await stream.aclose()
            await topics.produce(name, [Record(b"1")])
            assert values(await client.fetch(two, timeout=20_000)) == [1]


async def test_who_stands_still_for_long_is_told_that_its_messages_have_moved(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A gateway that was stopped: none of its later commits passes."""
    name = await topics.create(new_topic(), 2)
    await topics.produce(name, [Record(b"%d" % n, partition=n % 2) for n in range(20)])
    with trio.fail_after(100):
        async with gateways(tmp_path, open_to_all(broker, name), 2) as ((stopped, connect), (_, other)):
            client, survivor = connect(), other()
            one = await client.consumer()
            had = await client.fetch(one)
            assert len(had) == 20
            stopped.process.send_signal(signal.SIGSTOP)
            two = await survivor.consumer()
            found: list[Any] = []
            while len(found) < 20:
                found += await survivor.fetch(two, timeout=10_000)
            assert (await survivor.acknowledge(found[:5]))[0] == 200
            stopped.process.send_signal(signal.SIGCONT)
            status, answer = await client.acknowledge(had)
            assert (status, answer["error_code"], answer["acknowledged"]) == (409, 40905, [])
            assert len(answer["moved"]) == 20
            status, answer = await survivor.ask("GET", "s/cursor")
            lags = [each["lag"] for each in answer["cursor"]["partitions"].values()]
            assert sum(lags) == 15


@pytest.mark.extended
async def test_many_consumers_at_two_gateways_acknowledge_everything(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """10,000 messages while consumers come and go at both; Kafka's own count of what is left is 0."""
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 10_000, 4)
    seen: set[str] = set()
    chosen = random.Random(name)
    with trio.fail_after(110):
        async with gateways(tmp_path, open_to_all(broker, name), 2) as running:

            async def consume(connect: Connect) -> None:
                client = connect()
                while len(seen) < 10_000:
                    one = await client.consumer()
                    for _ in range(chosen.randrange(1, 6)):
                        found = await client.fetch(
                            one, max_messages=chosen.choice([10, 200, 1_000]), timeout=200
                        )
                        taken = [message for message in found if chosen.random() < 0.9]
                        status, answer = await client.acknowledge(taken)
                        assert status in (200, 409), answer
                        moved = set(answer.get("moved", ()))
                        seen.update(m["messageId"] for m in taken if m["messageId"] not in moved)
                    assert (await client.ask("DELETE", f"s/consumer/{one}"))[0] in (204, 404)

            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(consume, running[number % 2][1])
            assert len(seen) == 10_000
            await check_committed(broker, name, dict.fromkeys(range(4), 2500))


async def check_committed(broker: Broker, topic: str, expected: dict[int, int]) -> None:
    """That Kafka's own client says so of the subscription `s`."""
    group, jars = f"kiwi-gw/subscription/public/default/{topic}/s", await fetch_broker()
    found = await trio.to_thread.run_sync(java_offsets, broker.bootstrap, group, jars)
    assert found == {(topic, partition): offset for partition, offset in expected.items()}


def java_offsets(bootstrap: str, group: str, jars: Sequence[Path]) -> dict[tuple[str, int], int]:
    """What Kafka's own admin client says is committed."""
    with java_gateway(jars) as java:
        settings = java.jvm.java.util.Properties()
        settings.setProperty("bootstrap.servers", bootstrap)
        admin = java.jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        answer = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        found = {(tp.topic(), tp.partition()): place.offset() for tp, place in dict(answer).items()}
        admin.close()
        return found


async def test_types_and_refusals(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.produce(name, [Record(b"%d" % n, key=b"k%d" % (n % 2)) for n in range(6)])
    with trio.fail_after(90):
        async with gateways(tmp_path, open_to_all(broker, name), 2) as ((_, connect), (_, other)):
            client, elsewhere = connect(), other()

            async def refused(code: int, method: str, path: str, body: object = None, **query: object) -> str:
                status, answer = await client.ask(method, path, body, **query)
                assert (status, answer["error_code"]) == (code // 100, code), answer
                return str(answer["message"])

            one = await client.consumer("keys", type="key_shared", name="first")
            two = await client.consumer("keys", type="key_shared")
            first = await client.fetch(one, "keys", max_messages=1)
            assert values(first) == [0]
            assert values(await client.fetch(two, "keys")) == [1, 3, 5], "the other key is another's"
            assert values(await client.fetch(one, "keys")) == [2, 4]
            await refused(40901, "POST", "keys", {"type": "shared"})
            await refused(40902, "POST", "keys", {"type": "key_shared", "name": "first"})
            status, answer = await elsewhere.ask("POST", "keys", {"type": "failover"})
            assert (status, answer["error_code"]) == (409, 40901), "Kafka knows of which type it is"
            message = first[0]["messageId"]
            assert "no cumulative" in await refused(
                42206, "POST", "keys/cursor", {"type": "cumulative", "messageIds": [message]}
            )
            # One at a time; the next one is served when the first is gone.
            old = await client.consumer("turns", type="failover")
            new = await client.consumer("turns", type="failover")
            assert await client.fetch(new, "turns", timeout=0) == []
            had = await client.fetch(old, "turns", max_messages=3)
            assert (await client.acknowledge(had[1:2], "turns", "cumulative"))[0] == 200
            assert (await client.ask("DELETE", f"turns/consumer/{old}"))[0] == 204
            assert values(await client.fetch(new, "turns")) == [2, 3, 4, 5]
            await client.consumer("mine", type="exclusive")
            await refused(40901, "POST", "mine", {"type": "exclusive"})
            status, answer = await elsewhere.ask("POST", "mine", {"type": "exclusive"})
            assert (status, answer["error_code"]) == (409, 40901)
            # Elsewhere, and nowhere.
            status, answer = await elsewhere.ask(
                "POST", "turns/cursor", {"type": "negative", "messageIds": [message]}
            )
            assert (status, answer["error_code"]) == (409, 40905)
            assert (await elsewhere.ask("GET", "turns/cursor"))[1]["cursor"]["partitions"]["0"]["lag"] == 4
            await refused(40404, "GET", "nothing/cursor")
            await refused(40404, "POST", "nothing/cursor", {"type": "individual", "messageIds": [message]})
            await refused(40404, "DELETE", "nothing")
            await refused(40403, "GET", "turns/consumer/nobody/messages")
            await refused(40403, "DELETE", "turns/consumers/nobody")
            await refused(40403, "POST", "turns", {"id": "nobody"})
            assert (await client.ask("POST", "turns", {"id": new}))[1]["id"] == new
            await refused(40001, "POST", "turns", {"type": "round"})
            await refused(40001, "POST", "turns", {"more": 1})
            await refused(40001, "POST", "turns/cursor", {"type": "individual", "messageIds": ["x"]})
            await refused(40001, "GET", f"turns/consumer/{new}/messages", timeout=60_001)
            foreign = str(MessageId(1, 0, 0))
            await refused(40904, "POST", "turns/cursor", {"type": "individual", "messageIds": [foreign]})
            # Back to the beginning, and to a message.
            assert (await client.ask("POST", "turns/cursor", {"type": "reset", "to": "earliest"}))[0] == 200
            assert values(await client.fetch(new, "turns", timeout=10_000)) == [0, 1, 2, 3, 4, 5]
            last = str(had[2]["messageId"])
            assert (await client.ask("POST", "turns/cursor", {"type": "reset", "to": [last]}))[0] == 200
            assert values(await client.fetch(new, "turns", timeout=10_000)) == [2, 3, 4, 5]
            assert (await client.ask("POST", "turns/cursor", {"type": "reset", "to": "latest"}))[0] == 200
            assert await client.fetch(new, "turns", timeout=0) == []
            await refused(40001, "POST", "turns/cursor", {"type": "reset"})
            client.connection.request(
                "HEAD", f"/topics/public/default/{name}/subscription/turns/consumer/{new}/messages"
            )
            unseen = client.connection.getresponse()
            assert (unseen.status, unseen.read()) == (405, b"")
