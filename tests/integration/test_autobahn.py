"""The Autobahn cases (groups 1 to 7 and 10) on the gateway's own edge, driven by kosoku.

An echo dialect takes the place of Kiwi. The cases run a second time while a source's events are written to
the same connections: a proxy in between takes the events out again, so that the cases see only what is
theirs, and checks that they are whole and in order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio

from kiwi_gw.api import HeadCredential, Section, hookimpl
from kiwi_gw.core.commands import Command, Open, Reply, Session
from kiwi_gw.core.notices import Notice, SourceAppeared
from kiwi_gw.dialect_api import DialectType, Document, SessionLimits, WebSocketRoute
from kiwi_gw.dialect_api.frames import BINARY, TEXT, header
from kiwi_gw.model import Batch, Encoded, Identity, SourceInfo, WireFormat
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import FrameReader

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CASES = [f"{group}.*" for group in (1, 2, 3, 4, 5, 6, 7, 10)]
COUNT = 247
DRIVER = """
import asyncio, json, os, sys
import kosoku
try:
    results = asyncio.run(kosoku.run_fuzzingclient(sys.argv[1], sys.argv[2:], concurrency=4))
except kosoku.FailureError as failure:
    results = list(failure.results)
print(json.dumps([
    [item.case_id, item.behavior.value, item.behavior_close.value, str(item.result), str(item.result_close)]
    for item in results
]), flush=True)
os._exit(0)  # its threads now and then abort the interpreter on its way out
"""
CONFIG = json.dumps(
    {
        "plugins": ["scripted", "echo"],
        "server": {"limits": {"max_fragments": 100_000, "close_timeout_ms": 1_000}},
        "sources": [{"type": "scripted", "id": "busy"}],
    }
)
MAX = 16 * 1024 * 1024
MARK = b"\x00an event\x00"


def events(batch: Batch) -> Encoded:
    """Binary frames that no case sends: the mark, the offset, and padding of some length."""
    frames = []
    for offset in batch.offsets:
        payload = MARK + b"%012d" % offset + bytes(offset * 37 % 400)
        frames.append(header(len(payload), BINARY) + payload)
    ends: list[int] = []
    for frame in frames:
        ends.append((ends[-1] if ends else 0) + len(frame))
    return Encoded(b"".join(frames), ends)


EVENTS = WireFormat("echo events", events)


class EchoSession:
    """Sends back what it gets. busy: it also subscribes to every source."""

    def __init__(self, busy: bool) -> None:
        self._busy = busy

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        data = message.encode() if isinstance(message, str) else bytes(message)
        opcode = TEXT if isinstance(message, str) else BINARY
        return [Reply(header(len(data), opcode) + data)]

    def notice(self, notice: Notice) -> Iterable[Command]:
        if self._busy and isinstance(notice, SourceAppeared):
            return [Open(notice.source.id, notice.source.id, self._wire)]
        return []

    def _wire(self, source: SourceInfo) -> WireFormat:
        return EVENTS


class EchoSettings(Section):
    """Nothing."""


class EchoDialect:
    routes = (WebSocketRoute("/echo", max_message_bytes=MAX), WebSocketRoute("/busy", max_message_bytes=MAX))
    documents: Mapping[str, Document] = {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        return EchoSession(busy=head.path == "/busy")


class EchoPlugin:
    @hookimpl
    def dialect_types(self) -> Sequence[DialectType[EchoSettings]]:
        return [DialectType("echo", EchoSettings, lambda settings, context: EchoDialect())]


@asynccontextmanager
async def running() -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    sources = ScriptedSources()
    async with open_gateway(CONFIG, plugins={"scripted": sources, "echo": EchoPlugin()}) as gateway:
        yield gateway, sources


async def drive(url: str) -> None:
    """Run all cases; AssertionError with those that failed."""

    # In a process of its own: imported, kosoku puts a pkg_resources of its own before everybody's.
    run = [sys.executable, "-c", DRIVER, url, *CASES]
    done = await trio.run_process(run, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    results: list[list[str]] = json.loads(done.stdout)
    failed = [
        item
        for item in results
        if item[1] not in ("OK", "NON-STRICT", "INFORMATIONAL") or item[2] not in ("OK", "INFORMATIONAL")
    ]
    assert failed == []
    assert len(results) == COUNT
    lax = [item[0] for item in results if item[1] == "NON-STRICT"]
    assert len(lax) <= 11, lax


async def test_no_case_fails() -> None:
    async with running() as (gateway, _):
        await drive(f"ws://{gateway.address}/echo")


class Proxy:
    """Stands between a client and the gateway, and takes the events out.

    taken: how many, of all connections together. between: how many other frames there were.
    """

    def __init__(self, gateway: GatewayUnderTest) -> None:
        self._gateway = gateway
        self.taken = 0
        self.between = 0

    async def serve(self, client: trio.SocketStream) -> None:
        async with client, await self._gateway.connect() as server, trio.open_nursery() as nursery:
            nursery.start_soon(self._up, client, server)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._down(server, client)
            nursery.cancel_scope.cancel()

    async def _up(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        # If one of them has gone, the other direction ends as well.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in client:
                await server.send_all(data)
            await server.send_eof()

    async def _down(self, server: trio.SocketStream, client: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = bytes(await server.receive_some())
            if not piece:
                return
            head += piece
        top, end, rest = head.partition(b"\r\n\r\n")
        await client.send_all(top + end)
        reader = FrameReader()
        offsets: list[int] = []
        await self._pass_on(reader, rest, offsets, client)
        async for data in server:
            await self._pass_on(reader, data, offsets, client)
        if offsets:
            assert offsets == [*range(offsets[0], offsets[-1] + 1)]
        assert reader.whole, "the gateway left a frame unfinished"

    async def _pass_on(
        self, reader: FrameReader, data: bytes | bytearray, offsets: list[int], client: trio.SocketStream
    ) -> None:
        own = b""
        for frame in reader.feed(data):
            if frame.opcode == BINARY and frame.payload.startswith(MARK):
                offset = int(frame.payload[len(MARK) : len(MARK) + 12])
                assert frame.payload[len(MARK) + 12 :] == bytes(offset * 37 % 400)
                offsets.append(offset)
                self.taken += 1
            else:
                self.between += 1
                own += header(len(frame.payload), frame.opcode) + frame.payload
        if own:
            await client.send_all(own)


async def test_no_case_fails_while_events_are_written_to_the_same_connections() -> None:
    async with running() as (gateway, sources), trio.open_nursery() as nursery:
        proxy = Proxy(gateway)
        (listener,) = await nursery.start(
            partial(trio.serve_tcp, proxy.serve, 0, host="127.0.0.1", handler_nursery=nursery)
        )

        async def produce() -> None:
            while True:
                await sources["busy"].publish([b"x"] * 5)

        nursery.start_soon(produce)
        host, port = listener.socket.getsockname()
        await drive(f"ws://{host}:{port}/busy")
        # Several events between any two frames of the cases' own.
        assert proxy.taken > 10 * proxy.between > 10 * COUNT
        nursery.cancel_scope.cancel()
