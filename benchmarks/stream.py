"""Check what many clients read at the speed of `memcmp`.

Theory of operation. All clients of one run read the same events, nearly always in the same order. The client
that is furthest ahead writes the *reference*: it walks its frames one by one, sets aside those that are not
events (replies, notices) and appends the rest. All others compare what was received with the reference, a
whole chunk in one call (13 ns per event here; counting the events with `bytes.count` takes 140). Only where a
chunk differs is it looked at frame by frame. It may be a reply or a notice of this client alone. Or it is an
event from elsewhere in the reference, as the order between partitions is free: then the client goes on there,
and what it has read is a list of *segments* of the reference (`check.order` finds what is missing, doubled or
out of order in them). What no client has read yet is appended. A notice of a loss (LAG) says how many events
of the reference this client will not get: the one behind them must be the very next that it reads, so a
notice that is one event off is found.

A client that comes while others are reading looks for its first event in the reference, and follows it from
there on.

So at the end every byte of every client is known to be that of the reference, and one look at the reference
(`check`) is a check of all of them.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.frames import CLOSE, PING, bounds
from benchmarks.protocols import WORDS

_LAG = b'{"type":"NOTICE","data":{"type":"LAG"'
_LOST = b'{"type":"HEARTBEAT","lost":'
"""What Lenses' v1 says of a loss."""
_LOOK_BACK = 1024 * 1024
"""How far back the first event of a late reader is sought, from the end of the reference when it came."""


class Reference:
    """Hold the events that any client has read so far: whole frames with their ends. event: how they
    begin."""

    __slots__ = ("_indexed", "data", "ends", "event")

    def __init__(self, event: bytes = WORDS["kiwi"].event) -> None:
        self.event = event
        self.data = bytearray()
        self.ends = array("Q")
        self._indexed: dict[int, int] = {}

    def find(self, frame: bytes) -> int | None:
        """Return the (first) index of this event; None: no client has read it."""
        for index in range(len(self._indexed), len(self.ends)):
            # Keys are made unequal where frames are equal, so that their number is that of the events.
            key = hash(self._frame(index))
            while key in self._indexed:
                key += 1
            self._indexed[key] = index
        key = hash(frame)
        while (index := self._indexed.get(key, -1)) >= 0:
            if self._frame(index) == frame:
                return index
            key += 1
        return None

    def _frame(self, index: int) -> bytes:
        begin = self.ends[index - 1] if index else 0
        return bytes(self.data[begin : self.ends[index]])

    def boundary(self, position: int) -> int:
        """Return the beginning of the frame that the byte at `position` belongs to."""
        index = bisect_right(self.ends, position)
        return self.ends[index - 1] if index else 0


