"""Records that are written to a source, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Outgoing(NamedTuple):
    """A record to be written.

    headers: names and values. timestamp: ms since the epoch; None: now. partition: None, as the source
    chooses by the key.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None

    @property
    def size(self) -> int:
        """Return about how many bytes it is."""
        key, value, headers, _, _ = self
        size = len(key or b"") + len(value or b"")
        if headers:
            size += sum([len(name) + len(text or b"") for name, text in headers])
        return size


def total_size(records: Sequence[Outgoing]) -> int:
    """Return about how many bytes they are, sooner than one by one. records: at least one."""
    keys, values, headers, _, _ = zip(*records, strict=True)
    size = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
    if any(headers):
        size += sum([len(name) + len(text or b"") for own in headers for name, text in own])
    return size


class Published(NamedTuple):
    """It is written, there."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Unpublished:
    """It is not written, for the reason in `message`, which names nothing secret.

    retriable: the same record may be written another time. known: it is certainly not written; else nobody
    knows, and who writes it again may have it twice.
    """

    message: str
    retriable: bool
    known: bool
