"""WebSocket as a load client speaks it: just enough, and fast (RFC 6455)."""

from __future__ import annotations

import base64
import json
import os
import struct
from functools import lru_cache

CLOSE, PING, PONG = 0x8, 0x9, 0xA
_FIN_TEXT = 0x81


def upgrade(host: str, port: int, path: str = "/") -> bytes:
    """Return the request that opens a connection."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()


def masked(message: object) -> bytes:
    """Return a client's text frame with a message as JSON. (The mask is zero, so that it costs nothing.)"""
    payload = json.dumps(message, separators=(",", ":")).encode()
    if len(payload) > 125:
        return struct.pack("!BBH4x", _FIN_TEXT, 0x80 | 126, len(payload)) + payload
    return struct.pack("!BB4x", _FIN_TEXT, 0x80 | len(payload)) + payload


def masked_close() -> bytes:
    return struct.pack("!BB4x", 0x80 | CLOSE, 0x80)


def masked_pong(payload: bytes) -> bytes:
    return struct.pack("!BB4x", 0x80 | PONG, 0x80 | len(payload)) + payload


def bounds(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return where the payload of the frame at `at` begins and ends; None if it is not complete."""
    have = len(data) - at
    if have < 2:
        return None
    length = data[at + 1]
    if length < 126:
        begin = at + 2
    elif length == 126:
        if have < 4:
            return None
        length = data[at + 2] << 8 | data[at + 3]
        begin = at + 4
    else:
        if have < 10:
            return None
        length = int.from_bytes(data[at + 2 : at + 10], "big")
        begin = at + 10
    end = begin + length
    return (begin, end) if end <= len(data) else None


class Parted:
    """Part what a server sends that joins several events in a frame into frames with one each. begin: how the
    payload of such a frame begins. end: what comes behind its last event."""

    def __init__(self, begin: bytes, end: bytes) -> None:
        self._begin, self._end = begin, end
        self._rest = b""

    def feed(self, chunk: memoryview) -> bytes:
        """Take what was received. Returns the frames that are whole; those without events as they are."""
        data = self._rest + chunk
        frames: list[bytes] = []
        at = 0
        while (found := bounds(data, at)) is not None:
            begin, end = found
            if data.startswith(self._begin, begin):
                frames.append(_one_each(data[begin + len(self._begin) : data.rindex(self._end, begin, end)]))
            else:
                frames.append(data[at:end])
            at = end
        self._rest = data[at:]
        return b"".join(frames)


@lru_cache(256)
def _one_each(joined: bytes) -> bytes:
    """Frame every event of `joined`: JSON objects that hold no objects, with commas between them. (Most
    clients get the same ones together.)"""
    first, *others = joined.split(b',{"')
    return b"".join(map(_framed, [first, *[b'{"' + other for other in others]]))


def _framed(payload: bytes) -> bytes:
    if len(payload) > 125:
        return struct.pack("!BBH", _FIN_TEXT, 126, len(payload)) + payload
    return struct.pack("!BB", _FIN_TEXT, len(payload)) + payload


def cut(data: bytes, most: int) -> list[int]:
    """Return where slices of at most `most` bytes (or one frame) of a run of whole frames end."""
    ends: list[int] = []
    begin = end = 0
    while (found := bounds(data, end)) is not None:
        if found[1] - begin > most and end > begin:
            ends.append(end)
            begin = end
        end = found[1]
    if end != len(data):
        raise ValueError("the data does not end with a whole frame")
    if end > begin:
        ends.append(end)
    return ends
