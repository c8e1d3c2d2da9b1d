"""Pages of the newest event of every key, shared by everyone who comes by.

Theory of operation. A page is a run of the index's events, in the order of update, in a window of its own:
its readers are parked in one entry, whose fragments are made once per wire key and kept with all others. A
page that has no reader is kept for a while, for a thousand dashboards that open together come one after the
other. As soon as one of its events is superseded it is not given to anyone else, and goes with its last
reader; the pages beside it stay. So what is encoded depends on what is updated, not on how many ask.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from kiwi_gw.core.window import MemoryBudget, Window, WindowEntry
from kiwi_gw.model import Batch

PAGE_EVENTS = 250
"""An update costs those who come next so many encodings at most."""

FEW_EVENTS = 60
"""A page of fewer is made anew together with what follows it."""

IDLE_SECONDS = 10.0
"""How long a page is kept that has no reader."""


class SnapshotPage:
    """Events that are the newest of their keys, with sequence numbers from `first` up to `stop`; others of
    that run are superseded. `numbers`: theirs, in order."""

    __slots__ = ("first", "numbers", "readers", "shared", "stop", "used_at", "window")

    def __init__(self, first: int, stop: int, numbers: Sequence[int], window: Window) -> None:
        self.first = first
        self.stop = stop
        self.numbers = numbers
        self.window = window
        self.readers = 0
        self.shared = False
        self.used_at = 0.0

    @property
    def entry(self) -> WindowEntry:
        entry = self.window.oldest
        assert entry is not None  # noqa: S101  it is cleared when none has it any more
        return entry


class SnapshotPages:
    """The pages of one index that hold; no two overlap.

    evicted: called with the entry of a page that goes.
    """

    def __init__(
        self, budget: MemoryBudget, evicted: Callable[[WindowEntry], None], clock: Callable[[], float]
    ) -> None:
        self._budget = budget
        self._evicted = evicted
        self._clock = clock
        self._pages: list[SnapshotPage] = []  # by `first`

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[SnapshotPage]:
        return iter(self._pages)

    def at(self, seq: int, stop: int) -> SnapshotPage | None:
        """Find a page that holds, for a reader that is at `seq` and goes up to `stop`."""
        index = bisect_right(self._pages, seq, key=attrgetter("first")) - 1
        if index < 0:
            return None
        page = self._pages[index]
        fits = seq < page.stop <= stop
        left = len(page.numbers) - bisect_left(page.numbers, seq) if fits else 0
        return page if left >= FEW_EVENTS or (left and page.stop == stop) else None

    def next_after(self, seq: int) -> int | None:
        """Find where the next page that holds begins."""
        index = bisect_right(self._pages, seq, key=attrgetter("first"))
        return self._pages[index].first if index < len(self._pages) else None

    def made(self, first: int, stop: int, numbers: Sequence[int], batch: Batch) -> SnapshotPage:
        """Make a new page. Those that it overlaps hold no longer."""
        window = Window(len(batch), 0, self._budget, batch.starts)
        window.append(batch, self._evicted)
        page = SnapshotPage(first, stop, numbers, window)
        index = bisect_left(self._pages, first, key=attrgetter("stop"))
        while index < len(self._pages) and self._pages[index].stop <= first:
            index += 1
        while index < len(self._pages) and self._pages[index].first < stop:
            self._drop(index)
        self._pages.insert(index, page)
        page.shared = True
        return page

    def superseded(self, numbers: Iterable[int]) -> None:
        """Drop pages with these sequence numbers: they are not the newest of their keys any more."""
        pages = self._pages
        for seq in numbers:
            index = bisect_right(pages, seq, key=attrgetter("first")) - 1
            if index >= 0 and seq < pages[index].stop:
                self._drop(index)

    def release(self, page: SnapshotPage) -> None:
        """Note that a reader is through with it, or gone."""
        page.readers -= 1
        page.used_at = self._clock()
        if not page.readers and not page.shared:
            page.window.clear(self._evicted)

    def sweep(self) -> None:
        """Let go of what was not read for a while; of everything that has no reader, if memory is short."""
        before = self._clock() - IDLE_SECONDS
        for index in range(len(self._pages) - 1, -1, -1):
            page = self._pages[index]
            if not page.readers and (page.used_at <= before or self._budget.exceeded):
                self._drop(index)

    def clear(self) -> None:
        """Drop all pages: no other reader is given one."""
        while self._pages:
            self._drop(len(self._pages) - 1)

    def _drop(self, index: int) -> None:
        page = self._pages.pop(index)
        page.shared = False
        if not page.readers:
            page.window.clear(self._evicted)
