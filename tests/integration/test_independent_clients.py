"""Clients that have nothing to do with this project subscribe and pull: all of them get the same."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trio
import trio_websocket
import websockets.sync.client

from kiwi_gw.testing import open_gateway
from tests.edge.wire import Client
from tests.integration.test_node import node

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
SOURCE = "ticks"
WITHIN = 60
SUBSCRIBE = {"type": "SUBSCRIBE", "sourceId": SOURCE, "mode": "pull"}
REQUEST = {"type": "REQUEST", "sourceId": SOURCE, "n": 3}
UNSUBSCRIBE = {"type": "UNSUBSCRIBE", "sourceId": SOURCE}

Messages = list[dict[str, Any]]


async def with_websockets(address: str) -> Messages:
    def talk() -> Messages:
        with websockets.sync.client.connect(f"ws://{address}/") as socket:

            def ask(message: object, count: int = 1) -> Messages:
                socket.send(json.dumps(message))
                return [json.loads(socket.recv(timeout=WITHIN)) for _ in range(count)]

            return [*ask(SUBSCRIBE), *ask(REQUEST, 4), *ask(UNSUBSCRIBE)]

    return await trio.to_thread.run_sync(talk)


async def with_trio_websocket(address: str) -> Messages:
    async with trio_websocket.open_websocket_url(f"ws://{address}/kiwi") as socket:

        async def ask(message: object, count: int = 1) -> Messages:
            await socket.send_message(json.dumps(message))
            return [json.loads(await socket.get_message()) for _ in range(count)]

        return [*await ask(SUBSCRIBE), *await ask(REQUEST, 4), *await ask(UNSUBSCRIBE)]


async def with_aiohttp(address: str) -> Messages:
    async def talk() -> Messages:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"http://{address}/") as socket:

            async def ask(message: object, count: int = 1) -> Messages:
                await socket.send_json(message)
                return [await socket.receive_json(timeout=WITHIN) for _ in range(count)]

            return [*await ask(SUBSCRIBE), *await ask(REQUEST, 4), *await ask(UNSUBSCRIBE)]

    return await trio.to_thread.run_sync(lambda: asyncio.run(talk()))


async def with_node(address: str) -> Messages:
    script = (HERE / "pull_as_client.js").read_text()
    show = f"talk('ws://{address}/', '{SOURCE}').then((heard) => console.log(JSON.stringify(heard)));"
    ran = await trio.run_process([node(), "-e", script + show], capture_stdout=True)
    found: Messages = json.loads(ran.stdout)
    return found


# As hyper 1.12 writes it: the whole URL is the target.
HYPER = (
    "GET ws://{0}/ HTTP/1.1\r\nhost: {0}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)


async def with_the_bytes_of_hyper(address: str) -> Messages:
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        client = Client(stream)
        status, _, rest = await client.request(HYPER.format(address).encode())
        assert (status, rest) == (101, b"")
        heard = [await client.ask("SUBSCRIBE", SOURCE, mode="pull"), await client.ask("REQUEST", SOURCE, n=3)]
        heard += [await client.message() for _ in range(3)]
        return [*heard, await client.ask("UNSUBSCRIBE", SOURCE)]


# --- a browser -----------------------------------------------------------------------------------------


class Site:
    """A web server with one page, whose script does what the others do and sends back what it heard."""

    def __init__(self) -> None:
        self.script = ""
        self.heard: queue.Queue[Messages] = queue.Queue()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(f"<!doctype html><script>{site.script}</script>".encode())

            def do_POST(self) -> None:
                site.heard.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port


@contextmanager
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


def chromium() -> tuple[str, dict[str, str]]:
    """The browser that `make setup` has installed, else that of the PATH, and its environment."""
    locked = Path(sys.prefix) / "browser" / "chromium"
    if (locked / "chromium").exists():
        fonts = {"FONTCONFIG_PATH": str(locked), "LD_LIBRARY_PATH": str(locked / "lib")}
        return str(locked / "chromium"), {**os.environ, **fonts}
    found = shutil.which("chromium")
    assert found is not None, "there is no browser: run `make setup`, or install the package `chromium`"
    return found, dict(os.environ)


async def in_a_browser(
    page: Site, address: str, profile: Path, host: str = "127.0.0.1", script: str = ""
) -> Messages:
    """host: by which name the page is asked for, which is its origin's. script: in place of the one that
    pulls; it posts what it heard to `/`."""
    send = "fetch('/', { method: 'POST', body: JSON.stringify(heard) })"
    talk = f"talk('ws://{address}/', '{SOURCE}').then((heard) => {send});"
    page.script = script or (HERE / "pull_as_client.js").read_text() + talk
    program, environment = chromium()
    # Its own sandbox needs rights that containers do not have; the page is ours.
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [program, *flags, "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    run = partial(
        trio.run_process,
        [*command, f"http://{host}:{page.port}/"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        heard: Messages = await trio.to_thread.run_sync(page.heard.get, True, WITHIN)
        nursery.cancel_scope.cancel()
    return heard


# --- the tests -----------------------------------------------------------------------------------------


@asynccontextmanager
async def running(*origins: str) -> AsyncIterator[str]:
    """The address of a gateway with a counter. origins: of pages that may connect."""
    config = {
        "server": {"allowed_origins": list(origins)},
        "sources": [{"type": "counter", "id": SOURCE, "min": 0, "interval_ms": 20}],
    }
    async with open_gateway(json.dumps(config), address="127.0.0.1:0") as gateway:
        yield gateway.address


def assert_pulled(heard: Messages) -> None:
    kinds = [message["type"] for message in heard]
    assert kinds == ["SUBSCRIBE_OK", "REQUEST_OK", *["RESULT"] * 3, "UNSUBSCRIBE_OK"], heard
    assert heard[1]["data"] == {"sourceId": SOURCE, "n": 3, "credits": 3}
    first = heard[0]["data"]["positions"]["0"]
    results = [{"sourceId": SOURCE, "sourceType": "counter", "count": first + n} for n in range(3)]
    assert [message["data"] for message in heard[2:5]] == results


async def test_independent_clients_subscribe_and_pull(tmp_path: Path) -> None:
    clients: list[Callable[[str], Any]] = [
        *(with_websockets, with_trio_websocket, with_aiohttp, with_node, with_the_bytes_of_hyper),
    ]
    with site() as page:
        async with running(f"http://127.0.0.1:{page.port}") as address:
            for client in clients:
                assert_pulled(await client(address))
            assert_pulled(await in_a_browser(page, address, tmp_path / "listed"))
            # By another name it is a page of another origin.
            other = await in_a_browser(page, address, tmp_path / "other", "localhost")
            assert other == [{"type": "refused"}]
