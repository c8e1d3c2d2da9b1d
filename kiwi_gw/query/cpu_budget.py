"""How much time a query may take for one event, how much room for one batch, and how much time for reading
itself.

A batch is evaluated in turns, and what a turn leaves is evaluated later (`model.TimeSlice`): so nothing is
lost because others came before. The time for one event is bounded here. Limits of texts and trees bound it
only loosely: a pattern for which RE2 has no small automaton takes microseconds for every character. A call
that may take long asks before it begins.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kiwi_gw.query.values import RecordError

SECONDS: Final = 0.05
"""Of the processor's time, for an event, or for reading a query with all its constants."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""JSON texts of the projections of one batch, and so much more for every byte of its events:"""
BYTES_A_BYTE: Final = 4

PLAIN_TERMS: Final = 4_000
"""Terms of a query times events between two looks at the clock, where no term takes longer than a
microsecond: less than a turn."""

_MOST_WORK: Final = 4_000_000
"""Steps of a pattern times characters of one text: a thirtieth of a second in the worst case."""
_LITTLE: Final = 8_000

_clock: Final = time.thread_time


class _Time(threading.local):
    """Hold the time of what runs now in this thread. (Queries run in one thread, one after the other; another
    one reads and compiles before the first of them comes.)

    until: when it is used up; infinite where no turn has begun. None if the clock was not looked at yet: most
    turns are over before that. again: it was used up once and begun again, for a pause of the garbage
    collector is not the query's fault.
    """

    def __init__(self) -> None:
        self.until: float | None = math.inf
        self.again = False


_time: Final = _Time()


@contextmanager
def limited() -> Iterator[None]:
    """Give the time of one event to the block. A block inside another one shares the time of that."""
    begun = begin()
    try:
        yield
    finally:
        end(begun)


def begin() -> bool:
    """Begin a turn. Returns the argument for `end`."""
    if _time.until != math.inf:
        return False
    _time.until, _time.again = None, False
    return True


def end(begun: bool) -> None:
    if begun:
        _time.until = math.inf


def _over(now: float) -> bool:
    if _time.until is None:
        _time.until = now + SECONDS
    if now <= _time.until:
        return False
    if not _time.again and _time.until != math.inf:
        _time.until, _time.again = now + SECONDS, True
        return False
    return True


def check_pattern_work(steps: int, characters: int) -> None:
    """Ask before a pattern of so many steps looks at a text.

    Raises:
        RecordError: it would take too long, or the time of the event is used up.
    """
    work = steps * characters
    if work > _LITTLE and (work > _MOST_WORK or _over(_clock())):
        raise RecordError("a pattern takes too long")
