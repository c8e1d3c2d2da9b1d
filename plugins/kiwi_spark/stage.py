"""One batch as it comes in, until it is whole: in memory, and on disk where that would be too much."""

from __future__ import annotations

import os
import tempfile
from typing import IO

import trio


class StageBudget:
    """Bytes that all staged batches may hold in memory together. used: what they hold now."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Stage:
    """The parts of a batch in their order. rows: of all parts.

    What the budget has no room for goes to a file without a name, which is gone with this process whatever
    ends it. folder: where; None: where temporary files are.
    """

    def __init__(self, budget: StageBudget, folder: str | None = None) -> None:
        self._budget = budget
        self._folder = folder
        self._parts: list[bytes | tuple[int, int]] = []
        self._file: IO[bytes] | None = None
        self._written = 0
        self._held = 0
        self.rows = 0
        self.counts: list[int] = []

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def spilled(self) -> int:
        """Bytes that are on disk."""
        return self._written

    async def add(self, part: bytes, rows: int) -> None:
        """Take one part. OSError: it would have to go to disk, and there is no room."""
        if self._budget.used + len(part) <= self._budget.limit:
            self._budget.used += len(part)
            self._held += len(part)
            self._parts.append(part)
        else:
            await trio.to_thread.run_sync(self._write, part)
            self._parts.append((self._written, len(part)))
            self._written += len(part)
        self.rows += rows
        self.counts.append(rows)

    def holds(self, index: int) -> bool:
        """Whether a part is in memory."""
        return isinstance(self._parts[index], bytes)

    def read(self, index: int) -> bytes:
        """One part again. Blocks if it is on disk: call it in a worker thread."""
        part = self._parts[index]
        if isinstance(part, bytes):
            return part
        place, size = part
        assert self._file is not None  # noqa: S101  it was written there
        found = b""
        while len(found) < size:
            more = os.pread(self._file.fileno(), size - len(found), place + len(found))
            if not more:
                raise OSError("the file of a staged batch has become shorter")
            found += more
        return found

    def close(self) -> None:
        """Let go of everything."""
        self._budget.used -= self._held
        self._held = 0
        self._parts.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, part: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="kiwi-spark-", dir=self._folder, buffering=0)  # noqa: SIM115
        left = memoryview(part)
        place = self._written
        while left:
            size = os.pwrite(self._file.fileno(), left, place)
            left, place = left[size:], place + size
