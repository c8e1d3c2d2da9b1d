"""How a gateway stops: what clients are told, and that nobody can hold it up."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from kiwi_gw.api import Credential, Identity, hookimpl
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import CLOSE, Client, Over, command, connect, frame, upgrade
from tests.stalls import within

pytestmark = pytest.mark.usefixtures("no_tracebacks")

LONG = 60_000
"""Milliseconds that no test waits."""


@asynccontextmanager
async def running(
    drain_ms: int = LONG,
    *,
    envelope: str = "flat",
    plugins: dict[str, object] | None = None,
) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    sources = ScriptedSources()
    plugins = {"scripted": sources, **(plugins or {})}
    config = {
        "plugins": list(plugins),
        "server": {"drain_ms": drain_ms, "limits": {"close_timeout_ms": LONG}},
        "kiwi": {"envelope": envelope},
        "sources": [{"type": "scripted", "id": "a"}],
    }
    async with open_gateway(json.dumps(config), plugins=plugins) as gateway:
        with trio.fail_after(20):
            yield gateway, sources


async def last_words(client: Client) -> tuple[list[dict[str, object]], Over]:
    """What a client is told until the connection is over."""
    told = []
    while True:
        try:
            told.append(await client.message())
        except Over as over:
            return told, over


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_everybody_is_told_when_to_come_back(number: int) -> None:
    count = 50
    async with running() as (gateway, _), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(gateway)) for _ in range(count)]
        for client in clients:
            await client.subscribe("a")
        hints: list[object] = []

        async def listen(client: Client) -> None:
            told, over = await last_words(client)
            assert (over.code, over.reason) == (1012, "draining")
            (notice,) = told
            assert notice["type"] == "NOTICE"
            data = notice["data"]
            assert isinstance(data, dict)
            assert data["type"] == "DRAINING"
            hints.append(data["retryAfterMs"])

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(listen, client)
            assert await gateway.stop(number) == 0
        assert len(set(map(str, hints))) == count, "spread, so that they do not come back at once"
        assert all(isinstance(hint, int) and 100 <= hint <= 1100 for hint in hints)
        assert gateway.addresses == []


async def test_the_originals_envelope_has_no_hint_and_so_1001() -> None:
    async with running(envelope="nested") as (gateway, _), connect(gateway) as client:
        await client.ask("SUBSCRIBE", "a")
        gateway.send_signal(signal.SIGTERM)
        told, over = await last_words(client)
        assert (told, over.code, over.reason) == ([], 1001, "draining")
        assert await gateway.wait_stopped() == 0


async def test_what_was_sent_before_arrives_before_the_goodbye() -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        await client.subscribe("a")
        await sources["a"].publish([b"x" * 1000] * 2000)
        gateway.send_signal(signal.SIGTERM)
        told, over = await last_words(client)
        offsets = [item["data"]["offset"] for item in told if item["type"] == "RESULT"]  # type: ignore[index]
        assert offsets == [*range(len(offsets))], "what the kernel had taken, whole and in order"
        assert told[-1]["data"]["type"] == "DRAINING"  # type: ignore[index]
        assert over.code == 1012
        assert await gateway.wait_stopped() == 0


async def test_a_gateway_without_clients_is_gone_at_once() -> None:
    async with running() as (gateway, _):
        with within(1):
            assert await gateway.stop() == 0
        with pytest.raises(IndexError):
            await gateway.connect()


@pytest.mark.parametrize("how", ["reads nothing", "never answers"])
async def test_nobody_can_hold_it_up_for_longer_than_drain_ms(how: str) -> None:
    async with running(drain_ms=300) as (gateway, sources), connect(gateway) as client:
        await client.subscribe("a")
        if how == "reads nothing":
            for _ in range(40):
                await sources["a"].publish([b"x" * 5000] * 100)
            (connection,) = gateway.gateway.connections
            assert connection.writer.full
        begun = trio.current_time()
        assert await gateway.stop() == 0
        assert 0.29 < trio.current_time() - begun < 5


async def test_a_second_signal_ends_it_at_once() -> None:
    async with running() as (gateway, _), connect(gateway) as client:
        await client.subscribe("a")
        gateway.send_signal(signal.SIGTERM)
        client.answers_close = False
        assert (await last_words(client))[1].code == 1012
        begun = trio.current_time()
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.wait_stopped() == 128 + signal.SIGTERM
        assert trio.current_time() - begun < 5


async def test_idle_http_connections_are_closed() -> None:
    async with running() as (gateway, _):
        stream = await gateway.connect()
        async with stream:
            client = Client(stream)
            status, _, _ = await client.request(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status == 200
            gateway.send_signal(signal.SIGTERM)
            assert await stream.receive_some() == b""
        assert await gateway.wait_stopped() == 0


async def test_who_knocks_at_that_very_moment_does_no_harm() -> None:
    for _ in range(10):
        async with running() as (gateway, _), AsyncExitStack() as stack:
            host, _, port = gateway.address.rpartition(":")
            for _ in range(5):  # they are in the queue of the port, and not accepted yet
                stack.enter_context(socket.create_connection((host, int(port))))
            assert await gateway.stop() == 0


class SlowDoor:
    """Lets nobody in before the test says so. Its hook runs in a thread."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.open = trio.Event()
        self.token = trio.lowlevel.current_trio_token()

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        trio.from_thread.run_sync(self.asked.set, trio_token=self.token)
        trio.from_thread.run(self.open.wait, trio_token=self.token)
        return Identity("late")


