"""What one reading client notes down, exactly and in order, and how it gets from its process to the test."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.checker import Closed, Item, Lag, Run
from tests.offsets_of import offsets_of

LONG_PAUSE = 0.5
"""Seconds without an event from which on a pause is noted."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One client to be. `address`: "host:port" or "unix:/path". `ca`: PEM file of the authority, for TLS.

    credit: what a pull reader tops its balance up to whenever half of it is used.
    """

    name: str
    address: str
    source: str
    mode: str = "push"
    credit: int = 0
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What a process of readers is to do: read until each has had, or was told to have missed, `total`
    events. The slowest one's count is reported at least every `step` events."""

    readers: Sequence[Reader]
    total: int
    step: int = 1_000


@dataclass(slots=True)
class Recording:
    """The history of one client: see `tests.faults.checker`.

    events: received. missed: announced as dropped. begins: positions at the SUBSCRIBE_OK. pauses: from and
    to, on the clock of `time.monotonic`, which all processes share. faults: what no protocol allows.
    """

    name: str
    items: list[list[Any]] = field(default_factory=list)
    events: int = 0
    missed: int = 0
    begins: dict[str, int] = field(default_factory=dict)
    first_at: float = 0.0
    last_at: float = 0.0
    pauses: list[tuple[float, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def arrived(self) -> None:
        """Something came just now: call it before events are noted."""
        now = time.monotonic()
        if not self.first_at:
            self.first_at = now
        elif now - self.last_at > LONG_PAUSE:
            self.pauses.append((self.last_at, now))
        self.last_at = now

    def run(self, partition: int, first: int, last: int) -> None:
        """Events of one partition, one after the other."""
        self.events += last - first + 1
        if self.items:
            item = self.items[-1]
            if item[0] == "run" and item[1] == partition and item[3] + 1 == first:
                item[3] = last
                return
        self.items.append(["run", partition, first, last])

    def notice(self, data: Mapping[str, Any]) -> None:
        """A NOTICE about a subscription: LAG and SUBSCRIPTION_CLOSED are part of its history."""
        kind = data["type"]
        if kind == "LAG":
            self.missed += data["dropped"] or 0
            self.items.append(["lag", data])
        elif kind == "SUBSCRIPTION_CLOSED":
            self.items.append(["closed", data])
        elif kind not in ("SOURCE_DEGRADED", "SOURCE_RESTORED"):  # which say nothing about events
            self.faults.append(f"notice {data}")

    def has(self, total: int) -> bool:
        """Whether it is through with so many events, or its subscription is over."""
        return self.events + self.missed >= total or self.closed

    @property
    def closed(self) -> bool:
        return bool(self.items) and self.items[-1][0] == "closed"

    @property
    def history(self) -> list[Item]:
        return [_item(item) for item in self.items]


def _item(item: Sequence[Any]) -> Item:
    kind, *rest = item
    if kind == "run":
        return Run(*rest)
    (data,) = rest
    if kind == "lag":
        ranges = {int(p): (first, last) for p, (first, last) in data["ranges"].items()}
        return Lag(data["behind"], data["dropped"], data["count"], ranges)
    positions = {int(p): offset for p, offset in offsets_of(data["positions"]).items()}
    return Closed(data["reason"], data["dropped"], positions)
