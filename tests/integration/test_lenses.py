"""Lenses v1 with a real broker, by clients that we did not write: of Node, and `websockets` of Python."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from argon2.low_level import Type, hash_secret
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as websocket

from kiwi_demo.broker import Broker
from kiwi_demo.jars import fetch_broker
from tests.integration.gateway import gateway, kafka_config
from tests.integration.kafka.test_writing import as_group, read_all
from tests.integration.test_node import node
from tests.integration.test_pulsar_subscriptions import java_offsets
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

BIG = 1_800_000_000_000_000_001
WITHIN = 20.0
HEARTBEAT = {"type": "HEARTBEAT"}

Message = dict[str, Any]


class Client(ABC):
    """Send texts, and hear messages. early: records that came before the answer that was waited for, for
    whoever asks for records next. heartbeats: how many came while something else was waited for."""

    def __init__(self) -> None:
        self.early: deque[Message] = deque()
        self.heartbeats = 0

    @abstractmethod
    async def send(self, text: str) -> None: ...

    @abstractmethod
    async def hear_any(self) -> Message: ...

    async def hear(self) -> Message:
        """Return the next message that is no bare heartbeat."""
        while (message := await self.hear_any()) == HEARTBEAT:
            self.heartbeats += 1
        return message


class InPython(Client):
    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self._socket = socket

    async def send(self, text: str) -> None:
        await trio.to_thread.run_sync(self._socket.send, text)

    async def hear_any(self) -> Message:
        text = await trio.to_thread.run_sync(partial(self._socket.recv, timeout=WITHIN))
        message: Message = json.loads(text)
        return message


class InNode(Client):
    def __init__(self, process: trio.Process) -> None:
        super().__init__()
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._rest = b""

    async def send(self, text: str) -> None:
        await self._stdin.send_all(text.encode() + b"\n")

    async def hear_any(self) -> Message:
        with trio.fail_after(WITHIN):
            while b"\n" not in self._rest:
                chunk = await self._stdout.receive_some()
                assert chunk, "the client has ended"
                self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        message: Message = json.loads(line)
        return message


@asynccontextmanager
async def in_python(address: str, client_id: str) -> AsyncIterator[Client]:
    with websocket(f"ws://{address}/api/kafka/ws/{client_id}", max_size=None) as socket:
        yield InPython(socket)


@asynccontextmanager
async def in_node(address: str, client_id: str) -> AsyncIterator[Client]:
    script = Path(__file__).parent / "lenses_client.mjs"
    command = [node(), str(script), f"ws://{address}/api/kafka/ws/{client_id}"]
    run = partial(trio.run_process, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    async with trio.open_nursery() as nursery:
        process = await nursery.start(run, command)
        yield InNode(process)
        await process.stdin.aclose()


CLIENTS = pytest.mark.parametrize("client", [in_python, in_node])


def request(kind: str, number: int, content: object, token: str | None = None) -> str:
    more = {} if token is None else {"authToken": token}
    return json.dumps({"type": kind, "correlationId": number, "content": json.dumps(content), **more})


async def answer(client: Client, *asked: Any) -> str:
    """Ask; the content of SUCCESS. AssertionError for any other answer.

    Records may come before it: a topic is read before its broker has acknowledged what was written to it.
    """
    await client.send(request(*asked))
    while (heard := await client.hear())["type"] == "KAFKAMSG":
        client.early.append(heard)
    assert (heard["type"], heard["correlationId"]) == ("SUCCESS", asked[1]), heard
    content = heard["content"]
    assert isinstance(content, str)
    return content


async def records(client: Client, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        message = client.early.popleft() if client.early else await client.hear()
        assert message["type"] == "KAFKAMSG", message
        found += [{**each, "correlationId": message["correlationId"]} for each in message["content"]]
    return found


def select(table: str, rest: str = "", columns: str = "*") -> dict[str, list[str]]:
    return {"sqls": [f"SELECT {columns} FROM `{table}` {rest}"]}  # noqa: S608  (no database)


def config(broker: Broker, topic: str) -> dict[str, Any]:
    made = hash_secret(b"right", b"a fixed salt for tests", 1, 8, 1, 32, Type.ID).decode()
    everything = ["subscribe", "replay", "commit", "publish"]
    found = kafka_config(broker.bootstrap, topic, lenses={"enabled": True})
    found["sources"][0]["publish"] = True  # type: ignore[index]
    found["tokens"] = {
        "roles": {"writer": {"sources": ["*"], "actions": everything}},
        "users": [{"name": "ann", "password_hash": made, "roles": ["writer"]}],
        "static": [{"name": "machine", "token": "a-token-of-a-machine", "roles": ["writer"]}],
        "sessions": {"key": "a key of thirty-two bytes or more"},
    }
    return found


async def all_but_login(
    client: Client, name: str, first: int, token: str, bootstrap: str, group: str
) -> None:
    """Make the requests that come behind LOGIN, and read what was written. first: the id of the first."""
    assert await answer(client, "SUBSCRIBE", first, select(name), token) == name
    record = {"topic": name, "key": "k", "value": '{"n":1}'}
    written = json.loads(await answer(client, "PUBLISH", first + 1, record, token))
    (heard,) = await records(client, 1)
    assert {**written, "key": "k", "value": '{"n":1}'} == {
        key: value for key, value in heard.items() if key not in ("timestamp", "correlationId")
    }
    assert heard["correlationId"] == first
    done = {"commits": [{k: written[k] for k in ("topic", "partition", "offset")}]}
    assert await answer(client, "COMMIT", first + 2, done, token) == ""
    assert await as_group(bootstrap, group, name, written["partition"]) == written["offset"] + 1
    assert await answer(client, "UNSUBSCRIBE", first + 3, {"topics": [{"topic": name}]}, token) == name
    assert client.heartbeats == 0


@CLIENTS
async def test_all_five_requests_and_records_on_one_connection(
    client: Callable[..., Any],
    broker: Broker,
    topics: Topics,
    new_topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    """And again on another with the first one's token, and on one with a token of the configuration."""
    name = await topics.create(new_topic(), 2)
    async with gateway(tmp_path, config(broker, name)) as running:
        async with client(running.address, "page") as page:
            token = await answer(page, "LOGIN", BIG, {"user": "ann", "password": "right"})
            await all_but_login(page, name, BIG + 1, token, broker.bootstrap, "kiwi-gw.ann.page")
        async with client(running.address, "other") as other:
            await all_but_login(other, name, BIG + 5, token, broker.bootstrap, "kiwi-gw.ann.other")
        async with client(running.address, "job") as job:
            token = "a-token-of-a-machine"
            await all_but_login(job, name, BIG + 9, token, broker.bootstrap, "kiwi-gw.machine.job")
            await answer(job, "SUBSCRIBE", 1, select(name, "WHERE n = 1 AND _meta.offset >= 0", "n"), token)
            assert [json.loads(each["value"]) for each in await records(job, 3)] == [{"n": 1}] * 3


