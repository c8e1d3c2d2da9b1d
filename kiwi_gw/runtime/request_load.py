"""Bound how many plain requests are in the making and what they hold, in all, and share it among clients."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from kiwi_gw.dialect_api.http import RequestLimit
from kiwi_gw.runtime.group_reader import SourceGroupReader

MOST_BYTES: Final = 64 << 20
"""Of records that plain requests have on their way, in one process; and the same for their bodies."""

MOST_WAITING: Final = 1_000
"""Requests whose answers take time, of one process. A client may have as many as are left for others: alone
half of them, so that whoever comes has room."""

_CROWDED: Final = "too many requests wait for their answers; try again in a moment"


@dataclass(slots=True)
class RequestLoad:
    """Count what plain requests of one process have in the making. waiting: how many wait for their answers.
    groups: of which this process is a member for them. produced_bytes: of their records on the way.
    body_bytes: of their bodies. own, own_bodies: of `waiting` and `body_bytes` those of each client."""

    waiting: int = 0
    groups: set[SourceGroupReader] = field(default_factory=set)
    produced_bytes: int = 0
    body_bytes: int = 0
    own: dict[Hashable, int] = field(default_factory=dict, repr=False)
    own_bodies: dict[Hashable, int] = field(default_factory=dict, repr=False)

    def add_produced(self, size: int) -> None:
        """Count records that are on their way from now on. Raises RequestLimit if there are too many."""
        if self.produced_bytes + size > MOST_BYTES:
            raise RequestLimit("too many bytes wait to be written; try again in a moment")
        self.produced_bytes += size

    def wait(self, who: Hashable) -> WaitingRequest:
        """Have a request of this client (`who_pays`) counted until the block ends. Entering it raises
        RequestLimit."""
        return WaitingRequest(self, who)

    def body(self, who: Hashable) -> HeldBody:
        """Have the bytes of a body of this client counted, as they come, until the block ends. What it is
        entered with raises RequestLimit if there are too many, or of this client more than are left for
        others."""
        return HeldBody(self, who)


class WaitingRequest:
    """Count one request while it waits."""

    __slots__ = ("_load", "_who")

    def __init__(self, load: RequestLoad, who: Hashable) -> None:
        self._load, self._who = load, who

    def __enter__(self) -> None:
        load = self._load
        own = load.own.get(self._who, 0)
        if own + load.waiting >= MOST_WAITING:
            raise RequestLimit(_CROWDED)
        load.own[self._who] = own + 1
        load.waiting += 1

    def __exit__(self, *raised: object) -> None:
        self._load.waiting -= 1
        _take_off(self._load.own, self._who, 1)


class HeldBody:
    """Count the bytes of one body while it is held."""

    __slots__ = ("_held", "_load", "_who")

    def __init__(self, load: RequestLoad, who: Hashable) -> None:
        self._load, self._who = load, who
        self._held = 0

    def __enter__(self) -> Callable[[int], None]:
        return self._count

    def __exit__(self, *raised: object) -> None:
        if self._held:
            self._load.body_bytes -= self._held
            _take_off(self._load.own_bodies, self._who, self._held)

    def _count(self, size: int) -> None:
        load = self._load
        own = load.own_bodies.get(self._who, 0)
        if own + load.body_bytes + size > MOST_BYTES:
            raise RequestLimit("too many requests are being read; try again in a moment")
        load.body_bytes += size
        load.own_bodies[self._who] = own + size
        self._held += size


def _take_off(counts: dict[Hashable, int], who: Hashable, count: int) -> None:
    left = counts[who] - count
    if left:
        counts[who] = left
    else:
        del counts[who]
