"""Says in the log what could not be decoded: the first few times at once, then now and then how many."""

from __future__ import annotations

from typing import Final

import structlog
import trio

log = structlog.get_logger("kiwi_spark")

FIRST: Final = 5
"""So many batches with bad records are logged, each with one of them."""

SECONDS: Final = 60.0
"""So far apart are those that are logged after that: a topic of nothing else would fill the disk."""


class BadRecords:
    """Of one query. total: how many there were, whether they were logged or not."""

    def __init__(self, source: str) -> None:
        self.total = 0
        self._source = source
        self._lines = 0
        self._since = 0
        self._next = 0.0

    def seen(self, batch: int, count: int, sample: str) -> None:
        """A batch had `count` of them. sample: one of them, and where it is."""
        if not count:
            return
        self.total += count
        self._since += count
        if self._lines >= FIRST and trio.current_time() < self._next:
            return
        log.warning(
            "records could not be decoded",
            source=self._source,
            batch=batch,
            count=self._since,
            total=self.total,
            sample=sample,
        )
        self._lines += 1
        self._since = 0
        self._next = trio.current_time() + SECONDS
