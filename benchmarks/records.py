"""The records that are produced, so that everyone who checks knows what must arrive.

Record `n` of a run goes to partition `n % partitions` of a fresh topic, so it gets offset `n // partitions`.
"""

from __future__ import annotations

from functools import lru_cache

_FILL = b"what the sensors said about this flight and its weather, as far as anyone can remember it; "
_END = b'"}'


def key(partition: int) -> bytes:
    return b"%d" % partition


def value(number: int, size: int) -> bytes:
    """A JSON object of exactly `size` bytes (ASCII) with the record's number as `n`.

    ValueError if that is too small for its other members.
    """
    begun = b'{"n":%d,"carrier":"UA","dest":"IAH","delay":%d,"note":"' % (number, number % 61 - 10)
    room = size - len(begun) - len(_END)
    if room < 0:
        raise ValueError(f"a record needs at least {size - room} bytes, not {size}")
    return begun + _note(room) + _END


@lru_cache
def _note(length: int) -> bytes:
    return (_FILL * (length // len(_FILL) + 1))[:length]


def numbers(partition: int, partitions: int, first: int, stop: int) -> range:
    """Those of the records `first` up to `stop` that go to a partition."""
    return range(first + (partition - first) % partitions, stop, partitions)
