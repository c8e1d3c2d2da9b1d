"""Reading over Pulsar's REST interface: what is answered, through the whole gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import trio

from kiwi_gw.api import Gap
from kiwi_gw.dialects.pulsar import reading as pulsar_reading
from kiwi_gw.dialects.pulsar.message_ids import MessageId, read_message_id
from kiwi_gw.runtime import request_load
from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from tests.edge.admin import scrape, value
from tests.edge.test_pulsar import Rights
from tests.edge.wire import Client, asked, joined_chunks

TEXT = """\
plugins: [scripted{plugins}]
pulsar: {{enabled: true}}
sources:
  - {{type: scripted, id: orders, window: {{events: {window}}}}}
  - {{type: scripted, id: typed, pulsar: {{schema: {{type: JSON}}}}}}
"""
PATH = "/topics/public/default/orders/partitions/0/messages"
HOST = ("Host", "127.0.0.1")
LINES = ("Accept", "application/x-ndjson")


@asynccontextmanager
async def reading(
    *, replayable: bool = True, rights: bool = False, window: int = 10_000
) -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    sources = ScriptedSources(replayable=replayable)
    plugins: dict[str, Any] = {"scripted": sources} | ({"rights": Rights()} if rights else {})
    text = TEXT.format(plugins=", rights" if rights else "", window=window)
    async with open_gateway(text, plugins=plugins, admin="127.0.0.1:0") as gateway:
        with trio.fail_after(20):
            yield gateway, sources["orders"]


def head(query: str, *headers: tuple[str, str]) -> bytes:
    lines = [f"GET {PATH}?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in (HOST, *headers))]
    return "\r\n".join([*lines, "", ""]).encode()


async def get(
    gateway: GatewayUnderTest, query: str = "", *, path: str = PATH, method: str = "GET", token: str = ""
) -> tuple[int, Any]:
    headers = [("Authorization", f"Bearer {token}")] if token else []
    status, said, body = await asked(gateway, method, path + (f"?{query}" if query else ""), headers)
    assert said["cache-control"] == "no-store"
    assert said["content-type"] == "application/json"
    return status, json.loads(body) if body else None


async def until(happened: Callable[[], object]) -> None:
    while not happened():
        await trio.lowlevel.checkpoint()


async def test_what_is_there_is_answered_at_once_and_next_goes_on() -> None:
    async with reading() as (gateway, script):
        await script.publish(
            [b'{"a": 1}', b"text", None, b"\xff"], keys=[b"k", None, b"\xfe", None], timestamp=7
        )
        status, answer = await get(gateway)
        assert status == 200
        place = read_message_id(answer["messages"][0]["messageId"])
        ids = [str(MessageId(place.life, offset, 0)) for offset in range(5)]
        rest = {
            "partition": 0, "properties": {}, "eventTime": 7, "sequenceId": None, "replicationClusters": []
        }  # fmt: skip
        assert answer == {
            "messages": [
                {"messageId": ids[0], "key": "k", "value": {"a": 1}, **rest},
                {"messageId": ids[1], "key": None, "value": "text", **rest},
                {"messageId": ids[2], "key": None, "keyPayload": "/g==", "value": None, **rest},
                {"messageId": ids[3], "key": None, "value": None, "payload": "/w==", **rest},
            ],
            "next": ids[4],
        }
        status, answer = await get(gateway, f"from={ids[1]}&max_messages=2")
        assert [message["messageId"] for message in answer["messages"]] == ids[1:3]
        assert answer["next"] == ids[3]
        status, answer = await get(gateway, f"from={ids[4]}&timeout=0")
        assert (status, answer) == (200, {"messages": [], "next": ids[4]})
        await script.publish([b"1"] * 3)
        status, answer = await get(gateway, f"from={ids[4]}&max_bytes=1")
        assert [message["messageId"] for message in answer["messages"]] == ids[4:]


@pytest.mark.parametrize("window", [10_000, 3])
async def test_an_answer_has_no_more_bytes_than_wanted_or_one_message(window: int) -> None:
    """Of what is in the window, and of the past; `next` goes on with what did not fit."""
    async with reading(window=window) as (gateway, script):
        for size in (1, 20_000, 20_000, 1, 90_000, 1):
            await script.publish([b"x" * size])
        counts, place = [], "earliest"
        for _ in range(4):
            _, answer = await get(gateway, f"from={quote(place, safe='')}&max_bytes=30000")
            counts.append(len(answer["messages"]))
            place = answer["next"]
        assert counts == [2, 2, 1, 1]
        body = (await asked(gateway, "GET", f"{PATH}?from=earliest&max_bytes=30000&timeout=0", [LINES]))[2]
        lines = [json.loads(line) for line in body.splitlines()]
        assert len(lines) == 3
        assert read_message_id(lines[-1]["next"]).offset == 2


async def test_what_comes_later_is_waited_for() -> None:
    async with reading() as (gateway, script):
        await script.publish([b"0"])
        found: list[Any] = []

        async def wait() -> None:
            found.append(await get(gateway, "from=latest&timeout=60000"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: any(runner.hub.groups.live for runner in gateway.gateway.runners()))
            await script.publish([b"1", b"2"])
        status, answer = found[0]
        assert (status, [message["value"] for message in answer["messages"]]) == (200, [1, 2])


async def test_lines_come_one_by_one_until_the_time_is_over() -> None:
    async with reading() as (gateway, script):
        await script.publish([b'{"a":\n 1}', b"2"])
        async with await gateway.connect() as stream:
            status, said, found = await Client(stream).request(head("timeout=0&max_messages=3", LINES))
            assert (status, said["content-type"]) == (200, "application/x-ndjson")
            while found.count(b"messageId") < 2:
                found += await stream.receive_some()
            await script.publish([b"3", b"4"])
            while not found.endswith(b"0\r\n\r\n"):
                found += await stream.receive_some()
        lines = [json.loads(line) for line in joined_chunks(found).decode().splitlines()]
        assert [line.get("value") for line in lines] == [{"a": 1}, 2, 3, None]
        assert read_message_id(lines[-1]["next"]).offset == 3


ROWS = [
    ("from=yesterday", 40001, "from must be earliest"),
    ("from=CAAQ", 40001, "from must be earliest"),
    ("timeout=60001", 40001, "timeout must be"),
    ("max_messages=0", 40001, "max_messages must be"),
    ("max_bytes=99999999", 40001, "max_bytes must be"),
    ("include_schema=perhaps", 40001, "include_schema must be"),
    ("other=1", 40001, "unknown"),
    (f"from={MessageId(1, 0, 0)}", 40904, "an earlier topic"),
    (f"from={MessageId(1, 0, 1)}", 40001, "partition 1"),
]


@pytest.mark.parametrize(("query", "code", "words"), ROWS, ids=[row[0] for row in ROWS])
async def test_what_cannot_be_read_is_refused(query: str, code: int, words: str) -> None:
    async with reading() as (gateway, _):
        status, answer = await get(gateway, query)
        assert (status, answer["error_code"]) == (code // 100, code)
        assert words in answer["message"]


async def test_places_that_are_not_there_are_refused() -> None:
    async with reading() as (gateway, script):
        await script.publish([b"0", b"1"])
        life = read_message_id((await get(gateway))[1]["next"]).life
        assert (await get(gateway, f"from={MessageId(life, 9, 0)}"))[1]["error_code"] == 40904
        status, answer = await get(gateway, path=PATH.replace("orders", "nothing"))
        assert (status, answer["error_code"]) == (404, 40401)
        status, answer = await get(gateway, path=PATH.replace("partitions/0", "partitions/7"))
        assert (status, answer["error_code"]) == (404, 40402)


async def test_what_was_deleted_is_refused_or_told() -> None:
    async with reading(window=1) as (gateway, script):
        await script.publish([b"0", b"1"])
        place = read_message_id((await get(gateway))[1]["messages"][0]["messageId"])
        await script.publish([b"2"])
        script.history.delete(0, 2)
        assert (await get(gateway, f"from={place}"))[1]["error_code"] == 40904
        answer = (await get(gateway, "from=earliest"))[1]
        assert [message["value"] for message in answer["messages"]] == [2]
        assert "lost" not in answer


@pytest.mark.parametrize("lines", [False, True])
async def test_what_the_source_lost_is_told(*, lines: bool) -> None:
    """A run of ids, both ends included; what comes behind it comes, too, or is read next."""
    async with reading() as (gateway, script):
        found: list[bytes] = []

        async def wait() -> None:
            query = f"{PATH}?from=latest&timeout=60000&max_messages=1"
            found.append((await asked(gateway, "GET", query, [LINES] if lines else []))[2])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: any(runner.hub.groups.live for runner in gateway.gateway.runners()))
            await script.publish([b"5"], gap=Gap({0: (0, 4)}, 5))
        objects = [json.loads(line) for line in found[0].splitlines() if line]
        ((lost,),) = [each["lost"] for each in objects if "lost" in each]
        assert [read_message_id(lost[end]).offset for end in ("first", "last")] == [0, 4]
        if lines:
            assert [each.get("value") for each in objects] == [None, 5, None]
        answer = (await get(gateway, f"from={objects[-1]['next']}&timeout=0"))[1]
        assert [message["value"] for message in answer["messages"]] == ([] if lines else [5])


async def test_what_comes_with_a_loss_comes_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come while the answer begins."""
    begin = pulsar_reading._Messages.begin

    async with reading() as (gateway, script):

        async def publish_first(self: Any, start: Any) -> bytes:
            await script.publish([b"5", b"6"], gap=Gap({0: (0, 4)}, 5))
            return await begin(self, start)

        monkeypatch.setattr(pulsar_reading._Messages, "begin", publish_first)
        query = f"{PATH}?from=latest&timeout=60000&max_messages=2"
        body = (await asked(gateway, "GET", query, [LINES]))[2]
        lost, *messages, last = [json.loads(line) for line in body.splitlines() if line]
        assert [read_message_id(lost["lost"][0][end]).offset for end in ("first", "last")] == [0, 4]
        assert [message["value"] for message in messages] == [5, 6]
        assert read_message_id(last["next"]).offset == 7


