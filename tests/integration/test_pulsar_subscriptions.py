"""Subscriptions over Pulsar's REST interface, on a real Kafka, with the standard library's HTTP client."""

from __future__ import annotations

import json
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
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.test_pulsar import NewTopic, config, folder_of
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

    async def consumer(self, name: str = "s", **wanted: object) -> str:
        status, answer = await self.ask("POST", name, {"start": "earliest", **wanted})
        assert status == 200, answer
        assert answer["base_uri"].endswith(f"/subscription/{name}/consumer/{answer['id']}")
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
            one, two = await client.consumer(name="s"), await client.consumer(name="s")
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
                more = await survivor.fetch(two, timeout=10_000)
                assert more, (len(found), trio.current_time() - began)
                found += more
            assert trio.current_time() - began < 20
            assert sorted([*values(found), *values(done)]) == list(range(40))
            assert (await survivor.acknowledge(found))[0] == 200
            assert await survivor.fetch(two, timeout=0) == []
