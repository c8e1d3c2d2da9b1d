"""Whether what was read is what was produced: every event, once, in order, with its content."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks.frames import bounds
from benchmarks.records import numbers

_MOST_FAULTS = 5


class _Value(msgspec.Struct):
    n: int


class _Data(msgspec.Struct):
    partition: int
    offset: int
    value: str


class _Event(msgspec.Struct):
    data: _Data


_event = msgspec.json.Decoder(_Event).decode
_value = msgspec.json.Decoder(_Value).decode


def faults(stream: bytes | bytearray, records: int, partitions: int) -> list[str]:
    """What is wrong with a client's events (whole frames), in words, at most a few; empty: nothing.

    Of every partition the offsets must be 0, 1, 2, ... to the last one produced, in this order, and
    each event must hold the record of that number.
    """
    found: list[str] = []
    expected = [0] * partitions
    for data in _events(stream):
        if len(found) >= _MOST_FAULTS:
            return found
        partition, offset = data.partition, data.offset
        if not 0 <= partition < partitions:
            found.append(f"an event of partition {partition}, of which there are {partitions}")
            continue
        if offset != expected[partition]:
            found.append(f"partition {partition}: offset {offset} where {expected[partition]} was to come")
        elif _value(data.value).n != offset * partitions + partition:
            found.append(f"partition {partition}, offset {offset}: another record's value")
        expected[partition] = offset + 1
    for partition, have in enumerate(expected):
        produced = len(numbers(partition, partitions, 0, records))
        if have != produced:
            found.append(f"partition {partition}: ends before offset {have}, {produced} were produced")
    return found


def _events(stream: bytes | bytearray) -> Iterator[_Data]:
    at = 0
    while (found := bounds(stream, at)) is not None:
        begin, at = found
        yield _event(memoryview(stream)[begin:at]).data
