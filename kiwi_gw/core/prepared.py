"""What a subscription may send now, and where it stands when the kernel took only part of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kiwi_gw.core.window import WindowEntry
from kiwi_gw.model import Encoded


@dataclass(slots=True)
class Segment:
    """The events `first` up to `last` of one entry, and where their bytes are."""

    entry: WindowEntry
    encoded: Encoded
    first: int
    last: int
    start: int
    end: int


@dataclass(slots=True)
class Prepared:
    """What may be sent now: buffers to send in this order. `events` counts those that yield bytes. joined:
    they are one frame, which counts as sent when its first byte was taken."""

    views: list[memoryview | bytes]
    size: int
    events: int
    segments: list[Segment] = field(repr=False)
    joined: bool = False

    def add(self, entry: WindowEntry, encoded: Encoded, first: int, stop: int) -> Segment:
        """Add the events from `first` up to `stop` of an entry, behind what is there."""
        start = encoded.ends[first - 1] if first else 0
        end = encoded.ends[stop - 1]
        segment = Segment(entry, encoded, first, stop, start, end)
        self.segments.append(segment)
        self.events += count(encoded.prefix_counts, first, stop)
        if end > start:
            self.views.append(memoryview(encoded.buffer)[start:end])
            self.size += end - start
        return segment

    def taken(self, size: int) -> SentPart:
        """Say what was sent when so many bytes were taken."""
        if size == self.size:
            return SentPart([(segment, segment.last) for segment in self.segments], size, b"")
        if self.joined:
            if size == 0:
                return SentPart([], 0, b"")
            rest = b"".join(self.views)[size:]
            return SentPart([(segment, segment.last) for segment in self.segments], self.size, rest)
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


class SentPart(NamedTuple):
    """What was sent of something prepared: segments, each up to an index of its entry; the bytes of their
    events; the rest of the frame that was cut."""

    segments: list[tuple[Segment, int]]
    size: int
    rest: bytes


def whole(entry: WindowEntry, encoded: Encoded, events: int) -> Prepared:
    """Prepare all of an entry, as fan-out sends it."""
    size = len(encoded.buffer)
    return Prepared([encoded.buffer], size, events, [Segment(entry, encoded, 0, len(entry.batch), 0, size)])


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


def reach(prefix_counts: Sequence[int] | None, first: int, allowance: int) -> int:
    """Find the furthest index such that at most `allowance` events that count lie between `first` and it."""
    if prefix_counts is None:
        return first + allowance
    return bisect_right(prefix_counts, prefix_counts[first] + allowance, first) - 1


def nearest(prefix_counts: Sequence[int] | None, first: int, allowance: int) -> int:
    """Find where `allowance` events that count lie between `first` and it, and nothing behind the last of
    them."""
    return (
        first + allowance
        if prefix_counts is None
        else bisect_left(prefix_counts, prefix_counts[first] + allowance, first)
    )