async def test_what_a_client_may_read() -> None:
    async with reading(rights=True) as (gateway, script):
        await script.publish([b"0"])
        assert (await get(gateway, token="writer"))[0] == 200
        status, answer = await get(gateway, token="reader")
        assert (status, answer["error_code"]) == (403, 40301)
        assert (await get(gateway, "from=latest&timeout=0", token="reader"))[0] == 200
        status, answer = await get(gateway, "from=latest&timeout=0", token="nobody")
        assert (status, answer["error_code"]) == (404, 40401)


async def test_a_source_without_a_past() -> None:
    async with reading(replayable=False) as (gateway, script):
        for query in ("", "from=17"):
            status, answer = await get(gateway, query)
            assert (status, answer["error_code"]) == (400, 40001)
        place = (await get(gateway, "from=latest&timeout=0"))[1]["next"]
        await script.publish([b"0"])
        answer = (await get(gateway, f"from={place}"))[1]
        assert [message["value"] for message in answer["messages"]] == [0]


async def test_head_and_schemas() -> None:
    async with reading() as (gateway, script):
        await script.publish([b"0"])
        assert await get(gateway, method="HEAD") == (200, None)
        _, answer = await get(gateway, "include_schema=true")
        assert answer["schemas"] == [{"type": "JSON", "version": None, "data": "", "properties": {}}]


