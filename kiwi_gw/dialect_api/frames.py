"""WebSocket frames as a server writes them: never masked, never fragmented (RFC 6455, 5.2)."""

from __future__ import annotations

import struct

import msgspec

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA

_FIN = 0x80

_encode = msgspec.json.Encoder().encode


def header(length: int, opcode: int = TEXT) -> bytes:
    """Make the header of a whole frame whose payload has `length` bytes."""
    if length < 126:
        return bytes((_FIN | opcode, length))
    if length < 65_536:
        return struct.pack("!BBH", _FIN | opcode, 126, length)
    return struct.pack("!BBQ", _FIN | opcode, 127, length)


def text_frame(payload: bytes) -> bytes:
    """Make a text frame around UTF-8 bytes."""
    return header(len(payload)) + payload


def message_frame(message: msgspec.Struct) -> bytes:
    """Make a text frame with a message as JSON."""
    return text_frame(_encode(message))


def encodable(words: str) -> str:
    """Escape what has no UTF-8: an operating system's error may hold half a character (of a file's name)."""
    return words.encode(errors="backslashreplace").decode()


def close_frame(code: int, reason: str) -> bytes:
    """Make a close frame; the reason is cut at a character's edge to the 123 bytes that fit."""
    text = reason.encode()[:123].decode(errors="ignore").encode()
    return header(2 + len(text), CLOSE) + struct.pack("!H", code) + text
