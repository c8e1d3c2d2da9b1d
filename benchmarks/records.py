"""The records that are produced, so that everyone who checks knows what must arrive.

Record `n` of a run goes to partition `n % partitions` of a fresh topic, so it gets offset `n // partitions`.
(In a topic that is not fresh: so much behind the partition's first one.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

_FILL = b"what the sensors said about this flight and its weather, as far as anyone can remember it; "
_END = b'"}'


def key(partition: int) -> bytes:
    return b"%d" % partition


def value(number: int, size: int, time_ns: int | None = None) -> bytes:
    """Return a JSON object of exactly `size` bytes (ASCII) with the record's number as `n`.

    time_ns: when it was produced, as `t`, where delays are measured. ValueError if size is too small.
    """
    time = b"" if time_ns is None else b'"t":%d,' % time_ns
    begun = b'{"n":%d,%b"carrier":"UA","dest":"IAH","delay":%d,"note":"' % (number, time, number % 61 - 10)
    room = size - len(begun) - len(_END)
    if room < 0:
        raise ValueError(f"a record needs at least {size - room} bytes, not {size}")
    return begun + _note(room) + _END


@lru_cache
def _note(length: int) -> bytes:
    return (_FILL * (length // len(_FILL) + 1))[:length]


def numbers(partition: int, partitions: int, first: int, stop: int) -> range:
    """Return those of the records `first` up to `stop` that go to a partition."""
    return range(first + (partition - first) % partitions, stop, partitions)


def offsets(bases: Sequence[int], count: int) -> list[int]:
    """Return the next offset of every partition behind `count` records. bases: its first one."""
    return [base + len(numbers(p, len(bases), 0, count)) for p, base in enumerate(bases)]
