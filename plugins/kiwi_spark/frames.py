"""Messages as frames on a stream socket, free of I/O: what the protocols between gateway and Spark share.

A frame is

    length (4 bytes, big-endian, of what follows) | kind (1 byte) | body

where the body is the JSON of the message, but for one kind of each protocol, whose bytes are sent as they
are.

Both processes import this module; it imports neither Trio nor PySpark.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one frame, of any kind."""

_HEAD = struct.Struct(">IB")
_encode = msgspec.json.Encoder().encode


class WireError(Exception):
    """What came is not this protocol: the connection cannot be used any further."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Frames:
    """The frames of one protocol.

    kinds: of its messages, numbered in this order from 1. raw: the one whose single member is bytes, which
    are the body.
    """

    def __init__(self, *kinds: type[Message], raw: type[Message]) -> None:
        self._numbers = {kind: number for number, kind in enumerate(kinds, 1)}
        self._kinds = {number: kind for kind, number in self._numbers.items()}
        self._decoders = {number: msgspec.json.Decoder(kind) for number, kind in self._kinds.items()}
        self._raw = raw
        (self._member,) = raw.__struct_fields__

    def encode(self, message: Message) -> bytes:
        """One frame. WireError if it is too large."""
        kind = type(message)
        body: bytes = getattr(message, self._member) if kind is self._raw else _encode(message)
        if len(body) + 1 > MAX_MESSAGE:
            raise WireError(f"{kind.__name__} of {len(body)} bytes is larger than {MAX_MESSAGE}")
        return _HEAD.pack(len(body) + 1, self._numbers[kind]) + body

    def decode(self, number: int, body: bytes) -> Message:
        """The message of a frame. WireError for what is none."""
        kind = self._kinds.get(number)
        if kind is None:
            raise WireError(f"a frame of the unknown kind {number}")
        if kind is self._raw:
            member: dict[str, Any] = {self._member: body}
            return kind(**member)
        try:
            return self._decoders[number].decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise WireError(f"a broken {kind.__name__}: {error}") from error


class FrameReader:
    """Cuts what comes from a socket into messages of a protocol."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Message]:
        """The messages that are complete now, in order. WireError for what is none: read no further then."""
        buffer = self._buffer
        buffer += data
        found: list[Message] = []
        at = 0
        while len(buffer) - at >= _HEAD.size:
            size, number = _HEAD.unpack_from(buffer, at)
            if not 1 <= size <= MAX_MESSAGE:
                raise WireError(f"a frame of {size} bytes")
            end = at + 4 + size
            if len(buffer) < end:
                break
            found.append(self._frames.decode(number, bytes(memoryview(buffer)[at + _HEAD.size : end])))
            at = end
        del buffer[:at]
        return found
