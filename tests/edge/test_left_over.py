"""A connection that is over leaves nothing that only a collection of garbage would find.

What is old is as good as never looked at for that (`kiwi_gw.app`): everybody would wait.
"""

from __future__ import annotations

import gc
import json
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from tests.edge.bench import Bench, running
from tests.edge.wire import TEXT, Client, command, connect, frame

pytestmark = pytest.mark.usefixtures("no_tracebacks")


def topic(text: str) -> bytes:
    return frame(TEXT, json.dumps({"type": "subscribe", "topic": text}).encode())


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What a collection finds is put here, and nothing is collected before."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def come_and_go(
    bench: Bench, path: str, messages: list[bytes], tls: ssl.SSLContext | None = None
) -> None:
    async with connect(bench.gateway, path, tls=tls) as client:
        for message in messages:
            await client.send(message)
            await client.message()
    if tls is not None:
        vars(client.stream).clear()  # the client's stream, Trio's, is a cycle by itself
    while bench.gateway.gateway.connections:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("path", "messages"),
    [
        ("/", []),
        ("/", [command("SUBSCRIBE", "a"), command("SUBSCRIBE", "b", mode="pull")]),
        ("/", [command("SUBSCRIBE", "a", where="offset > 5"), command("UNSUBSCRIBE", "a")]),
        ("/", [command("SUBSCRIBE", "a", select="offset AS x", where="offset > 5")]),
        ("/events", [topic("**")]),
        (
            "/events",
            [topic("**?where data.a > 1")],
        ),
    ],
)
async def test_a_connection_leaves_no_cycle(garbage: list[object], path: str, messages: list[bytes]) -> None:
    async with running() as bench:
        await nothing_left(garbage, partial(come_and_go, bench, path, messages))


async def test_a_connection_under_tls_leaves_no_cycle(garbage: list[object], tmp_path: Path) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("gateway.test")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    (tmp_path / "key.pem").write_bytes(cert.private_key_pem.bytes())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    async with running(server={"tls": tls}) as bench:
        messages = [command("SUBSCRIBE", "a")]
        await nothing_left(garbage, partial(come_and_go, bench, "/", messages, trusting))


@pytest.mark.parametrize("target", ["/healthz", "/nowhere"])
async def test_a_request_leaves_no_cycle(garbage: list[object], target: str) -> None:
    async with running() as bench:
        await nothing_left(garbage, partial(ask_and_go, bench, target))


async def ask_and_go(bench: Bench, target: str) -> None:
    async with await bench.gateway.connect() as stream:
        await Client(stream).request(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def nothing_left(garbage: list[object], once: Callable[[], Awaitable[None]]) -> None:
    """Do it a few times, and look at what only a collection finds."""
    await once()  # what is made once, is
    await settled()
    gc.collect()
    garbage.clear()
    for _ in range(3):
        await once()
    await settled()
    gc.collect()
    left = Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in garbage)
    assert not left


async def settled() -> None:
    for _ in range(10):
        await trio.lowlevel.checkpoint()
