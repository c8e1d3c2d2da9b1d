"""How a Spark query reads a source of the gateway that Spark cannot reach itself: messages in, bytes out.

Theory of operation. The gateway listens on a Unix socket; a reader in Spark connects, says Hello (of
`kiwi_spark.wire`; the frames are those of `kiwi_spark.frames`) and then Read. From there on every Take is
the credit for so many events, answered by Taken and, if there are any, the Events themselves; Over, if there
are none any more. At any time another Read begins anew. So nothing is ever sent that was not asked for, and
a reader that is slow or gone costs the gateway one cursor.

Both processes import this module; it imports neither Trio nor PySpark.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kiwi_spark.frames import Frames, Message, WireError
from kiwi_spark.wire import Hello

ROLE: Final = "bridge"
"""`Hello.role` of such a connection."""

MAX_EVENT: Final = 8 * 1024 * 1024
"""Bytes of one event. A larger one is given up, and told as a loss."""

_EVENT = struct.Struct(">iqqii")

Place = dict[str, Any]
"""Positions in the JSON form of the source's codec."""


class Read(Message, frozen=True, kw_only=True):
    """Read this source. Answered by Reading or Refused.

    start: `latest`, `earliest`, ms since the epoch, or positions. until: positions to end at. epoch: the
    life of the source in which these positions were told. strict: events that a source which can be read
    again no longer has are refused; else they are a loss that is told.
    """

    source: str
    start: str | int | Place
    until: Place | None = None
    epoch: str = ""
    strict: bool = False


class Reading(Message, frozen=True, kw_only=True):
    """It is read, from `positions` on. epoch: empty if the source can be read again from positions, which
    then mean the same for ever. end: where its next event will be."""

    epoch: str
    positions: Place
    end: Place


class Refused(Message, frozen=True, kw_only=True):
    """It cannot be read from there. code: as of a refused SUBSCRIBE, or `gone`: the source has begun anew,
    and what lies before `until` is of its former life."""

    code: str
    message: str


class Take(Message, frozen=True, kw_only=True):
    """Give up to so many events. Answered by Taken or Over within about a second."""

    events: int


class Taken(Message, frozen=True, kw_only=True):
    """events: how many are in the Events that follow; 0: none follow. positions: of the next one.

    lost: by partition the first and last offset of what was given up just before them. count: how many
    events that were, None if nobody knows. end: whether that is all that there is now.
    """

    events: int
    positions: Place
    lost: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    count: int | None = 0
    end: bool = False


class Events(Message, frozen=True, kw_only=True):
    """Events one behind the other, see `packed` and `events`."""

    data: bytes


class Over(Message, frozen=True, kw_only=True):
    """There is no more. reason: `until`, `ended`, `removed`, `altered`, `changed`, `failed`, `overflow`."""

    reason: str
    message: str


FRAMES: Final = Frames(Hello, Read, Reading, Refused, Take, Taken, Events, Over, raw=Events)

Event = tuple[bytes | None, bytes | None, int, int, int]
"""key, value, partition, offset, timestamp (ms since the epoch, or -1)."""


def packed(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    partitions: Iterable[int],
    offsets: Iterable[int],
    timestamps: Iterable[int],
) -> list[bytes]:
    """Each event: partition, offset, timestamp, the lengths of key and value (-1: null), key, value."""
    key_sizes = [-1 if key is None else len(key) for key in keys]
    value_sizes = [-1 if value is None else len(value) for value in values]
    heads = map(_EVENT.pack, partitions, offsets, timestamps, key_sizes, value_sizes)
    return [
        head + (key or b"") + (value or b"") for head, key, value in zip(heads, keys, values, strict=True)
    ]


def events(data: bytes) -> Iterator[Event]:
    """The events of an `Events`. WireError if it does not end with one."""
    at, size = 0, len(data)
    while at < size:
        if size - at < _EVENT.size:
            raise WireError("the events end within one")
        partition, offset, timestamp, keys, values = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        middle = at + max(keys, 0)
        end = middle + max(values, 0)
        if end > size:
            raise WireError("the events end within one")
        key = None if keys < 0 else data[at:middle]
        yield key, None if values < 0 else data[middle:end], partition, offset, timestamp
        at = end