async def test_a_reader_goes_with_its_client() -> None:
    async with reading() as (gateway, _):
        async with await gateway.connect() as stream:
            await stream.send_all(head("from=latest&timeout=60000"))
            await until(lambda: len(gateway.gateway.connections) == 1)
        await until(lambda: not gateway.gateway.connections)
        assert not gateway.gateway.request_load.waiting


async def test_who_waits_much_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_load, "MOST_WAITING", 4)
    query = "from=latest&timeout=60000"
    async with reading(rights=True) as (gateway, script), trio.open_nursery() as nursery:
        for count in (1, 2):
            nursery.start_soon(partial(get, gateway, query, token="writer"))
            await until(lambda count=count: len(gateway.gateway.connections) == count)  # type: ignore[misc]
        status, answer = await get(gateway, query, token="writer")
        assert (status, answer["error_code"]) == (429, 42901)
        nursery.start_soon(partial(get, gateway, query, token="reader"))
        await until(lambda: len(gateway.gateway.connections) == 3)
        assert (await get(gateway, query, token="reader"))[0] == 429
        await script.publish([b"0"])
        await until(lambda: not gateway.gateway.request_load.waiting)
        assert (await get(gateway, "timeout=0", token="writer"))[0] == 200


async def test_a_gateway_that_stops_answers_with_what_it_has() -> None:
    async with reading() as (gateway, script):
        await script.publish([b"0"])
        found: list[Any] = []

        async def wait() -> None:
            found.append(await get(gateway, "from=latest&timeout=60000"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: len(gateway.gateway.connections) == 1)
            await gateway.gateway.drain("stops", 5)
        assert found[0][0] == 200
        assert found[0][1]["messages"] == []
        assert "error" not in found[0][1]


async def test_who_reads_is_counted_and_shown() -> None:
    async with reading() as (gateway, script):
        await script.publish([b"0"])
        await get(gateway)
        async with await gateway.connect() as stream:
            await stream.send_all(head("from=latest&timeout=60000"))
            await until(lambda: len(gateway.gateway.connections) == 1)
            (connection,) = gateway.gateway.connections
            assert (connection.dialect, connection.identity.anonymous) == ("pulsar", True)
            samples = await scrape(gateway.admin_address)
            labels = {"dialect": "pulsar", "transport": "http"}
            assert value(samples, "connections", **labels) == 1
            assert value(samples, "connections_opened_total", **labels) == 2
            assert value(samples, "requests_waiting") == 1