async def test_who_is_still_at_the_door_is_sent_away() -> None:
    listener = SlowDoor()
    async with running(plugins={"door": listener}) as (gateway, _):
        stream = await gateway.connect()
        async with stream, trio.open_nursery() as nursery:

            @nursery.start_soon
            async def knock() -> None:
                status, headers, _ = await Client(stream).request(upgrade())
                assert status == 503
                assert "retry-after" in headers

            await listener.asked.wait()
            # Somebody inside, who keeps the gateway waiting.
            gateway.gateway.draining = True
            listener.open.set()
        assert gateway.listener.rejected == {"draining": 1}


async def test_a_client_that_leaves_meanwhile_is_not_waited_for() -> None:
    async with running() as (gateway, _), connect(gateway) as client, connect(gateway) as other:
        await client.subscribe("a")
        await other.subscribe("a")
        gateway.send_signal(signal.SIGTERM)
        await client.stream.aclose()
        await last_words(other)
        assert await gateway.wait_stopped() == 0


async def test_a_client_that_said_goodbye_first_hears_no_other() -> None:
    async with running() as (gateway, _), connect(gateway) as client:
        await client.subscribe("a")
        await client.send(frame(CLOSE, b"\x03\xe8") + command("SUBSCRIBE", "a"))
        gateway.send_signal(signal.SIGTERM)
        _, over = await last_words(client)
        assert over.code in (1000, 1012)
        assert await gateway.wait_stopped() == 0


# --- the process ----------------------------------------------------------------------------------


@asynccontextmanager
async def process(
    folder: Path, more: str = "", environ: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[trio.Process, int]]:
    """A gateway in a process of its own, and its port."""
    file = folder / "kiwi.yml"
    file.write_text(
        "server: {address: '127.0.0.1:0', admin_address: null, drain_ms: 60000}\n"
        "logging: {format: json}\n"
        f"{more}"
        "sources: [{type: counter, id: a, min: 0, interval_ms: 10}]\n"
    )
    run = [sys.executable, "-m", "kiwi_gw", "run", "--config", str(file)]
    server = await trio.lowlevel.open_process(run, stderr=-1, env={**os.environ, **(environ or {})})
    try:
        port = 0
        log = b""
        assert server.stderr is not None
        with trio.fail_after(20):
            while not port:
                log += await server.stderr.receive_some()
                for line in log.splitlines():
                    if b'"gateway listens"' in line and line.endswith(b"}"):
                        port = int(json.loads(line)["addresses"][0].rpartition(":")[2])
        yield server, port
    finally:
        if server.poll() is None:
            server.kill()
        await server.wait()
        if server.stderr is not None:
            await server.stderr.aclose()


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_exits_with_0(number: int, tmp_path: Path) -> None:
    async with process(tmp_path) as (server, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            client = Client(stream)
            await client.handshake()
            await client.subscribe("a")
            server.send_signal(number)
            with trio.fail_after(20):
                told, over = await last_words(client)
                assert told[-1]["data"]["type"] == "DRAINING"  # type: ignore[index]
                assert over.code == 1012
                assert await server.wait() == 0


@pytest.mark.integration
async def test_the_process_exits_at_once_with_a_second_signal(tmp_path: Path) -> None:
    async with process(tmp_path) as (server, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            client = Client(stream, answers_close=False)
            await client.handshake()
            await client.subscribe("a")
            server.send_signal(signal.SIGTERM)
            with trio.fail_after(20):
                assert (await last_words(client))[1].code == 1012
                server.send_signal(signal.SIGINT)
                assert await server.wait() == 128 + signal.SIGINT


STUBBORN = """
from contextlib import asynccontextmanager
import sys, trio
from kiwi_gw.api import Batch, Field, FieldEncoding, Section, EventSchema, SourceType, hookimpl
from typing import Literal

class Settings(Section):
    type: Literal["stubborn"]

class Stubborn:
    async def run(self, out, start):
        await out.ready({0: 0})
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()

@hookimpl
def source_types():
    shape = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID),))
    return [SourceType("stubborn", Settings, lambda settings, context: Stubborn(), shape)]

plugin = sys.modules[__name__]
"""


@pytest.mark.integration
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
async def test_a_source_that_does_not_let_itself_be_stopped(signals: list[int], tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    more = "plugins: ['stubborn:plugin']\nx-more: &more {type: stubborn, id: s}\n"
    environ = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    async with process(tmp_path, more, environ) as (server, port):
        file = tmp_path / "kiwi.yml"
        file.write_text(file.read_text().replace("sources: [", "sources: [*more, "))
        assert server.stderr is not None
        log = b""
        with trio.fail_after(20):
            while b'"configuration applied"' not in log:
                log += await server.stderr.receive_some()
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            client = Client(stream)
            await client.handshake()
            await client.subscribe("s")
            for number in signals:
                server.send_signal(number)
                if number == signals[0]:
                    with trio.fail_after(20):
                        assert (await last_words(client))[1].code == 1012
            with trio.fail_after(20):
                code = await server.wait()
        # With one signal the clean-up gets its time; with a second it gets none.
        assert code in ((1,) if len(signals) == 1 else (1, 128 + signal.SIGINT))
