"""The client half of WebSocket (RFC 6455) on plain bytes, independent of every library the gateway uses."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trio

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WireError(Exception):
    """The server did what the protocol does not allow."""


def handshake(host: str, path: str = "/") -> tuple[bytes, bytes]:
    """A request for the upgrade, and the answer's Sec-WebSocket-Accept."""
    key = base64.b64encode(os.urandom(16))
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n"
    )
    return request.encode(), base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324  (the RFC's)


def check_accepted(head: bytes, accept: bytes) -> None:
    """Raises WireError unless `head`, up to its empty line, accepts the handshake."""
    lines = head.split(b"\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(b":") for x in lines)}
    if b" 101 " not in lines[0] or headers.get(b"sec-websocket-accept") != accept:
        raise WireError(f"the handshake was refused: {head!r}")


async def shake_hands(stream: trio.abc.Stream) -> None:
    """Have a connection upgraded, and read no further than that. Raises WireError."""
    request, accept = handshake("localhost")
    await stream.send_all(request)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await stream.receive_some(1) or _over(head)
    check_accepted(head, accept)


def shake_hands_sync(sock: socket.socket, path: str = "/") -> None:
    """Do the same on a socket that waits."""
    request, accept = handshake("localhost", path)
    sock.sendall(request)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1) or _over(head)
    check_accepted(head, accept)


def _over(head: bytes) -> bytes:
    raise ConnectionResetError(f"closed in the handshake, behind {head!r}")


def frame(opcode: int, payload: bytes) -> bytes:
    """One whole masked frame."""
    mask = os.urandom(4)
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    repeated = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return head + mask + masked.to_bytes(size, "big")


def command(kind: str, source: str, **more: object) -> bytes:
    """The frame of a Kiwi command."""
    return frame(TEXT, json.dumps({"type": kind, "sourceId": source, **more}).encode())


def frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Takes every complete frame off the buffer: opcode and payload. Raises WireError for a bad one."""
    start = 0
    try:
        while len(buffer) - start >= 2:
            first, size = buffer[start], buffer[start + 1]
            body = start + 2
            if not first & 0x80 or first & 0x70 or size & 0x80:
                raise WireError(f"a frame begins with {bytes(buffer[start : start + 2]).hex()}")
            if size >= 126:
                width = 2 if size == 126 else 8
                if len(buffer) < body + width:
                    return
                size = int.from_bytes(buffer[body : body + width], "big")
                body += width
            if len(buffer) < body + size:
                return
            start = body + size
            yield first & 0x0F, bytes(buffer[body:start])
    finally:
        del buffer[:start]
