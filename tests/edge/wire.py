"""A WebSocket client that writes the bytes it is told to and is strict about those it reads (RFC 6455)."""

from __future__ import annotations

import base64
import json
import os
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from kiwi_gw.testing import GatewayUnderTest

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x17\x2a\x99\x04"


class Over(Exception):  # noqa: N818
    """The gateway has ended the connection. `code`: of its close frame, None without one."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code} {reason}")


@dataclass(frozen=True)
class Frame:
    opcode: int
    payload: bytes


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes | None = MASK) -> bytes:
    """One frame as a client writes it."""
    size = len(payload)
    bit = 0x80 if mask is not None else 0
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 65_536:
        head += struct.pack("!BH", bit | 126, size)
    else:
        head += struct.pack("!BQ", bit | 127, size)
    if mask is None:
        return head + payload
    key = (mask * (size // 4 + 1))[:size]
    masked = (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
    return head + mask + masked


def command(kind: str, source_id: str, **members: object) -> bytes:
    """The frame of one Kiwi command."""
    return frame(TEXT, json.dumps({"type": kind, "sourceId": source_id, **members}).encode())


class FrameReader:
    """Cuts what a server sends into frames. AssertionError for bytes that a server may not send."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._closed = False

    def feed(self, data: bytes | bytearray) -> list[Frame]:
        self._buffer += data
        frames = []
        at = 0
        while (found := self._one(at)) is not None:
            item, at = found
            assert not self._closed, f"{item} after a close frame"
            self._closed = item.opcode == CLOSE
            frames.append(item)
        del self._buffer[:at]
        return frames

    @property
    def whole(self) -> bool:
        """Whether no frame has begun that is not complete."""
        return not self._buffer

    def _one(self, at: int) -> tuple[Frame, int] | None:
        buffer = self._buffer
        if len(buffer) < at + 2:
            return None
        first, size = buffer[at], buffer[at + 1]
        assert first & 0x80, "the gateway never fragments"
        assert not first & 0x70, f"reserved bits in {first:#x}"
        opcode = first & 0x0F
        assert opcode in (TEXT, BINARY, CLOSE, PING, PONG), f"opcode {opcode}"
        assert size < 126 or opcode < CLOSE, "a long control frame"
        head = at + 2
        if size >= 126:
            assert size in (126, 127), "the gateway does not mask"
            width = 2 if size == 126 else 8
            if len(buffer) < head + width:
                return None
            size = int.from_bytes(buffer[head : head + width], "big")
            assert size >= (126 if width == 2 else 65_536), "a length in a form that is too long"
            head += width
        if len(buffer) < head + size:
            return None
        return Frame(opcode, bytes(buffer[head : head + size])), head + size


