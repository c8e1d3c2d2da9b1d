"""Delays from produce to receive: noted cheaply while a run lasts, worked out when it is over.

A client notes for every receive when it was and how far in the stream it then stood. When each event was
produced is in its record. All delays of all clients that took notes are counted, none is estimated.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_STEP = 10_000
"""Nanoseconds that are counted as one: percentiles are exact to 10 microseconds."""
_NEAR = 2_000_000_000
"""Nanoseconds before and behind a checkpoint that are near it."""
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


class Delays:
    """Count how many delays there were of each length."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, received: int, produced: Iterable[int]) -> None:
        """Add events that were received at one time (ns), and when each was produced."""
        self._counts.update([(received - at) // _STEP for at in produced])

    @property
    def count(self) -> int:
        return self._counts.total()

    def percentile(self, part: float) -> float:
        """Return the ms in which that part of the events (0 to 1) was there. ValueError if none is."""
        left = part * self.count
        for length, number in sorted(self._counts.items()):
            left -= number
            if left <= 0:
                return length * _STEP / 1e6
        raise ValueError("no delay was counted")

    def said(self) -> dict[str, float]:
        """Return the percentiles by name, ms; none where nothing was counted."""
        if not self._counts:
            return {}
        return {name: round(self.percentile(part), 2) for name, part in _PERCENTILES.items()}


class Notes:
    """Hold what one client notes. position: where in the stream it stood before the first note."""

    __slots__ = ("_at", "_positions")

    def __init__(self, position: int) -> None:
        self._at = array("q")
        self._positions = array("q", [position])

    def note(self, now: int, position: int) -> None:
        self._at.append(now)
        self._positions.append(position)

    def count(
        self, ends: Sequence[int], times: Sequence[int], periods: Sequence[Delays], begun: int, ended: int
    ) -> None:
        """Add all delays to the period that each event was received in.

        ends, times: of every event of the stream, where it ends and when it was produced. periods: equal
        parts of the time from `begun` to `ended` (ns).
        """
        have = bisect_right(ends, self._positions[0])
        for now, position in zip(self._at, self._positions[1:], strict=True):
            until = bisect_right(ends, position, have)
            if until > have:
                index = (now - begun) * len(periods) // max(1, ended - begun)
                periods[min(max(index, 0), len(periods) - 1)].add(now, times[have:until])
                have = until


class Around:
    """Find the longest delays of records that were made near a checkpoint of Spark's."""

    def __init__(self, folder: Path) -> None:
        """folder: of checkpoints, anywhere below it."""
        ahead = time.time_ns() - time.monotonic_ns()
        self._at: list[int] = []
        for file in folder.glob("**/commits/*"):
            if file.name.isdigit():
                with suppress(FileNotFoundError):  # Spark has just removed it: it was old
                    self._at.append(file.stat().st_mtime_ns - ahead)
        self._noted: list[tuple[int, int]] = []

    def add(self, received: int, produced: int) -> None:
        """Add one record (ns of the monotonic clock)."""
        self._noted.append((produced, received - produced))

    def said(self) -> dict[str, float]:
        """Return how many checkpoints there were between the first record and the last, the longest delay of
        records that were made within two seconds of one, and of all others (ms; 0 where there are none)."""
        noted = sorted(self._noted)
        within = [at for at in sorted(self._at) if noted and noted[0][0] <= at <= noted[-1][0]]
        longest = {True: 0, False: 0}
        for made, delay in noted:
            near = bisect_right(within, made + _NEAR) > bisect_left(within, made - _NEAR)
            longest[near] = max(longest[near], delay)
        return {
            "checkpoints": len(within),
            "near": round(longest[True] / 1e6, 2),
            "elsewhere": round(longest[False] / 1e6, 2),
        }


def summed(periods: Iterable[Delays]) -> dict[str, Any]:
    """Return all periods as one, and the p99 of each (ms; None where nothing was received)."""
    periods = list(periods)
    whole = Delays()
    for one in periods:
        whole._counts.update(one._counts)
    return whole.said() | {"periods": [one.said().get("p99") for one in periods]}
