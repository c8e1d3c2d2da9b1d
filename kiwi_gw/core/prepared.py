"""What a subscription may send now, and where it stands when the kernel took only part of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kiwi_gw.core.window import WindowEntry
from kiwi_gw.model import Batch, Encoded, Framing

Fragment = tuple[int, bytes]
"""The index of an event in its batch, and its bytes."""


@dataclass(slots=True)
class Segment:
    """The events `first` up to `last` of one entry, and where their bytes are."""

    entry: WindowEntry
    encoded: Encoded
    first: int
    last: int
    start: int
    end: int

    @property
    def bytes(self) -> memoryview:
        return memoryview(self.encoded.buffer)[self.start : self.end]

    @property
    def events(self) -> int:
        """Return how many of them yield bytes."""
        return count(self.encoded.prefix_counts, self.first, self.last)

    @property
    def batch(self) -> Batch:
        return self.entry.batch

    @property
    def fragments(self) -> Iterator[Fragment]:
        """Yield the index in the batch, and the bytes, of each that yields some."""
        ends, buffer, start = self.encoded.ends, self.encoded.buffer, self.start
        for index in range(self.first, self.last):
            end = ends[index]
            if end > start:
                yield index, buffer[start:end]
            start = end


@dataclass(slots=True)
class Frame:
    """Hold the events of one frame that has many, and what is sent of it. They count as sent when its first
    byte was taken."""

    segments: list[Segment]
    parts: list[memoryview | bytes]
    size: int


@dataclass(slots=True)
class Prepared:
    """What may be sent now: buffers to send in this order. `events` counts those that yield bytes. frames:
    those that it consists of, where each has many events."""

    views: list[memoryview | bytes]
    size: int
    events: int
    segments: list[Segment] = field(repr=False)
    frames: list[Frame] = field(default_factory=list, repr=False)

    def add(self, entry: WindowEntry, encoded: Encoded, first: int, stop: int) -> Segment:
        """Add the events from `first` up to `stop` of an entry, behind what is there."""
        start = encoded.ends[first - 1] if first else 0
        end = encoded.ends[stop - 1]
        segment = Segment(entry, encoded, first, stop, start, end)
        self.segments.append(segment)
        self.events += count(encoded.prefix_counts, first, stop)
        if end > start:
            self.views.append(segment.bytes)
            self.size += end - start
        return segment

    def put_into(self, framing: Framing) -> None:
        """Put what is there into frames: as few as may be, none with more than the framing allows unless it
        is one segment."""
        run: list[Segment] = []
        size = 0
        for segment in self.segments:
            length = segment.end - segment.start
            if size and length and size + length > framing.max_bytes:
                self.frames.append(_frame(framing, run))
                run, size = [], 0
            run.append(segment)
            size += length
        if size:
            self.frames.append(_frame(framing, run))
        elif self.frames:
            self.frames[-1].segments += run
        self.views = [part for frame in self.frames for part in frame.parts]
        self.size = sum(frame.size for frame in self.frames)

    def taken(self, size: int) -> SentPart:
        """Say what was sent when so many bytes were taken."""
        if size == self.size:
            return SentPart([(segment, segment.last) for segment in self.segments], size, b"")
        if self.frames:
            return self._framed(size)
        sent: list[tuple[Segment, int]] = []
        total = 0
        for segment in self.segments:
            length = segment.end - segment.start
            if size < length:
                index, rest = cut(segment.encoded, segment.start + size)
                if index > segment.first:
                    sent.append((segment, index))
                    total += segment.encoded.ends[index - 1] - segment.start
                return SentPart(sent, total, rest)
            sent.append((segment, segment.last))
            total += length
            size -= length
        return SentPart(sent, total, b"")

    def _framed(self, size: int) -> SentPart:
        sent: list[tuple[Segment, int]] = []
        total = 0
        for frame in self.frames:
            if total == size:
                break
            sent += [(segment, segment.last) for segment in frame.segments]
            total += frame.size
            if total > size:
                return SentPart(sent, total, b"".join(frame.parts)[size - total :])
        return SentPart(sent, total, b"")


class SentPart(NamedTuple):
    """What was sent of something prepared: segments, each up to an index of its entry; the bytes of their
    events; the rest of the frame that was cut."""

    segments: list[tuple[Segment, int]]
    size: int
    rest: bytes


def whole(entry: WindowEntry, encoded: Encoded) -> Prepared:
    """Prepare all of an entry, as fan-out sends it."""
    prepared = Prepared([], 0, 0, [])
    prepared.add(entry, encoded, 0, len(entry.batch))
    return prepared


def framed(entry: WindowEntry, encoded: Encoded, framing: Framing) -> Prepared:
    """Prepare all of an entry in frames, as fan-out sends it."""
    prepared = Prepared([], 0, 0, [])
    for first, stop, _, _ in runs(encoded.ends, framing.max_bytes):
        prepared.add(entry, encoded, first, stop)
    prepared.put_into(framing)
    return prepared


def runs(ends: Sequence[int], max_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut events into runs of at most so many bytes, or one event: the first, the one behind the last, and
    where their bytes begin and end."""
    first, start, last = 0, 0, len(ends)
    while first < last:
        stop = max(bisect_right(ends, start + max_bytes, first, last), first + 1)
        yield first, stop, start, ends[stop - 1]
        first, start = stop, ends[stop - 1]


def _frame(framing: Framing, segments: list[Segment]) -> Frame:
    parts = framing.parts([segment.bytes for segment in segments if segment.end > segment.start])
    return Frame(segments, parts, sum(map(len, parts)))


def cut(encoded: Encoded, position: int) -> tuple[int, bytes]:
    """Find where a reader stands when the bytes up to `position` of a buffer were taken.

    Returns the index of its next event, and the rest of the event whose frame was cut.
    """
    ends = encoded.ends
    index = bisect_right(ends, position)
    done = ends[index - 1] if index else 0
    if done >= position:
        return index, b""
    return index + 1, bytes(memoryview(encoded.buffer)[position : ends[index]])


def count(prefix_counts: Sequence[int] | None, first: int, stop: int) -> int:
    """Count how many events from `first` up to `stop` yield bytes."""
    return stop - first if prefix_counts is None else prefix_counts[stop] - prefix_counts[first]


def furthest_stop(prefix_counts: Sequence[int] | None, first: int, allowance: int) -> int:
    """Find the furthest index such that at most `allowance` events that count lie between `first` and it."""
    if prefix_counts is None:
        return first + allowance
    return bisect_right(prefix_counts, prefix_counts[first] + allowance, first) - 1


def nearest_stop(prefix_counts: Sequence[int] | None, first: int, allowance: int) -> int:
    """Find where `allowance` events that count lie between `first` and it, and nothing behind the last of
    them."""
    return (
        first + allowance
        if prefix_counts is None
        else bisect_left(prefix_counts, prefix_counts[first] + allowance, first)
    )
