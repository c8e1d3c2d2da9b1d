"""Ids of messages: base64 of Pulsar's protobuf `MessageIdData` (ledgerId 1, entryId 2, partition 3). The
ledger is the life of the topic, the entry the offset."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from kiwi_gw.dialects.pulsar.varints import read_varint, varint

_LEDGER, _ENTRY, _PARTITION = 0x08, 0x10, 0x18
_MOST_TEXT: Final = 64
_TO_STANDARD: Final = str.maketrans("-_ ", "+/+")


class MessageId(NamedTuple):
    """Say where a message is. life: of its topic, 48 bits."""

    life: int
    offset: int
    partition: int

    def __str__(self) -> str:
        data = _field(_LEDGER, self.life) + _entry(self.offset) + _field(_PARTITION, self.partition)
        return binascii.b2a_base64(data, newline=False).decode()

    @property
    def in_words(self) -> str:
        """Return it as Pulsar's brokers write it: `LEDGER:OFFSET:PARTITION`."""
        return f"{self.life}:{self.offset}:{self.partition}"


def message_ids(life: int, partition: int) -> Callable[[Iterable[int]], list[str]]:
    """Return what writes the ids of the messages of one partition, by their offsets."""
    before, behind, encode = _field(_LEDGER, life), _field(_PARTITION, partition), binascii.b2a_base64

    def write(offsets: Iterable[int]) -> list[str]:
        found, higher, rest = [], 0, b""
        for offset in offsets:
            if offset < 0x80:
                data = before + _entry(offset) + behind
            else:
                if offset >> 7 != higher:
                    higher = offset >> 7
                    rest = _higher(higher) + behind
                data = before + _LOWEST[offset & 0x7F] + rest
            found.append(encode(data, newline=False).decode())
        return found

    return write


def read_message_id(text: str) -> MessageId:
    """Read one, of either alphabet of base64, padded or not. Raises ValueError for what is none."""
    if len(text) > _MOST_TEXT:
        raise ValueError("this is no id of a message")
    try:
        text = text.translate(_TO_STANDARD).rstrip("=")
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        found: dict[int, int] = {}
        at = 0
        while at < len(data):
            tag = data[at]
            if tag not in (_LEDGER, _ENTRY, _PARTITION) or tag in found:
                raise ValueError  # noqa: TRY301
            found[tag], at = read_varint(data, at + 1)
        return MessageId(found[_LEDGER], found[_ENTRY], found[_PARTITION])
    except (ValueError, KeyError, IndexError, binascii.Error):
        raise ValueError("this is no id of a message") from None


@lru_cache(maxsize=4_096)
def _field(tag: int, value: int) -> bytes:
    """Return a field with a value that comes again and again."""
    return bytes((tag, *varint(value)))


def _entry(offset: int) -> bytes:
    """Return the field with an offset. Neighbours share all but their lowest seven bits."""
    if offset < 0x80:
        return bytes((_ENTRY, offset))
    return _LOWEST[offset & 0x7F] + _higher(offset >> 7)


_LOWEST: Final = [bytes((_ENTRY, digit | 0x80)) for digit in range(0x80)]


@lru_cache(maxsize=4_096)
def _higher(value: int) -> bytes:
    return bytes(varint(value))
