"""How far a subscription has come in one partition: the first message that is not acknowledged, and what is
acknowledged above it.

Kafka keeps it as a committed offset and the text beside that: `1` and, in base64, a checksum and two numbers
of each range, how far it begins behind the one before and how long it is (varints, both less one). The
checksum is of the offset, too: where somebody moves the offset and keeps the text (MirrorMaker does, for the
offsets of another cluster), the ranges would be of other messages.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import Final

from kiwi_gw.dialects.pulsar.varints import read_varint, varint

MOST_TEXT: Final = 4_000
"""Bytes of the text. Brokers take 4,096 if nobody has set it otherwise."""

_VERSION: Final = "1"
_SUM_BYTES: Final = 4


class PartitionCursor:
    """position: the offset of the first message that is not acknowledged."""

    __slots__ = ("_firsts", "_stops", "position")

    def __init__(self, position: int, text: str = "") -> None:
        """Begin where a commit says. A text that cannot be read says nothing."""
        self.position = position
        self._firsts: list[int] = []  # of the ranges above, ascending
        self._stops: list[int] = []
        for first, stop in _read(position, text):
            self.acknowledge(first, stop)

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """Return what is acknowledged above the position: the first and the last offset of each range."""
        return [(first, stop - 1) for first, stop in zip(self._firsts, self._stops, strict=True)]

    @property
    def text(self) -> str:
        """Return the ranges as text: the lowest ones, where it would be too long."""
        return _write(self.position, self._firsts, self._stops)

    def has(self, offset: int) -> bool:
        """Say whether it is acknowledged."""
        index = bisect_right(self._firsts, offset)
        return offset < self.position or (index > 0 and offset < self._stops[index - 1])

    def acknowledge(self, first: int, stop: int) -> bool:
        """Acknowledge the offsets from `first` up to `stop`. Returns whether any of them was not."""
        first = max(first, self.position)
        if first >= stop:
            return False
        begin, end = bisect_left(self._stops, first), bisect_right(self._firsts, stop)
        if end - begin == 1 and self._firsts[begin] <= first and stop <= self._stops[begin]:
            return False
        if begin < end:
            first, stop = min(first, self._firsts[begin]), max(stop, self._stops[end - 1])
        if first == self.position:
            self.position = stop
            del self._firsts[begin:end], self._stops[begin:end]
        else:
            self._firsts[begin:end], self._stops[begin:end] = [first], [stop]
        return True


def _write(position: int, firsts: Sequence[int], stops: Sequence[int]) -> str:
    if not firsts:
        return ""
    data = bytearray()
    most = (MOST_TEXT - len(_VERSION)) // 4 * 3 - _SUM_BYTES
    before = position
    for first, stop in zip(firsts, stops, strict=True):
        pair = bytes(chain(varint(first - before - 1), varint(stop - first - 1)))
        if len(data) + len(pair) > most:
            break
        data += pair
        before = stop
    return _VERSION + base64.b64encode(_sum(position, data) + data).decode()


def _read(position: int, text: str) -> list[tuple[int, int]]:
    if not text.startswith(_VERSION):
        return []
    try:
        data = base64.b64decode(text[len(_VERSION) :], validate=True)
    except (ValueError, binascii.Error):
        return []
    if data[:_SUM_BYTES] != _sum(position, data[_SUM_BYTES:]):
        return []
    found, before, at = [], position, _SUM_BYTES
    try:
        while at < len(data):
            gap, at = read_varint(data, at)
            length, at = read_varint(data, at)
            first = before + gap + 1
            before = first + length + 1
            found.append((first, before))
    except (IndexError, ValueError):
        return []
    return found


def _sum(position: int, data: bytes | bytearray) -> bytes:
    return zlib.crc32(data, zlib.crc32(b"%d" % position)).to_bytes(_SUM_BYTES)
