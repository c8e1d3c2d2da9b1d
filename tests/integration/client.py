"""One client in the test's own loop, for tests that decide when it reads and what it says."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.integration.recording import Recording
from tests.integration.wire import CLOSE, PING, PONG, TEXT, command, frame, frames, shake_hands
from tests.offsets_of import offsets_of

Message = dict[str, Any]


class Client:
    """recording: every event and notice of its one subscription. others: all other messages, in order.

    standings: how many events had come, and the positions that a POSITIONS notice told then. troubles: what
    the source was cut off by, empty for that it is over. pongs: payloads. closed: payload of the server's
    close frame. opened: data of the last SUBSCRIBE_OK that `subscribe` has had.
    """

    def __init__(self, stream: trio.abc.Stream, source: str) -> None:
        self.recording = Recording(source)
        self.others: list[Message] = []
        self.results: list[Message] = []
        self.standings: list[tuple[int, dict[str, int]]] = []
        self.troubles: list[str] = []
        self.pongs: list[bytes] = []
        self.closed: bytes | None = None
        self.opened: Message = {}
        self.gone = False
        self._stream = stream
        self._source = source
        self._buffer = bytearray()

    async def say(self, kind: str, **more: object) -> None:
        await self._stream.send_all(command(kind, self._source, **more))

    async def ping(self, payload: bytes) -> None:
        await self._stream.send_all(frame(PING, payload))

    async def subscribe(self, mode: str = "push", **more: object) -> Message:
        """Returns the data of the SUBSCRIBE_OK."""
        await self.say("SUBSCRIBE", mode=mode, **more)
        self.opened = (await self.reply("SUBSCRIBE_OK"))["data"]
        return self.opened

    async def reply(self, kind: str) -> Message:
        """Read until the next message of this type that is neither an event nor a notice."""
        count = len(self.others)
        while True:
            for message in self.others[count:]:
                if message["type"] == kind:
                    return message
            count = len(self.others)
            if not await self.read():
                raise AssertionError(f"the connection ended before a {kind}")

    async def events(self, count: int) -> None:
        """Read until so many more events have come."""
        until = self.recording.events + count
        while self.recording.events < until:
            if not await self.read():
                raise AssertionError("the connection ended before enough events")

    async def have(self, total: int) -> None:
        """Read until so many events have come in all, also those that came with a SUBSCRIBE_OK."""
        await self.events(max(0, total - self.recording.events))

    async def until_closed(self) -> Message:
        """Read until SUBSCRIPTION_CLOSED; returns its data."""
        while not self.recording.closed:
            if not await self.read():
                raise AssertionError("the connection ended before SUBSCRIPTION_CLOSED")
        data: Message = self.recording.items[-1][1]
        return data

    async def read(self, max_bytes: int = 65_536) -> bool:
        """Take at most so many bytes of what is there, or wait for some. False: the connection is over."""
        data = await self._stream.receive_some(max_bytes)
        if not data:
            self.gone = True
            return False
        self.recording.arrived()
        self._buffer += data
        for opcode, payload in frames(self._buffer):
            self._note(opcode, payload)
        return True

    async def read_all(self) -> None:
        """Read until the connection is over."""
        while await self.read():
            pass

    async def leave(self) -> None:
        """Close frame, and read until the server has closed."""
        await self._stream.send_all(frame(CLOSE, b"\x03\xe8"))
        await self.read_all()

    def _note(self, opcode: int, payload: bytes) -> None:
        if opcode == PONG:
            self.pongs.append(payload)
        elif opcode == PING:
            pass  # silence is for tests of silence; those that answer read on soon enough
        elif opcode == CLOSE:
            self.closed = payload
        elif opcode == TEXT:
            message = json.loads(payload)
            if message["type"] == "RESULT":
                data = message["data"]
                self.results.append(data)
                if "partition" in data:
                    self.recording.run(data["partition"], data["offset"], data["offset"])
                elif "batch" in data:
                    self.recording.run(data["batch"], data["row"], data["row"])
                else:
                    self.recording.run(0, data["count"], data["count"])
            elif message["type"] == "NOTICE" and message["data"].get("sourceId") == self._source:
                if message["data"]["type"] == "POSITIONS":
                    self.standings.append((self.recording.events, offsets_of(message["data"]["positions"])))
                elif message["data"]["type"] in ("SOURCE_DEGRADED", "SOURCE_RESTORED"):
                    self.troubles.append(message["data"].get("message", ""))
                else:
                    self.recording.notice(message["data"])
            else:
                self.others.append(message)
        else:
            self.recording.faults.append(f"frame {opcode:x}")


@asynccontextmanager
async def client(
    address: str, source: str, *, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Client]:
    """A connected client that speaks to one source. receive_buffer: bytes that its kernel holds for it."""
    host, _, port = address.rpartition(":")
    raw = trio.socket.socket()
    if receive_buffer is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)  # before it connects
    await raw.connect((host, int(port)))
    stream: trio.abc.Stream = trio.SocketStream(raw)
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname="localhost", https_compatible=True)
    async with stream:
        await shake_hands(stream)
        yield Client(stream, source)
