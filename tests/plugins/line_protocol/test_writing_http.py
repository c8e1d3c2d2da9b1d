"""A protocol of a third party that writes over HTTP: what is checked for it, and how its errors look."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.runtime import request_load, request_rights
from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from tests.edge.wire import Client, asked
from tests.plugins.line_protocol import kiwi_lines
from tests.plugins.line_protocol.kiwi_lines import MOST_WRITTEN

CONFIG = """\
plugins: [scripted, lines]
server: {allowed_origins: ["http://page.example"]}
sources:
  - {type: scripted, id: news}
"""
PATH = "/lines/writing/news"
JSON = ("Content-Type", "application/json")
GZIP = ("Content-Encoding", "gzip")
Answer = tuple[int, dict[str, str], bytes]


@asynccontextmanager
async def writable(**keys: Any) -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    sources = ScriptedSources(writable=True, **keys)
    async with open_gateway(CONFIG, plugins={"scripted": sources, "lines": kiwi_lines}) as gateway:
        with trio.fail_after(20):
            yield gateway, sources["news"]


async def ask(
    gateway: GatewayUnderTest,
    body: bytes,
    headers: Sequence[tuple[str, str]] = (JSON,),
    method: str = "POST",
    path: str = PATH,
) -> Answer:
    return await asked(gateway, method, path, headers, body)


def lines(*texts: str, **more: object) -> bytes:
    return json.dumps({"lines": texts, **more}).encode()


@pytest.mark.cost
async def test_what_is_written_is_answered_when_it_is() -> None:
    async with writable() as (gateway, script):
        status, headers, body = await ask(gateway, lines("a", "b"))
        assert (status, json.loads(body)) == (200, {"places": [0, 1], "partitions": [0]})
        assert headers["cache-control"] == "no-store"
        status, _, body = await ask(gateway, gzip.compress(lines("c")), [JSON, GZIP])
        assert (status, json.loads(body)["places"]) == (200, [2])
        assert script.positions == {0: 3}
        many = lines(*["x"] * 20_000, seconds=60)
        assert json.loads((await ask(gateway, many))[2])["places"] == list(range(3, 20_003))


@pytest.mark.parametrize(
    ("body", "headers", "path", "method", "status", "words"),
    [
        (lines("a"), [JSON], PATH + "/more", "POST", 404, "nothing is served at this path"),
        (b"", [], PATH, "PUT", 405, "this path does not take that method"),
        (lines("a"), [JSON], PATH + "?x=1", "POST", 400, "unknown parameter"),
        (lines("a"), [("Content-Type", "text/plain")], PATH, "POST", 415, "the Content-Type must be"),
        (lines("a"), [], PATH, "POST", 415, "the Content-Type must be application/json"),
        (lines("a"), [JSON, ("Content-Encoding", "br")], PATH, "POST", 415, "the Content-Encoding may be"),
        (lines("a"), [JSON, GZIP], PATH, "POST", 400, "the body is not gzip"),
        (gzip.compress(lines("a"), mtime=0)[:-4], [JSON, GZIP], PATH, "POST", 400, "the body is not gzip"),
        (gzip.compress(lines("a"), mtime=0) + b"x", [JSON, GZIP], PATH, "POST", 400, "the body is not gzip"),
        (
            gzip.compress(b" " * (MOST_WRITTEN + 1), mtime=0),
            [JSON, GZIP],
            PATH,
            "POST",
            413,
            "the body is larger",
        ),
        (b" " * (MOST_WRITTEN + 1), [JSON], PATH, "POST", 413, "the body is larger"),
        (b"{" * 9_000, [JSON], PATH, "POST", 400, "the body is not JSON"),
        (b'{"lines":["\xff"]}', [JSON], PATH, "POST", 400, "the body is not JSON"),
        (lines("a", seconds=0), [JSON], PATH, "POST", 400, "seconds must be a number above 0"),
        (
            lines("a"),
            [JSON, ("Origin", "http://evil.example")],
            PATH,
            "POST",
            403,
            "this Origin is not allowed",
        ),
    ],
)
async def test_errors_have_the_page_of_the_protocol(
    body: bytes, headers: list[tuple[str, str]], path: str, method: str, status: int, words: str
) -> None:
    async with writable() as (gateway, script):
        found, said, page = await ask(gateway, body, headers, method, path)
        code, message, refusal = json.loads(page)
        assert (found, code, refusal) == (status, status, None)
        assert message.startswith(words) or words in message
        assert (said["content-type"], said["x-page"]) == ("application/json", "lines")
        assert script.positions == {0: 0}
        if status == 405:
            assert said["allow"] == "OPTIONS, POST"


async def test_a_second_request_of_a_connection_has_them_too() -> None:
    async with writable() as (gateway, _), await gateway.connect() as stream:
        client = Client(stream)
        assert (await client.request(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 200
        status, said, _ = await client.request(b"GET /lines/writing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (status, said["x-page"]) == (404, "lines")
        status, said, page = await client.request(b"GET /lines/writin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (status, page) == (404, b"nothing is served at this path\n")


async def test_pages_of_allowed_origins_may_write() -> None:
    page = ("Origin", "http://page.example")
    async with writable() as (gateway, _):
        status, headers, body = await ask(gateway, b"", [page], "OPTIONS")
        assert (status, headers["allow"], body) == (204, "OPTIONS, POST", b"")
        for body, expected in ((lines("a"), 200), (b"{", 400)):
            status, headers, _ = await ask(gateway, body, [JSON, page])
            assert (status, headers["access-control-allow-origin"]) == (expected, page[1])
            assert headers["cache-control"] == "no-store"


async def test_what_may_not_be_written_is_refused_by_the_protocol() -> None:
    sources = ScriptedSources()
    async with open_gateway(CONFIG, plugins={"scripted": sources, "lines": kiwi_lines}) as gateway:
        status, headers, _ = await ask(gateway, lines("a"))
        assert (status, headers["x-why"]) == (403, "forbidden")
        assert (await ask(gateway, lines("a"), path="/lines/writing/none"))[1]["x-why"] == "none"


async def test_what_all_requests_hold_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with writable() as (gateway, _):
        for place, name, value, words in (
            (request_load, "MOST_WAITING", 0, "too many requests wait for their answers"),
            (request_load, "MOST_BYTES", 300, "too many bytes wait to be written"),
            (request_load, "MOST_BYTES", 10, "too many requests are being read"),
        ):
            with monkeypatch.context() as changed:
                changed.setattr(place, name, value)
                status, headers, page = await ask(gateway, lines("a" * 100))
                assert (status, headers["retry-after"]) == (429, "1")
                assert json.loads(page)[1].startswith(words)
        assert gateway.gateway.request_load == request_load.RequestLoad()
        assert (await ask(gateway, lines("a")))[0] == 200


async def test_a_source_that_hangs_is_answered_for_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*args: object, **keys: object) -> None:
        await trio.sleep_forever()

    async with writable() as (gateway, script):
        monkeypatch.setattr(script, "publish", hang)
        status, _, body = await ask(gateway, lines("a", "b", seconds=0.6))
        assert (status, json.loads(body)["places"]) == (200, ["not known whether it was written"] * 2)
        assert gateway.gateway.request_load == request_load.RequestLoad()


@pytest.mark.parametrize(
    ("body", "headers", "waits"),
    [
        (lines("a"), [JSON], False),
        (lines("a" * 40_000), [JSON], True),
        (gzip.compress(lines("a" * 200_000), mtime=0), [JSON, GZIP], True),
    ],
)
async def test_what_takes_long_to_read_has_its_turn(
    body: bytes, headers: list[tuple[str, str]], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[object] = []
    wait = request_rights.RequestRights.wait_turn

    async def counted(rights: request_rights.RequestRights) -> None:
        turns.append(rights)
        await wait(rights)

    monkeypatch.setattr(request_rights.RequestRights, "wait_turn", counted)
    monkeypatch.setattr(request_rights, "_TURN_SECONDS", 60.0)
    async with writable() as (gateway, _):
        assert (await ask(gateway, body, headers))[0] == 200
    assert bool(turns) == waits
