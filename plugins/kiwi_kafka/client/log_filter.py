"""Keeps aiokafka's loggers from filling the log while a broker is away (about 60 lines a second)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOGGERS = (
    "aiokafka",  # its module client
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.subscription_state",
    "aiokafka.consumer.group_coordinator",
)
_INTERVAL_S = 30.0


class RepeatFilter(logging.Filter):
    """Let one line of each kind through in `interval` seconds, and say how many were left out.

    A kind is a logger with a message before its arguments are put in.
    """

    def __init__(self, interval: float = _INTERVAL_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._interval = interval
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, str(record.msg))
        now = self._clock()
        since, left_out = self._kinds.get(kind, (float("-inf"), 0))
        if now - since < self._interval:
            self._kinds[kind] = (since, left_out + 1)
            return False
        self._kinds[kind] = (now, 0)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like this since)"
        return True


@contextmanager
def limit_client_logs() -> Iterator[None]:
    """Have aiokafka's loggers repeat themselves at most every 30 s, while the block lasts."""
    repeats = RepeatFilter()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(repeats)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(repeats)