class Reader:
    """Hold what one client has read.

    position: where in the reference it stands. segments: the parts of the reference that it has read before
    it came to the one that it stands in: index of the first event, and of the one behind the last. control:
    how many frames there were that are not events, by type. closed: whether the server has sent a close
    frame. given_up: how many events notices of a loss have announced, and `gaps` what they said: (index of
    the first, of the one behind the last, ranges). wrong: what cannot be, in words. first: the index of the
    first event that it read; None as long as a late one (`late`) has not found it.
    """

    __slots__ = (
        "_before",
        "_begun",
        "_hint",
        "_pong",
        "_reference",
        "_rest",
        "closed",
        "control",
        "first",
        "gaps",
        "given_up",
        "position",
        "segments",
        "wrong",
    )

    def __init__(
        self,
        reference: Reference,
        pong: Callable[[bytes], None] = lambda payload: None,
        *,
        late: bool = False,
    ) -> None:
        self._reference = reference
        self._pong = pong
        self._hint = max(0, len(reference.data) - _LOOK_BACK)
        self.first: int | None = None if late else 0
        self.given_up = 0
        self.gaps: list[tuple[int, int, dict[str, list[int]]]] = []
        self._rest = b""  # an unfinished frame that cannot be compared; `position` is where it began
        self._before = 0  # events behind it when it came to the segment that it stands in
        self._begun = 0  # the index of that segment's first event
        self.position = 0
        self.segments: list[tuple[int, int]] = []
        self.control: Counter[str] = Counter()
        self.closed = False
        self.wrong: str | None = None

    @property
    def events(self) -> int:
        """Return how many whole events are behind this client: read, given up, or before it came."""
        if self.first is None:
            return 0
        return self._before + self._index - self._begun

    @property
    def all_segments(self) -> list[tuple[int, int]]:
        """Return `segments`, and the one that it stands in."""
        return [*self.segments, (self._begun, self._index)]

    @property
    def _index(self) -> int:
        return bisect_right(self._reference.ends, self.position)

    def join(self) -> None:
        """Look (again) for the first event of a late reader; nothing happens where it was found."""
        if self.first is None:
            self.feed(memoryview(b""))

    def feed(self, chunk: memoryview) -> None:
        """Take the bytes that the client has received."""
        if self.first is None:
            self._rest += chunk
            self._look_for_first()
        elif not self._rest:
            if self._reference.data.startswith(chunk, self.position):
                self.position += len(chunk)
                return
            self._look_closer(bytes(chunk))
        else:
            rest, self._rest = self._rest, b""
            self._look_closer(rest + chunk)

    def _look_for_first(self) -> None:
        reference, data = self._reference, self._rest
        while (found := bounds(data, 0)) is not None:
            begin, end = found
            if data.startswith(reference.event, begin):
                position = reference.data.find(data[:end], self._hint)
                if position >= 0:
                    self.position, self._rest = position, b""
                    self.first = self._before = self._begun = self._index
                    self._look_closer(data)
                return
            self._note(data[0] & 0x0F, data[begin:end])
            data = self._rest = data[end:]

    def _look_closer(self, data: bytes) -> None:
        reference = self._reference
        at = 0
        while at < len(data):
            at += self._same(data, at)
            if at == len(data):
                return
            begun = reference.boundary(self.position)
            if begun < self.position:
                # The frame that differs had begun like an event, at the end of an earlier chunk.
                data, at = bytes(reference.data[begun : self.position]) + data[at:], 0
                self.position = begun
            if self.position == len(reference.data) and not self.segments:
                at = self._lead(data, at)
            found = bounds(data, at)
            if found is None:
                self._rest = data[at:]
                return
            begin, end = found
            if data.startswith(reference.event, begin):
                self._go_to(data[at:end])
            else:
                self._note(data[at] & 0x0F, data[begin:end])
                at = end

    def _go_to(self, frame: bytes) -> None:
        """Go on where the reference has this event, which is another one than here; or make it the last."""
        reference = self._reference
        index = reference.find(frame)
        self._leave_segment()
        if index is None:
            index = len(reference.ends)
            reference.ends.append(len(reference.data) + len(frame))
            reference.data += frame
        self._begun = index
        self.position = reference.ends[index - 1] if index else 0

    def _leave_segment(self) -> None:
        index = self._index
        self._before += index - self._begun
        if index > self._begun or not self.segments:
            self.segments.append((self._begun, index))

    def _same(self, data: bytes, at: int) -> int:
        """Return how many bytes from `at` on are those of the reference, up to a frame's beginning where they
        differ. Moves `position`."""
        reference, position = self._reference, self.position
        view = memoryview(data)[at : at + len(reference.data) - position]
        same, known = 0, len(view)
        if not reference.data.startswith(view, position):
            while known - same > 1:
                middle = (same + known) // 2
                if reference.data.startswith(view[same:middle], position + same):
                    same = middle
                else:
                    known = middle
            same = max(0, reference.boundary(position + same) - position)
        else:
            same = known
        self.position = position + same
        return same

    def _lead(self, data: bytes, at: int) -> int:
        """Append the events from `at` on to the reference; returns where the first other frame begins."""
        reference = self._reference
        begin, end = at, len(data)
        shift = self.position - at
        append, event = reference.ends.append, reference.event
        while end - at >= 4:
            # As `bounds`, in line: this runs for every event that the server has sent at all.
            length = data[at + 1]
            if length == 126:
                payload = at + 4
                length = data[at + 2] << 8 | data[at + 3]
            elif length < 126:
                payload = at + 2
            else:
                found = bounds(data, at)
                if found is None:
                    break
                payload, length = found[0], found[1] - found[0]
            if payload + length > end or not data.startswith(event, payload):
                break
            at = payload + length
            append(at + shift)
        reference.data += data[begin:at]
        self.position = at + shift
        return at

    def _note(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._pong(payload)
            self.control["PING"] += 1
        elif opcode == CLOSE:
            self.closed = True
            self.control[f"CLOSE {int.from_bytes(payload[:2], 'big')}"] += 1
        else:
            self.control[_kind(payload)] += 1
            if payload.startswith(_LAG):
                self._skip(json.loads(payload)["data"])
            elif payload.startswith(_LOST):
                said = json.loads(payload)
                ranges = {str(each["partition"]): [each["first"], each["last"]] for each in said["lost"]}
                self._skip({"dropped": said["dropped"], "ranges": ranges})

    def _skip(self, lag: dict[str, Any]) -> None:
        """Skip what a notice says was given up: it is no longer to come."""
        dropped = lag.get("dropped") or 0
        index, ends = self._index, self._reference.ends
        if not dropped:
            return
        if index + dropped > len(ends):
            self.wrong = f"a notice of {dropped} lost events, where nobody has read so many"
            return
        self.gaps.append((index, index + dropped, lag["ranges"]))
        self.given_up += dropped
        self.position = ends[index + dropped - 1]


def _kind(payload: bytes) -> str:
    try:
        message = json.loads(payload)
        kind = message["type"]
        return f"{kind} {message['data']['type']}" if kind == "NOTICE" else str(kind)
    except (ValueError, KeyError, TypeError):
        return "?"
