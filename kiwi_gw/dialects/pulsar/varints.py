"""Numbers as protobuf writes them: seven bits of each byte, the lowest first; all but the last byte have the
highest bit."""

from __future__ import annotations

from typing import Final

_MOST: Final = 1 << 64


def varint(value: int) -> list[int]:
    """Return the bytes of a number."""
    found = []
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return found


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends. Raises IndexError; ValueError for one of more
    than 64 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if value >= _MOST:
        raise ValueError("this is no number of 64 bits")
    return value, at
