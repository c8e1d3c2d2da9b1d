"""Who gets to speak the Kiwi protocol, and who is still there."""

from __future__ import annotations

import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import websockets.exceptions
import websockets.sync.client
from structlog.typing import EventDict

from kiwi_gw.logs import RepeatLimit
from tests.edge.bench import Bench, running
from tests.edge.wire import (
    CLOSE,
    Client,
    frame,
    upgrade,
)

pytestmark = pytest.mark.usefixtures("no_tracebacks")


# --- before the upgrade ---------------------------------------------------------------------------


async def answer(bench: Bench, head: bytes) -> tuple[int, dict[str, str], bytes]:
    stream = await bench.gateway.connect()
    async with stream:
        return await Client(stream).request(head)


async def test_a_head_that_does_not_come_is_408_and_one_that_is_too_large_431() -> None:
    async with running({"head_timeout_ms": 150}) as bench:
        assert (await answer(bench, b"GET / HTTP/1.1\r\nHost: "))[0] == 408
        assert bench.gateway.listener.rejected == {"timeout": 1}
    async with running({"head_bytes": 2048}) as bench:
        large = upgrade(headers=[(f"X-{number}", "x" * 100) for number in range(30)])
        assert (await answer(bench, large))[0] == 431
        assert bench.gateway.listener.rejected == {"bad_request": 1}
    async with running() as bench:
        assert (await answer(bench, upgrade("/" + "x" * 9_000)))[0] == 431


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (upgrade("/nothing"), 404),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        (upgrade().replace(b"GET", b"POST", 1), 405),
        (b"GET /kiwi HTTP/1.1\r\nHost: localhost\r\n\r\n", 426),
        (upgrade().replace(b"Version: 13", b"Version: 12"), 426),
        (upgrade().replace(b"Sec-WebSocket-Key: ", b"Sec-WebSocket-Key: x"), 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
async def test_what_is_not_served(head: bytes, status: int) -> None:
    async with running() as bench:
        assert (await answer(bench, head))[0] == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost", 101),
        ("https://localhost", 403),
        ("http://localhost:81", 403),
        ("http://evil.test", 403),
        ("null", 403),
        ("https://app.example", 101),
        ("https://www.app.example", 403),
    ],
)
async def test_pages_of_foreign_origins_are_refused_before_the_upgrade(
    origin: str, status: int, log_lines: list[EventDict]
) -> None:
    async with running(server={"allowed_origins": ["https://app.example"]}) as bench:
        assert (await answer(bench, upgrade(headers=[("Origin", origin)])))[0] == status
        if status == 403:
            assert bench.gateway.listener.rejected == {"origin": 1}
            assert not bench.gateway.gateway.connections
    log_lines[:] = [line for line in log_lines if line["event"] != "origin refused"]  # see below


ADD = "if the page is yours, add {} to server.allowed_origins"


@pytest.mark.parametrize(
    ("origins", "why", "remedy"),
    [
        (
            ["http://evil.test"],
            "the page is of another host, and it is not listed",
            ADD.format("http://evil.test"),
        ),
        (
            ["https://localhost"],
            "the page is of this host, but not of http:// and this port, and it is",
            ADD.format("https://localhost"),
        ),
        (
            ["null"],
            "the page has no origin (null), and that is not listed",
            "serve the page from a web server",
        ),
        (["http://a.test", "http://b.test"], "there is more than one Origin header", "none: "),
        (["\x1b[2J" * 100], None, None),
        (["e" * 6_000], "the Origin header is not an origin", "none: "),
    ],
    ids=["foreign", "scheme", "null", "two", "control characters", "long"],
)
async def test_a_refused_origin_is_in_the_log_and_the_page_is_told_why(
    origins: list[str], why: str | None, remedy: str, log_lines: list[EventDict]
) -> None:
    async with running() as bench:
        headers = [("Origin", origin) for origin in origins]
        status, fields, rest = await answer(bench, upgrade("/?access_token=secret", headers=headers))
    lines = [line for line in log_lines if line["event"] == "origin refused"]
    log_lines[:] = [line for line in log_lines if line not in lines]
    if why is None:
        assert (status, lines) == (400, [])
        return
    assert (status, fields["content-type"]) == (403, "text/plain; charset=utf-8")
    assert f": {why}" in rest.decode()
    ((line,),) = [lines]
    assert line["log_level"] == "warning", "which the log limits where it is repeated"
    assert line["why"].startswith(why)
    assert line["remedy"].startswith(remedy)
    assert line["origin"] == origins[0][:200]
    assert "secret" not in str(line)


async def test_lines_about_refused_origins_are_limited_whatever_the_origin(
    log_lines: list[EventDict],
) -> None:
    async with running() as bench:
        for number in range(8):
            handshake = upgrade(f"/kiwi?{number}", headers=[("Origin", f"http://{number}.test")])
            assert (await answer(bench, handshake))[0] == 403
    lines = [line for line in log_lines if line["event"] == "origin refused"]
    log_lines[:] = [line for line in log_lines if line not in lines]
    records = [logging.LogRecord("kiwi_gw", logging.WARNING, "", 0, line, None, None) for line in lines]
    passes = RepeatLimit(now=lambda: 0.0).filter
    assert [bool(passes(record)) for record in records] == [True] * 5 + [False] * 3


# --- what hyper 1.12 writes, as recorded: the whole URL in the request line ------------------------

