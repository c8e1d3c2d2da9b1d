"""Records that are written to a source, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outgoing:
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
        size = (len(self.key) if self.key else 0) + (len(self.value) if self.value else 0)
        if self.headers:
            size += sum(len(name) + len(value or b"") for name, value in self.headers)
        return size


@dataclass(frozen=True, slots=True)
class Published:
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
