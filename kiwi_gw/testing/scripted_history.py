"""The history of a source whose events a test dictates (see `scripted`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import trio

from kiwi_gw.api import Batch, Gap, HistoryReader, OffsetRange, Positions

Place = tuple[int, int]
"""(partition, offset)."""

_READ_EVENTS = 5_000


class ScriptedHistory:
    """What a script has published, less what the test has taken away. Implements `api.History` for it.

    asked: how often it was asked what it has; opened: how often a reader was opened; read_events: how many
    events all of them have read.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.opened = 0
        self.read_events = 0
        self._batches: list[Batch] = []
        self._gone: set[Place] = set()
        self._first: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._failures: list[Exception] = []
        self._open = trio.Event()
        self._open.set()

    @property
    def batches(self) -> Sequence[Batch]:
        """What was published, in order."""
        return self._batches

    # --- the test's side -------------------------------------------------------------------

    def hold(self) -> None:
        """Put it out of reach: every call waits, until `release`."""
        self._open = trio.Event()

    def release(self) -> None:
        self._open.set()

    def fail(self, *errors: Exception) -> None:
        """Raise these in the next calls, one each."""
        self._failures += errors

    def delete(self, partition: int, before: int) -> None:
        """Delete what lies below `before`, as retention does: it is announced."""
        self._first[partition] = max(before, self._first.get(partition, 0))

    def compact(self, places: Iterable[Place]) -> None:
        """Take these away without a word, as compaction does."""
        self._gone.update(places)

    def published(self, batch: Batch, positions: Positions) -> None:
        """Add a batch that the script has published; `positions` are those behind it."""
        self._batches.append(batch)
        self.moved(positions)

    def moved(self, positions: Positions) -> None:
        """Set where the next events of the script will be."""
        self._end.update(positions)
        for partition in positions:
            self._first.setdefault(partition, 0)

    # --- the gateway's side ----------------------------------------------------------------

    async def offset_range(self) -> OffsetRange:
        self.asked += 1
        await self._reached()
        return OffsetRange(dict(self._first), dict(self._end))

    async def at(self, timestamp: int) -> Positions:
        await self._reached()
        found = dict(self._end)
        for batch in reversed(self._batches):
            stamps = batch.columns["timestamp"]
            for partition, offset, stamp in zip(batch.partitions, batch.offsets, stamps, strict=True):
                if isinstance(stamp, int) and stamp >= timestamp:
                    found[partition] = min(found[partition], offset)
        return {p: max(offset, self._first[p]) for p, offset in found.items()}

    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        await self._reached()
        self.opened += 1
        yield _ScriptedReader(self, positions)

    async def _reached(self) -> None:
        await self._open.wait()
        await trio.lowlevel.checkpoint()
        if self._failures:
            raise self._failures.pop(0)


class _ScriptedReader:
    """Implements `api.HistoryReader`."""

    def __init__(self, history: ScriptedHistory, positions: Positions) -> None:
        self._history = history
        self._here = dict(positions)
        self._index = 0  # of the first batch that may hold something for it

    async def read(self, until: Positions) -> Batch:
        await self._history._reached()
        here, first = self._here, self._history._first
        lost = {
            p: (offset, first[p] - 1)
            for p, offset in here.items()
            if offset < until.get(p, 0) and offset < first[p]
        }
        for partition, (_, last) in lost.items():
            here[partition] = last + 1
        gap = Gap(lost, None) if lost else None
        starts = dict(here)
        for batch in self._history._batches:
            found = self._rows(batch, until)
            if found:
                self._history.read_events += len(found)
                return _part(batch, found, starts, gap)
        for partition, end in until.items():  # behind the holes, where nothing is left
            here[partition] = max(here[partition], end)
        return Batch(dict(here), (), (), dict.fromkeys(("key", "value", "timestamp"), ()), 0, gap)

    def _rows(self, batch: Batch, until: Positions) -> list[int]:
        here, gone = self._here, self._history._gone
        found: list[int] = []
        for index, place in enumerate(zip(batch.partitions, batch.offsets, strict=True)):
            partition, offset = place
            if here[partition] <= offset < until.get(partition, 0) and place not in gone:
                found.append(index)
                here[partition] = offset + 1
                if len(found) == _READ_EVENTS:
                    break
        return found


def _part(batch: Batch, rows: list[int], starts: Positions, gap: Gap | None) -> Batch:
    return Batch(
        starts=starts,
        partitions=[batch.partitions[row] for row in rows],
        offsets=[batch.offsets[row] for row in rows],
        columns={name: [column[row] for row in rows] for name, column in batch.columns.items()},
        cost=batch.cost,
        gap=gap,
    )
