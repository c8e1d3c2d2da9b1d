"""The bounded run of recent batches of one source, addressed by sequence number from `base` to `head`.

Events are held once, as the columns that the source handed over. Readers walk from entry to entry
(`WindowEntry.next`); a reader that is not at the head is *parked* in the entry that holds its next event, so
that eviction finds exactly the readers whose next event goes away, and touches no others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from functools import cache
from operator import attrgetter
from typing import Protocol

from kiwi_gw.core.positions import reached
from kiwi_gw.model import Batch, Encoded, Positions

ENTRY_OVERHEAD = 900
"""Bytes that an entry costs beside its columns: the objects of entry and batch, the dict of starts.
Measured with tracemalloc on batches of one event and four partitions."""


class ParkedReader(Protocol):
    """A reader inside an entry."""

    def evicted(self, entry: WindowEntry, positions: Callable[[int], Positions]) -> None:
        """Leave the entry, which has left the window, with the next event. positions: those of an event of
        it, by its index."""


class WindowEntry:
    """One batch in the window, the fragments made of it so far, and the readers inside it."""

    __slots__ = (
        "base",
        "batch",
        "bytes_before",
        "cost",
        "encodings",
        "end",
        "lost",
        "next",
        "parked",
        "unknown",
    )

    def __init__(self, batch: Batch, base: int, lost: int = 0, unknown: int = 0) -> None:
        # What the source itself gave up so far, this entry's gap included: events whose number is known,
        # and gaps of unknown size. A reader compares them with its own marks.
        self.lost = lost
        self.unknown = unknown
        self.batch = batch
        self.base = base
        self.end = base + len(batch.offsets)
        self.cost = batch.cost + ENTRY_OVERHEAD
        self.bytes_before = 0  # that the window had taken in before it
        self.next: WindowEntry | None = None
        self.parked: dict[ParkedReader, None] = {}
        self.encodings: dict[Hashable, Encoded] = {}


class MemoryBudget:
    """Bytes that all windows and encodings of a gateway may hold together.

    What encodings may take is set aside; the windows share the rest. When that is used up, the window that
    has most to give up gives up its oldest entries, whichever one needs the room: sources that are idle and
    hold much do not squeeze a busy one. Windows are kept by the power of two of what they can give up, so
    that one is found at once that has at least half as much to give as any other.

    used: by windows and encodings.
    """

    __slots__ = ("_givers", "_most", "_reserved", "_windows", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._windows = 0
        self._reserved = 0
        self._most = limit  # that the windows may hold
        self._givers: dict[int, dict[Window, None]] = {}

    def reserve(self, wish: int) -> int:
        """Set bytes aside for encodings: those that are wished for, or a quarter of all. Returns how many."""
        share = min(wish, self.limit // 4)
        self._reserved += share
        self._most = self.limit - self._reserved
        return share

    def shrink(self, share: float) -> None:
        """Let the windows hold at most this share of what is theirs, from now on; 1: all of it."""
        self._most = int((self.limit - self._reserved) * share)
        self.make_room()

    @property
    def fill_ratio(self) -> float:
        """Which share of what is theirs the windows hold."""
        return self._windows / (self.limit - self._reserved)

    def changed(self, window: Window, size: int, old_rank: int, rank: int) -> None:
        """Count so many bytes more (or less) that a window holds. rank: the power of two of what it can give
        up."""
        self.used += size
        self._windows += size
        if rank == old_rank:
            return
        if old_rank:
            givers = self._givers[old_rank]
            del givers[window]
            if not givers:
                del self._givers[old_rank]
        if rank:
            self._givers.setdefault(rank, {})[window] = None

    def hold(self, size: int) -> None:
        """Count so many bytes more (or less) beside the windows, of what they share."""
        self.used += size
        self._windows += size

    @property
    def exceeded(self) -> bool:
        """Whether the windows hold more than their share: after `make_room`, with nothing to give up."""
        return self._windows > self._most

    def make_room(self) -> None:
        """Have entries evicted until the windows hold no more than their share, or none can give any."""
        while self.exceeded and self._givers:
            next(iter(self._givers[max(self._givers)])).evict_oldest()


class Window:
    """At most `max_events` events and `max_bytes` bytes, and always the newest entry.

    `base` is the sequence number of the oldest event held, `head` that of the next to come.
    """

    def __init__(self, max_events: int, max_bytes: int, budget: MemoryBudget, positions: Positions) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self._budget = budget
        self._entries: list[WindowEntry] = []
        self._first = 0  # index of the oldest entry; the list is trimmed in large steps
        self.head = 0
        self.bytes = 0
        self.bytes_taken = 0  # by all entries that there ever were
        self.lost = 0
        self.unknown = 0
        self._positions: Positions = dict(positions)
        self._rank = 0
        self._pinned = False
        self._evicted: Callable[[WindowEntry], None] = _ignore

    @property
    def base(self) -> int:
        return self._entries[self._first].base if self._first < len(self._entries) else self.head

    @property
    def positions(self) -> Positions:
        """The positions of a reader that is at the head."""
        return self._positions

    @property
    def newest(self) -> WindowEntry | None:
        """The last entry that was taken, while it is held."""
        return self._entries[-1] if self._first < len(self._entries) else None

    def latest(self, entries: int) -> list[WindowEntry]:
        """Return the last few entries that are held, in order."""
        return self._entries[max(self._first, len(self._entries) - entries) :]

    @property
    def short_of_memory(self) -> bool:
        """Whether all windows together hold too much, and none has any to give up."""
        return self._budget.exceeded

    def __len__(self) -> int:
        return self.head - self.base

    def append(self, batch: Batch, evicted: Callable[[WindowEntry], None]) -> WindowEntry:
        """Take a batch, call `evicted` with every entry that has to go for it. ValueError: a repetition.

        It is called with entries, too, that have to go later because another window needs the room.
        """
        self._check(batch)
        self._evicted = evicted
        if batch.gap is not None:
            if batch.gap.count is None:
                self.unknown += 1
            else:
                self.lost += batch.gap.count
        entry = WindowEntry(batch, self.head, self.lost, self.unknown)
        if self._first < len(self._entries):
            self._entries[-1].next = entry
        self._entries.append(entry)
        self.head = entry.end
        entry.bytes_before = self.bytes_taken
        self.bytes_taken += entry.cost
        self._grown(entry.cost)
        self._positions = batch.positions_at(entry.end - entry.base)
        self.trim(evicted)
        return entry

    def trim(self, evicted: Callable[[WindowEntry], None]) -> None:
        """Evict from the old end until the bounds hold."""
        while self._first < len(self._entries) - 1 and (
            self.head - self._entries[self._first].base > self.max_events or self.bytes > self.max_bytes
        ):
            self._evict(evicted)
        self._budget.make_room()

    def evict_oldest(self) -> None:
        """Evict the oldest entry, for the budget's sake."""
        self._evict(self._evicted)

    def pin(self, pinned: bool) -> None:
        """Say whether nothing is given up for the budget's sake: others give, or their sources wait."""
        self._pinned = pinned
        self._grown(0)

    def reset(self, positions: Positions) -> None:
        """Say where the next event will be: before the first batch, or where offsets hold no events."""
        self._positions = dict(positions)

    def pass_over(self, batch: Batch) -> None:
        """Go on where a batch begins that has no events. ValueError: a repetition."""
        self._check(batch)
        self.reset(batch.starts)

    def clear(self, evicted: Callable[[WindowEntry], None]) -> None:
        """Evict everything; the head and its positions stay."""
        while self._first < len(self._entries):
            self._evict(evicted)

    def find(self, seq: int) -> WindowEntry | None:
        """Find the entry that holds event `seq`; None if it is the head. `seq` must not be below `base`."""
        if seq >= self.head:
            return None
        index = bisect_right(self._entries, seq, lo=self._first, key=attrgetter("base")) - 1
        # Entries without events share their base with the one behind them, which is what bisect_right finds.
        return self._entries[index]

    def find_first(self, seq: int) -> WindowEntry | None:
        """Find the same, or the first of those without events that are in front of it, or of the head."""
        index = bisect_left(self._entries, seq, lo=self._first, key=attrgetter("base"))
        if index < len(self._entries) and self._entries[index].base == seq:
            return self._entries[index]
        return self.find(seq)

    def reaches(self, positions: Positions) -> bool:
        """Say whether a reader that is at `positions` can go on in this window without missing anything."""
        oldest = self.oldest
        return reached(positions, self._positions if oldest is None else oldest.batch.starts)

    def entry_at(self, positions: Positions) -> WindowEntry | None:
        """Find the last entry that begins at `positions` or before them in every partition: nothing that such
        a reader has not had lies before it. None if that is the head. The window must reach them."""
        if reached(positions, self._positions):
            return None
        index = bisect_left(
            self._entries, True, lo=self._first, key=lambda entry: not reached(positions, entry.batch.starts)
        )
        return self._entries[index - 1]

    @property
    def oldest(self) -> WindowEntry | None:
        """The first entry that is held."""
        return self._entries[self._first] if self._first < len(self._entries) else None

    def _evict(self, evicted: Callable[[WindowEntry], None]) -> None:
        entry = self._entries[self._first]
        self._entries[self._first] = _GONE
        self._first += 1
        self._grown(-entry.cost)
        evicted(entry)
        entry.next = None
        if self._first > 64 and self._first * 2 > len(self._entries):
            del self._entries[: self._first]
            self._first = 0

    def _grown(self, size: int) -> None:
        self.bytes += size
        # The newest entry is not for giving up.
        gives = self._first < len(self._entries) and not self._pinned
        spare = self.bytes - self._entries[-1].cost if gives else 0
        rank = spare.bit_length()
        self._budget.changed(self, size, self._rank, rank)
        self._rank = rank

    def _check(self, batch: Batch) -> None:
        for partition, start in batch.starts.items():
            taken = self._positions.get(partition, 0)
            if start < taken:
                raise ValueError(
                    f"the batch begins at offset {start} of partition {partition}, "
                    f"but everything before {taken} has been taken"
                )


def tell_parked(entry: WindowEntry) -> None:
    """Tell the readers inside an entry that has left the window."""
    if entry.parked:
        positions = cache(entry.batch.positions_at)  # many readers stand at the same event
        for reader in list(entry.parked):
            reader.evicted(entry, positions)
        entry.parked.clear()


def _ignore(entry: WindowEntry) -> None:
    """Do nothing, before there was anything to evict."""


_GONE = WindowEntry(Batch({}, (), (), {}, 0), -1)
