"""What a subscription may send now, and where it stands when the kernel took only part of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from kiwi_gw.core.window import Entry
from kiwi_gw.model import Encoded


@dataclass(slots=True)
class Segment:
    """The events `first` up to `last` of one entry, and where their bytes are."""

    entry: Entry
    encoded: Encoded
    first: int
    last: int
    start: int
    end: int


@dataclass(slots=True)
class Offer:
    """What may be sent now: buffers to send in this order. `events` counts those that yield bytes."""

    views: list[memoryview | bytes]
    size: int
    events: int
    segments: list[Segment] = field(repr=False)
    joined: bool = False


def whole(entry: Entry, encoded: Encoded, events: int) -> Offer:
    """The offer of all of an entry, as fan-out makes it."""
    size = len(encoded.buffer)
    return Offer([encoded.buffer], size, events, [Segment(entry, encoded, 0, len(entry.batch), 0, size)])


def cut(encoded: Encoded, position: int) -> tuple[int, bytes]:
    """Where a reader stands when the bytes up to `position` of a buffer were taken.

    Returns the index of its next event, and the rest of the event whose frame was cut.
    """
    ends = encoded.ends
    index = bisect_right(ends, position)
    done = ends[index - 1] if index else 0
    if done >= position:
        return index, b""
    return index + 1, bytes(memoryview(encoded.buffer)[position : ends[index]])


def pieces(encoded: Encoded, max_bytes: int) -> list[memoryview]:
    """All of a buffer, to be offered one after the other: each at most `max_bytes`, or one event, and none
    ending inside an event."""
    buffer, ends, size = memoryview(encoded.buffer), encoded.ends, len(encoded.buffer)
    if size <= max_bytes:
        return [buffer]
    found, begin = [], 0
    while begin < size:
        index = bisect_right(ends, begin + max_bytes) - 1
        end = ends[index] if index >= 0 and ends[index] > begin else ends[bisect_right(ends, begin)]
        found.append(buffer[begin:end])
        begin = end
    return found


def count(tally: Sequence[int] | None, first: int, stop: int) -> int:
    """How many events from `first` up to `stop` yield bytes."""
    return stop - first if tally is None else tally[stop] - tally[first]


def reach(tally: Sequence[int] | None, first: int, allowance: int) -> int:
    """The furthest index such that at most `allowance` events that count lie between `first` and it."""
    if tally is None:
        return first + allowance
    return bisect_right(tally, tally[first] + allowance, first) - 1


def nearest(tally: Sequence[int] | None, first: int, allowance: int) -> int:
    """Where `allowance` events that count lie between `first` and it, and nothing behind the last of them."""
    return first + allowance if tally is None else bisect_left(tally, tally[first] + allowance, first)