HYPER_UPGRADE = (
    b"GET ws://127.0.0.1:45337/ HTTP/1.1\r\nhost: 127.0.0.1:45337\r\nupgrade: websocket\r\n"
    b"connection: upgrade\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)
HYPER_PLAIN = b"GET http://127.0.0.1:33713/livez HTTP/1.1\r\nhost: 127.0.0.1:33713\r\n\r\n"


async def test_the_handshake_of_a_hyper_client_is_taken_as_it_was_recorded() -> None:
    async with running() as bench:
        stream = await bench.gateway.connect()
        async with stream:
            client = Client(stream)
            status, headers, rest = await client.request(HYPER_UPGRADE)
            assert (status, headers["sec-websocket-accept"]) == (101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
            assert rest == b""
            await client.subscribe("a", mode="pull")
            await client.ask("REQUEST", "a", n=1)
            await bench.sources["a"].publish([b"x", b"y"])
            assert (await client.message())["data"]["value"] == "x"
        assert (await answer(bench, HYPER_PLAIN))[0] == 200


@pytest.mark.parametrize(("host", "status"), [("localhost", 101), ("evil.test", 403)])
async def test_origins_are_compared_with_the_authority_of_an_absolute_target(
    host: str, status: int, log_lines: list[EventDict]
) -> None:
    headers = [("Origin", "http://localhost")]
    handshake = upgrade(headers=headers).replace(b"GET / ", f"GET ws://{host}/ ".encode(), 1)
    for claimed in (b"localhost", b"evil.test"):
        async with running() as bench:
            assert (await answer(bench, handshake.replace(b"Host: localhost", b"Host: " + claimed)))[
                0
            ] == status
    refused = ("origin refused", "host refused")
    log_lines[:] = [line for line in log_lines if line["event"] not in refused]


async def test_over_max_connections_is_503_with_retry_after_and_health_still_answers() -> None:
    async with running({"max_connections": 2}) as bench:
        async with bench.connect() as first, bench.connect():
            status, headers, _ = await answer(bench, upgrade())
            assert status == 503
            assert int(headers["retry-after"]) > 0
            assert bench.gateway.listener.rejected["limit_total"] == 1
            status, _, _ = await answer(bench, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status == 200, "an orchestrator must not restart a gateway because it is full"
            await first.subscribe("a")  # who is inside does not notice
            await first.send(frame(CLOSE, b"\x03\xe8"))
            assert (await first.over()).code == 1000
        with trio.fail_after(5):
            while (await answer(bench, upgrade()))[0] != 101:
                pass


async def test_sockets_that_say_nothing_take_nobody_s_place() -> None:
    async with running({"max_connections": 2}) as bench, AsyncExitStack() as silent:
        for _ in range(200):
            await silent.enter_async_context(await bench.gateway.connect())
        for _ in range(100):  # nor do those whose requests are answered and who stay
            one = await silent.enter_async_context(await bench.gateway.connect())
            await one.send_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await one.receive_some()).startswith(b"HTTP/1.1 200 ")
        async with bench.connect() as first, bench.connect() as second:
            await first.subscribe("a")
            await second.subscribe("a")
            assert (await answer(bench, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 200


@pytest.mark.parametrize(
    ("address", "loud"),
    [("127.0.0.1:0", False), ("0.0.0.0:0", True), ("[::1]:0", False), ("unix", False)],
)
async def test_a_loud_warning_where_anyone_can_reach_it(
    address: str, loud: bool, tmp_path: Path, log_lines: list[EventDict]
) -> None:
    if address == "unix":
        address = f"unix:{tmp_path}/kiwi.sock"
    async with running(address=address) as bench:
        warnings = [line["event"] for line in log_lines if line["log_level"] == "warning"]
        assert len(warnings) == loud
        assert all("can read every source" in words for words in warnings)
        if not loud:
            async with bench.connect() as client:
                await client.subscribe("a")
    log_lines[:] = [line for line in log_lines if line["log_level"] != "warning"]  # it was wanted


async def test_an_independent_client_understands_it() -> None:
    """The `websockets` library, in a thread."""
    async with running() as bench:

        def talk() -> list[str]:
            with websockets.sync.client.connect(f"ws://{bench.gateway.address}/kiwi") as client:
                client.send(json.dumps({"type": "SUBSCRIBE", "sourceId": "a", "mode": "pull"}))
                kinds = [json.loads(client.recv(10))["type"]]
                client.send(json.dumps({"type": "REQUEST", "sourceId": "a", "n": 2}))
                kinds += [json.loads(client.recv(10))["type"] for _ in range(3)]
                client.ping().wait(10)
                client.send("nonsense")
                with pytest.raises(websockets.exceptions.ConnectionClosedError, match="1008"):
                    client.recv(10)
            return kinds

        await bench.sources["a"].publish([b"before"])
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                while True:
                    await bench.sources["a"].publish([b"x"])
                    await trio.sleep(0.01)

            nursery.start_soon(produce)
            kinds = await trio.to_thread.run_sync(talk)
            assert kinds == ["SUBSCRIBE_OK", "REQUEST_OK", "RESULT", "RESULT"]
            nursery.cancel_scope.cancel()


# --- the silent -----------------------------------------------------------------------------------


@pytest.mark.integration
async def test_a_peer_that_is_gone_is_found_on_an_idle_connection_and_counted() -> None:
    limits = {"ping_interval_ms": 200, "dead_after_ms": 1000}
    async with running(limits) as bench, bench.connect() as silent, bench.connect() as alive:
        silent.quiet = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alive.frame)  # reads, and answers pings
            begun = trio.current_time()
            over = await silent.over()
            waited = trio.current_time() - begun
            assert (over.code, over.reason) == (4408, "unresponsive")
            assert silent.pings >= 1
            assert 1.0 <= waited < 4.0  # dead_after_ms, and the second in which everybody is looked at
            assert bench.gateway.gateway.keepalive.unresponsive == 1
            assert alive.pings >= 1
            assert len(bench.gateway.gateway.connections) == 1
            nursery.cancel_scope.cancel()