@CLIENTS
async def test_one_heartbeat_behind_a_time_without_a_word_and_none_before(
    client: Callable[..., Any], broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    settings = config(broker, name)
    settings["lenses"]["heartbeat_ms"] = 3_000
    async with gateway(tmp_path, settings) as running, client(running.address, "page") as page:
        token = "a-token-of-a-machine"
        await answer(page, "SUBSCRIBE", 1, select(name), token)
        asked = trio.current_time()
        await answer(page, "UNSUBSCRIBE", 2, {"topics": [name]}, token)
        assert page.heartbeats == 0
        assert await page.hear_any() == HEARTBEAT
        assert trio.current_time() - asked >= 3.0


async def test_who_comes_back_gets_exactly_what_is_behind_the_commit(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """The gateway is killed, and another one goes on."""
    name = await topics.create(new_topic(), 3)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    token = "a-token-of-a-machine"
    subscribe = select(name, "WHERE _vtype='STRING'")
    async with gateway(tmp_path / "one", config(broker, name), killed=True) as first:
        async with in_python(first.address, "me") as page:
            await answer(page, "SUBSCRIBE", 1, subscribe, token)
            await topics.produce(name, [Record(b"%d" % n, partition=n % 3) for n in range(60)])
            seen = await records(page, 60)
            assert {each["value"] for each in seen} == {str(n) for n in range(60)}
            done = [each for each in seen if each["offset"] < 7 + each["partition"]]
            commits = [{k: each[k] for k in ("topic", "partition", "offset")} for each in done]
            await answer(page, "COMMIT", 2, {"commits": commits}, token)
        first.process.kill()
    committed = await trio.to_thread.run_sync(
        java_offsets, broker.bootstrap, "kiwi-gw.machine.me", await fetch_broker()
    )
    assert committed == {(name, partition): 7 + partition for partition in range(3)}
    async with (
        gateway(tmp_path / "two", config(broker, name)) as second,
        in_node(second.address, "me") as page,
    ):
        await answer(page, "SUBSCRIBE", 3, subscribe, token)
        wanted = {(p, offset) for p in range(3) for offset in range(7 + p, 20)}
        again = await records(page, len(wanted))
        assert {(each["partition"], each["offset"]) for each in again} == wanted
        assert len(again) == len(wanted)
        # Another client id is another group: it begins with what comes now.
        async with in_node(second.address, "new") as other:
            await answer(other, "SUBSCRIBE", 4, subscribe, token)
            await answer(other, "PUBLISH", 5, {"topic": name, "value": "fresh"}, token)
            assert [each["value"] for each in await records(other, 1)] == ["fresh"]


async def test_every_success_is_in_the_topic_when_the_broker_is_killed_under_a_publisher(
    own_broker: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """How much is given up while it is away depends on how fast it starts: what comes then gets through."""
    name = await Topics(own_broker.bootstrap).create(new_topic(), 1)
    total = 3_000
    said: dict[int, Message] = {}
    async with (
        gateway(tmp_path, config(own_broker, name)) as running,
        in_python(running.address, "me") as page,
    ):
        await answer(page, "SUBSCRIBE", total, select(name), "a-token-of-a-machine")
        await answer(page, "UNSUBSCRIBE", total + 1, {"topics": [name]})
        killed = trio.Event()

        async def publish(numbers: range) -> None:
            for number in numbers:
                await page.send(request("PUBLISH", number, {"topic": name, "value": str(number)}))
                if number == total // 3:
                    await killed.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish, range(total))
            while len(said) < total:
                heard = await page.hear()
                said[heard["correlationId"]] = heard
                if len(said) == total // 6:
                    await own_broker.kill()
                    killed.set()
                    await own_broker.start()
        with trio.fail_after(60):
            while heard["type"] != "SUCCESS":
                await publish(range(len(said), len(said) + 1))
                heard = await page.hear()
                said[heard["correlationId"]] = heard
    assert list(said) == list(range(len(said))), "answers come in the order of the requests"
    found = await read_all(own_broker.bootstrap, name)
    values = [int(value or b"") for _, value in sorted(found.items())]
    assert values == sorted(set(values)), "in order, none twice"
    written = [number for number, heard in said.items() if heard["type"] == "SUCCESS"]
    for number in written:
        content = json.loads(said[number]["content"])
        assert found[content["partition"], content["offset"]] == str(number).encode()
    unwritten = {n for n, heard in said.items() if heard["content"].startswith("not written")}
    assert not unwritten & set(values)
    assert written[: total // 6] == list(range(total // 6)), "until it was killed"


@pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.extended)])
async def test_while_kafka_is_away_every_request_is_answered_in_time_and_once(
    how: str, own_broker: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Before the gateway has noticed, and when it has; and the connection goes on when it is back."""
    topics = Topics(own_broker.bootstrap)
    known, other = await topics.create(new_topic(), 1), await topics.create(new_topic(), 1)
    await topics.produce(known, [Record(b"0")])  # for COMMIT
    settings = config(own_broker, known)
    settings["sources"].append({"type": "kafka", "topic": other})
    wanted: list[tuple[str, object]] = [
        ("PUBLISH", {"topic": known, "value": "1"}),
        ("COMMIT", {"commits": [{"topic": known, "partition": 0, "offset": 0}]}),
        ("SUBSCRIBE", select(other)),
        ("SUBSCRIBE", select(known, "WHERE _meta.offset >= 0")),
    ]
    everything, nothing = ["SUCCESS"] * len(wanted), ["ERROR"] * len(wanted)
    answered: list[int] = []
    async with (
        gateway(tmp_path, settings, expected_errors={"kafka broker away"}) as running,
        in_python(running.address, "me") as page,
    ):

        async def ask_all() -> list[str]:
            """Ask for everything at once. What was answered, in the order of what is wanted."""
            first, waited = len(answered), running.waiting()
            found, began = {}, {}
            for number, each in enumerate(wanted, first):
                began[number] = trio.current_time()
                await page.send(request(each[0], number, each[1], "a-token-of-a-machine"))
            while len(answered) < first + len(wanted):
                if (heard := await page.hear())["type"] != "KAFKAMSG":
                    took = trio.current_time() - began[heard["correlationId"]]
                    assert took - waited() < 4.5, heard
                    answered.append(heard["correlationId"])
                    found[heard["correlationId"]] = heard["type"]
                    if heard["type"] == "ERROR":
                        errors.append(heard["content"])
            return [kind for _, kind in sorted(found.items())]

        errors: list[str] = []
        while await ask_all() != everything:  # a source may just be starting
            assert all(each.startswith("not written: ") for each in errors), errors
        await own_broker.kill() if how == "killed" else own_broker.freeze()
        assert await ask_all() == nothing
        assert await ask_all() == nothing
        await own_broker.start() if how == "killed" else own_broker.thaw()
        with trio.fail_after(60):
            while await ask_all() != everything:
                pass
        await page.send(request("PUBLISH", len(answered), {"topic": known, "value": "last"}))
        values: list[object] = []
        while "last" not in values:
            heard = await page.hear()
            values += [each["value"] for each in heard["content"] if heard["type"] == "KAFKAMSG"]
    assert sorted(answered) == list(range(len(answered))), "each once"
