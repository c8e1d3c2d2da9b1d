"""Check that what was read is what was produced: every event, once, in order, with its content."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from benchmarks.frames import bounds
from benchmarks.protocols import Protocol
from benchmarks.records import offsets

_MOST_FAULTS = 5
_OFFSET_BITS = 48


class _Value(msgspec.Struct):
    n: int
    t: int = 0


class _Data(msgspec.Struct):
    partition: int
    offset: int
    value: str | None = None
    payload: str | None = None


class _Event(msgspec.Struct):
    data: _Data


class _TopicEvent(msgspec.Struct):
    data: _Value


_event = msgspec.json.Decoder(_Event).decode
_table_event = msgspec.json.Decoder(_Data).decode
_topic_event = msgspec.json.Decoder(_TopicEvent).decode
_value = msgspec.json.Decoder(_Value).decode


class Check:
    """Check one client's events (whole frames).

    stream: the events, the first of which is record `first`. total: how many were produced in all, before
    and in the stream. bases: the first offset of every partition. faults: what is wrong, in words, at most
    a few; empty: nothing. times: when each event was produced (ns; 0: its record does not say). places:
    (partition, offset) of each event, one number each: see `place`.

    Of every partition the offsets must be the next ones to the last one produced, in this order, and
    each event must hold the record of that number.
    """

    def __init__(
        self,
        stream: bytes | bytearray,
        total: int,
        bases: Sequence[int],
        first: int = 0,
        protocol: Protocol = "kiwi",
    ) -> None:
        self.faults: list[str] = []
        self.times = array("q")
        self.places = array("q")
        self._bases = bases
        self._expected = offsets(bases, first)
        one = {"kiwi": self._one, "zetta": self._one_of_a_topic, "lenses": self._one_of_a_table}[protocol]
        for payload in _payloads(stream):
            if len(self.faults) >= _MOST_FAULTS:
                return
            one(payload)
        for partition, (have, produced) in enumerate(zip(self._expected, offsets(bases, total), strict=True)):
            if have != produced:
                self.faults.append(
                    f"partition {partition}: ends before offset {have}, produced was up to {produced}"
                )

    def _one(self, payload: memoryview) -> None:
        self._said(_event(payload).data)

    def _one_of_a_table(self, payload: memoryview) -> None:
        self._said(_table_event(payload))

    def _said(self, data: _Data) -> None:
        text = data.value if data.value is not None else base64.b64decode(data.payload or "")
        self._record(data.partition, data.offset, _value(text))

    def _one_of_a_topic(self, payload: memoryview) -> None:
        """Check an event that does not say where it was: the record itself does."""
        value = _topic_event(payload).data
        partition, partitions = value.n % len(self._bases), len(self._bases)
        self._record(partition, self._bases[partition] + value.n // partitions, value)

    def _record(self, partition: int, offset: int, value: _Value) -> None:
        partitions = len(self._bases)
        if not 0 <= partition < partitions:
            self.faults.append(f"an event of partition {partition}, of which there are {partitions}")
            return
        expected = self._expected[partition]
        if offset != expected:
            self.faults.append(f"partition {partition}: offset {offset} where {expected} was to come")
        elif value.n != (offset - self._bases[partition]) * partitions + partition:
            self.faults.append(f"partition {partition}, offset {offset}: another record's value")
        self._expected[partition] = offset + 1
        self.times.append(value.t)
        self.places.append(place(partition, offset))


def order(
    segments: Iterable[tuple[int, int]],
    places: Sequence[int],
    bases: Sequence[int] | None,
    ends: Sequence[int] | None,
) -> list[str]:
    """Return what is wrong with a client that has read these parts of the events, one after the other (or got
    a notice of their loss). bases: the first offset of every partition that it should have; None: whatever
    comes first. ends: the offset behind the last; None: it has left."""
    expected: dict[int, int] = {} if bases is None else dict(enumerate(bases))
    for begin, end in segments:
        for one in places[begin:end]:
            partition, offset = parted(one)
            if expected.get(partition, offset) != offset:
                return [f"partition {partition}: offset {offset} where {expected[partition]} was to come"]
            expected[partition] = offset + 1
    if ends is not None and any(expected.get(partition, end) != end for partition, end in enumerate(ends)):
        return [f"ends before offsets {[expected.get(p) for p in range(len(ends))]}, not {list(ends)}"]
    return []


def place(partition: int, offset: int) -> int:
    """Return partition and offset as one number."""
    return partition << _OFFSET_BITS | offset


def parted(number: int) -> tuple[int, int]:
    """Return the partition and the offset of a `place`."""
    return number >> _OFFSET_BITS, number & ((1 << _OFFSET_BITS) - 1)


def _payloads(stream: bytes | bytearray) -> Iterator[memoryview]:
    at = 0
    while (found := bounds(stream, at)) is not None:
        begin, at = found
        yield memoryview(stream)[begin:at]
