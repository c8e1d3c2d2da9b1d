"""The times of records, as they are written (document 001, Record)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import NoneType
from typing import Final

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999, for which ISO 8601 has texts."""

_TIMES: Final = {int, NoneType}


def milliseconds(timestamp: int | None) -> int | None:
    """Write a time as a number. None: there is none."""
    return None if timestamp == -1 else timestamp


def texts_of(timestamps: Sequence[object]) -> Iterable[object]:
    """Write times as texts; as it is what a source has there that is none."""
    if set(map(type, timestamps)) <= _TIMES:
        return map(time_of, timestamps)
    return [time_of(each) if isinstance(each, int) else each for each in timestamps]


@lru_cache(maxsize=4096)
def time_of(timestamp: int | None) -> str | int | None:
    """Write a time as text; as it is where there is no text for it."""
    if timestamp is None or timestamp == -1:
        return None
    if not _FIRST_MS <= timestamp <= _LAST_MS:
        return timestamp
    seconds, rest = divmod(timestamp, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    moment = time.gmtime(seconds)
    return f"{moment.tm_year:04d}{time.strftime('-%m-%dT%H:%M:%S', moment)}"
