"""How much time and room a query may take for one batch, and for reading itself.

Limits of texts and trees bound what a query does for one event, but not by much: a pattern that RE2 has no
small automaton for takes microseconds for every character. So the events of a batch are evaluated in
portions, and when the time of the processor for a batch is used up, those that are left are bad ones. Where
one call may take long, it asks before it begins.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kiwi_gw.query.values import RecordError

SECONDS: Final = 0.1
SECONDS_AN_EVENT: Final = 0.000_1
"""Of the processor's time, for a batch: a thousand times what a usual query takes."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""JSON texts of the projections of one batch, and so much more for every byte of its events:"""
BYTES_A_BYTE: Final = 4

REST: Final = 20
"""Times its time, a query that has used it up is not evaluated at all: others are to have theirs."""

_MOST_WORK: Final = 16_000_000
"""Steps of a pattern times characters of one text: an eighth of a second in the worst case."""
_LITTLE: Final = 8_000

PORTION: Final = 4
"""Events that nobody looks at the clock between."""
_QUICK: Final = 0.002

_clock: Final = time.thread_time
now: Final = time.monotonic


class _Time(threading.local):
    """The time of what runs now in this thread. (Queries run in one thread, one after the other; another one
    reads and compiles before the first of them comes.)

    until: when it is used up; infinite if nobody said that there is an end, None if nobody has looked at the
    clock yet: most batches are over before somebody does. seconds: what there is from then on. again: it was
    used up once, and begun again: a pause of the garbage collector is nobody's fault.
    """

    def __init__(self) -> None:
        self.until: float | None = math.inf
        self.seconds = 0.0
        self.again = False


_time: Final = _Time()


def begin(events: int) -> bool:
    """What runs until `end` has the time for so many events. Inside of another one it has what that has.

    Returns what `end` is to be told.
    """
    if _time.until != math.inf:
        return False
    _time.until, _time.seconds, _time.again = None, SECONDS + SECONDS_AN_EVENT * events, False
    return True


def end(begun: bool) -> float:
    """When what has used up its time may begin again, by the monotonic clock; 0: it has not."""
    if not begun:
        return 0.0
    until, _time.until = _time.until, math.inf
    if until is None or _clock() <= until + (0.0 if _time.again else _time.seconds):
        return 0.0
    return now() + REST * _time.seconds


@contextmanager
def limited(events: int = 0) -> Iterator[None]:
    """`begin` and `end`."""
    begun = begin(events)
    try:
        yield
    finally:
        end(begun)


def _over(now: float) -> bool:
    if _time.until is None:
        _time.until = now + _time.seconds
    if now <= _time.until:
        return False
    if not _time.again and _time.until != math.inf:
        _time.until, _time.again = now + _time.seconds, True
        return False
    return True


def portions(length: int) -> Iterator[tuple[int, int]]:
    """First and last of the events to be evaluated next: all of them, or as many as there is time for."""
    first, size = 0, PORTION
    began = _clock()
    _over(began)
    while first < length:
        last = min(first + size, length)
        yield first, last
        first = last
        if first < length:
            now = _clock()
            if _over(now):
                return
            size = size * 2 if now - began < _QUICK else max(1, size // 2)
            began = now


def heavy(steps: int, characters: int) -> None:
    """Ask before a pattern of so many steps looks at a text.

    Raises:
        RecordError: it would take too long, or the time is used up.
    """
    work = steps * characters
    if work > _LITTLE and (work > _MOST_WORK or _over(_clock())):
        raise RecordError("a pattern takes too long")
