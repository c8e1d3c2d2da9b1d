"""Subscriptions over Pulsar's REST interface at gateways of several workers, with a client that follows
redirections: urllib's."""

from __future__ import annotations

import json
import random
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.test_pulsar import NewTopic, folder_of
from tests.integration.test_pulsar_subscriptions import check_committed, open_to_all
from tests.topics import Topics

pytestmark = pytest.mark.integration

Answer = tuple[int, Any]


class _Follow(urllib.request.HTTPRedirectHandler):
    """urllib itself follows 307 for GET and HEAD only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request:
        assert code == 307
        again = dict(req.header_items())
        return urllib.request.Request(newurl, req.data, again, method=req.get_method())  # noqa: S310


_OPENER = urllib.request.build_opener(_Follow)


async def ask(method: str, url: str, body: object = None) -> Answer:
    """Ask on a connection of its own, which any worker may get."""

    def call() -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        try:
            with _OPENER.open(request, timeout=60) as response:
                status, found = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, found = error.code, error.read()
        return status, json.loads(found) if found else None

    return await trio.to_thread.run_sync(call)


@asynccontextmanager
async def two_workers(
    folder: Path, settings: dict[str, Any], count: int, **server: object
) -> AsyncIterator[list[GatewayProcess]]:
    """So many gateways of two workers."""
    own = {"address": "127.0.0.1:0", "admin_address": None, "workers": 2, **server}
    found: list[GatewayProcess] = []
    async with trio.open_nursery() as nursery:

        async def run(number: int, task_status: trio.TaskStatus[None]) -> None:
            async with gateway(folder_of(folder, number), {**settings, "server": own}) as running:
                await running.logged("source runs", count=2)
                found.append(running)
                task_status.started()
                await trio.sleep_forever()

        for number in range(count):
            await nursery.start(run, number)
        yield found
        nursery.cancel_scope.cancel()


async def test_a_consumer_is_found_through_every_worker(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    with trio.fail_after(60):
        async with two_workers(tmp_path, open_to_all(broker, name), 1, worker_port=0) as (running,):
            shared = f"http://{running.address}"
            path = f"/topics/public/default/{name}/subscription/s"
            status, made = await ask("POST", shared + path, {})
            assert status == 200, made
            own = urlsplit(made["base_uri"])
            assert own.hostname == "127.0.0.1"
            assert own.port not in (None, running.port)
            await topics.fill(name, 5, 1)
            # Sixteen connections: that one worker gets all of them happens once in 32,768 times.
            found: list[Any] = []
            while len(found) < 5:
                for _ in range(16):
                    url = f"{shared}{path}/consumer/{made['id']}/messages?timeout=0&max_messages=1"
                    status, answer = await ask("GET", url)
                    assert status == 200, answer
                    found += answer["messages"]
            assert (await ask("POST", shared + path, {"id": made["id"]}))[1] == made
            ids = {"type": "individual", "messageIds": [each["messageId"] for each in found]}
            status, answer = await ask("POST", f"http://{own.netloc}{path}/cursor", ids)
            assert (status, answer["cursor"]["partitions"]["0"]["lag"]) == (200, 0)
            assert (await ask("DELETE", f"{shared}{path}/consumers/{made['id']}"))[0] == 204
            status, answer = await ask("GET", made["base_uri"] + "/messages")
            assert (status, answer["error_code"]) == (404, 40403)


@pytest.mark.extended
async def test_workers_without_ports_say_what_is_missing(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    with trio.fail_after(60):
        async with two_workers(tmp_path, open_to_all(broker, name), 1) as (running,):
            url = f"http://{running.address}/topics/public/default/{name}/subscription/s"
            status, answer = await ask("POST", url, {})
            assert (status, answer["error_code"]) == (405, 40501)
            assert "server.worker_port" in answer["message"]
            status, answer = await ask("GET", url + "/consumer/x/messages")
            assert (status, answer["error_code"]) == (404, 40403)


@pytest.mark.extended
async def test_consumers_at_random_acknowledge_everything(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """10,000 messages at two gateways of two workers; Kafka's own count of what is left is 0."""
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 10_000, 4)
    seen: set[str] = set()
    chosen = random.Random(name)
    with trio.fail_after(200):
        async with two_workers(tmp_path, open_to_all(broker, name), 2, worker_port=0) as running:
            path = f"/topics/public/default/{name}/subscription/s"

            async def consume() -> None:
                while len(seen) < 10_000:
                    shared = f"http://{chosen.choice(running).address}{path}"
                    status, made = await ask("POST", shared, {"start": "earliest"})
                    assert status == 200, made
                    # Where it lives, or by the common address and a redirection.
                    base = made["base_uri"]
                    cursor = base.partition("/consumer/")[0] + "/cursor"
                    url = chosen.choice([base, f"{shared}/consumer/{made['id']}"])
                    for _ in range(chosen.randrange(1, 6)):
                        most = chosen.choice([10, 200, 1_000])
                        status, answer = await ask("GET", f"{url}/messages?max_messages={most}&timeout=200")
                        assert status == 200, answer
                        taken = [each for each in answer["messages"] if chosen.random() < 0.9]
                        ids = [each["messageId"] for each in taken]
                        status, answer = await ask("POST", cursor, {"type": "individual", "messageIds": ids})
                        assert status in (200, 409), answer
                        seen.update(set(ids) - set(answer.get("moved", ())))
                    assert (await ask("DELETE", url))[0] == 204

            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(consume)
            assert len(seen) == 10_000
            await check_committed(broker, name, dict.fromkeys(range(4), 2500))