@dataclass
class Client:
    """One connection. It answers pings unless `quiet`, and the close frame that it gets."""

    stream: trio.abc.Stream
    quiet: bool = False
    read_bytes: int = 64 * 1024
    answers_close: bool = True
    pings: int = 0
    pongs: list[bytes] = field(default_factory=list)
    _reader: FrameReader = field(default_factory=FrameReader)
    _frames: list[Frame] = field(default_factory=list)
    _sending: trio.Lock = field(default_factory=trio.Lock)

    async def handshake(
        self, path: str = "/", headers: Sequence[tuple[str, str]] = (), early: bytes = b""
    ) -> None:
        """early: sent together with the request."""
        status, answer, rest = await self.request(upgrade(path, headers) + early)
        assert status == 101, (status, answer, rest)
        self._frames += self._reader.feed(rest)

    async def request(self, head: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request head; the answer's status, headers and what came behind them."""
        await self.stream.send_all(head)
        data = b""
        while b"\r\n\r\n" not in data:
            more = await self.stream.receive_some(4096)
            if not more:
                raise Over(None)
            data += more
        top, _, rest = data.partition(b"\r\n\r\n")
        lines = top.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:]]
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}, rest

    async def send(self, data: bytes) -> None:
        """Write bytes: `frame(...)`, `command(...)` or anything else."""
        async with self._sending:
            await self.stream.send_all(data)

    async def frame(self) -> Frame:
        """The next frame that is no ping, pong or close. Raises Over at the end of the connection."""
        while True:
            while not self._frames:
                try:
                    data = await self.stream.receive_some(self.read_bytes)
                except trio.BrokenResourceError:
                    data = b""
                if not data:
                    raise Over(None)
                self._frames = self._reader.feed(data)
            item = self._frames.pop(0)
            if item.opcode == PING:
                self.pings += 1
                if not self.quiet:
                    await self.send(frame(PONG, item.payload))
            elif item.opcode == PONG:
                self.pongs.append(item.payload)
            elif item.opcode == CLOSE:
                if self.answers_close:
                    await self._answer_close(item)
                code = struct.unpack("!H", item.payload[:2])[0] if item.payload else 1005
                raise Over(code, item.payload[2:].decode())
            else:
                return item

    async def _answer_close(self, item: Frame) -> None:
        try:
            await self.send(frame(CLOSE, item.payload[:2]))
            while await self.stream.receive_some(4096):
                raise AssertionError("bytes after a close frame")
        except trio.BrokenResourceError:
            pass  # it did not wait for our answer

    async def message(self) -> dict[str, Any]:
        """The next message, which must be JSON text."""
        item = await self.frame()
        assert item.opcode == TEXT, item
        message: dict[str, Any] = json.loads(item.payload)
        return message

    async def ask(self, kind: str, source_id: str, **members: object) -> dict[str, Any]:
        """Send a command; the next message, which should be its reply."""
        await self.send(command(kind, source_id, **members))
        return await self.message()

    async def subscribe(self, source_id: str, **members: object) -> dict[str, Any]:
        reply = await self.ask("SUBSCRIBE", source_id, **members)
        assert reply["type"] == "SUBSCRIBE_OK", reply
        data: dict[str, Any] = reply["data"]
        return data

    async def over(self) -> Over:
        """Read on to the end of the connection, whatever comes before."""
        while True:
            try:
                await self.frame()
            except Over as over:
                return over


def upgrade(path: str = "/", headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """The request of a handshake."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@asynccontextmanager
async def connect(
    gateway: GatewayUnderTest,
    path: str = "/",
    headers: Sequence[tuple[str, str]] = (),
    *,
    receive_buffer: int | None = None,
    tls: ssl.SSLContext | None = None,
    early: bytes = b"",
) -> AsyncIterator[Client]:
    """A connected client; its socket is closed at the end, without a goodbye.

    receive_buffer: what its kernel holds for it, so that not reading shows soon. tls: for gateway.test.
    """
    sock = await _socket(gateway.address, receive_buffer)
    with sock:
        stream = trio.SocketStream(sock)
        if tls is not None:
            secure = trio.SSLStream(stream, tls, server_hostname="gateway.test")
            await secure.do_handshake()
            client = Client(secure)
        else:
            client = Client(stream)
        await client.handshake(path, headers, early)
        yield client


async def _socket(address: str, receive_buffer: int | None) -> trio.socket.SocketType:
    if address.startswith("unix:"):
        family = trio.socket.AF_UNIX
        target: str | tuple[str, int] = address.removeprefix("unix:")
    else:
        host, _, port = address.rpartition(":")
        family = trio.socket.AF_INET6 if host.startswith("[") else trio.socket.AF_INET
        target = (host.strip("[]"), int(port))
    sock = trio.socket.socket(family)
    if receive_buffer is not None:
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
    try:
        await sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return sock


_LAST_CHUNK = b"0\r\n\r\n"


async def asked(
    gateway: GatewayUnderTest,
    method: str,
    path: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
) -> tuple[int, dict[str, str], bytes]:
    """Ask once, on a connection of its own; the answer's status, headers and whole body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    async with await gateway.connect() as stream:
        status, said, found = await Client(stream).request("\r\n".join([*lines, "", ""]).encode() + body)
        chunked = said.get("transfer-encoding") == "chunked" and method != "HEAD"
        length = 0 if method == "HEAD" else int(said.get("content-length", "0"))
        while len(found) < length or (chunked and not found.endswith(_LAST_CHUNK)):
            found += await stream.receive_some()
    return status, said, joined_chunks(found) if chunked else found


def joined_chunks(data: bytes) -> bytes:
    """The body that was sent in these chunks (RFC 9112, 7.1)."""
    found, at = b"", 0
    while size := int(data[at : (end := data.index(b"\r\n", at))], 16):
        found, at = found + data[end + 2 : end + 2 + size], end + 4 + size
    return found
