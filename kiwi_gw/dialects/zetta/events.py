"""How the events of a source look to one client: a frame for each of its topics that matches.

Theory of operation. The fragment of an event is the frames of all matching subscriptions, in the order of
their ids. A frame is a header, a head (topic and ids) and a line (timestamp and data). Lines are made once
per batch, or once per batch and query, and kept with its `View`: clients with other ids only copy them. Ids
begin at 1 in every connection, so most clients of a source share the whole fragments. Where all events of a
batch have one topic and make one frame each, all that is left is to join the lines with what is between.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, cast

import msgspec

from kiwi_gw.dialects import frames
from kiwi_gw.dialects.encoder import separators
from kiwi_gw.dialects.zetta.streams import Line, Lines, Stream
from kiwi_gw.dialects.zetta.wishes import Wish
from kiwi_gw.model import Batch, Encoded, Steps, Turn, WireFormat, at_once
from kiwi_gw.query.views import View

MOST_PLAN_BYTES: Final = 8 * 1024 * 1024
"""Of the plans that a format keeps: one for each concrete topic, with a head for each of its frames."""

MOST_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Of the frames of one batch, and twice its own bytes for every subscription: many with one query that makes
much of little would fill the memory."""

_FRAME_BYTES: Final = 200
"""Of a frame in a plan, without the bytes of its head."""

_HEADERS: Final = [frames.header(length) for length in range(4_096)]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Member:
    """A subscription that reads the source. limited: whether its events are counted."""

    number: int
    wish: Wish
    limited: bool = False


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame of an event: its head, and whose lines it has (None: the data as they are)."""

    head: bytes
    wish: Wish | None
    numbers: tuple[int, ...]


def events_wire(
    stream: Stream, members: Sequence[Member], *, multiple: bool, max_event_bytes: int
) -> WireFormat:
    """The wire format of a source for these subscriptions, in the order of their ids.

    multiple: those without a query share one frame, with the list of their ids; others have a list of one.
    """
    readers = [(m.number, stream.key_of(m.wish.pattern), m.wish.key, m.limited) for m in members]
    # One string, whose hash is computed once: the key is looked up for every batch.
    key = f"zetta {multiple} {max_event_bytes} {readers!r}"
    events = _Events(stream, tuple(members), multiple, max_event_bytes)
    steps = events.steps if any(member.wish.query is not None for member in members) else None
    return WireFormat(key, events, steps=steps, chosen=True)


class _Events:
    """Makes the fragments of a batch."""

    __slots__ = (
        "_limited",
        "_max_event_bytes",
        "_members",
        "_multiple",
        "_plan_bytes",
        "_plans",
        "_stream",
    )

    def __init__(
        self, stream: Stream, members: tuple[Member, ...], multiple: bool, max_event_bytes: int
    ) -> None:
        self._stream = stream
        self._members = members
        self._multiple = multiple
        self._max_event_bytes = max_event_bytes
        self._limited = tuple(m.number for m in members if m.limited)
        self._plans: dict[str, tuple[_Frame, ...]] = {}
        self._plan_bytes = 0

    def __call__(self, batch: Batch) -> Encoded:
        return at_once(self.steps(batch, Turn()))

    def steps(self, batch: Batch, turn: Turn) -> Steps[Encoded]:
        """The same, in turns."""
        view = self._stream.view(batch)
        lines = self._stream.lines(view)
        topics = self._stream.topics(view)
        if isinstance(topics, str) and not lines.bad:
            plan = self._plan(topics)
            if len(plan) == 1 and plan[0].wish is None:
                found = self._alike(view, plan[0].head, lines.lines)
                if found is not None:
                    return found
        queried: dict[str, Lines] = {}
        for member in self._members:
            if member.wish.query is not None and member.wish.key not in queried:
                queried[member.wish.key] = yield from self._stream.queried(view, member.wish, turn)
        return self._each(view, topics, queried)

    def _alike(self, view: View, head: bytes, lines: Sequence[Line]) -> Encoded | None:
        """All events have a frame with this head. None if one of them is too large.

        Measured against appending to a buffer: joining is nearly twice as fast, and leaves to other ids
        nothing but the separators and the copying.
        """
        stream = self._stream
        lengths = view.memo(("zetta lengths", stream), lambda: list(map(len, cast(Sequence[bytes], lines))))
        before = separators(head, b"")
        if not lengths or len(before[max(lengths)]) + max(lengths) > self._max_event_bytes:
            return None
        parts: list[Any] = [None] * (2 * len(lengths))
        parts[::2] = map(before.__getitem__, lengths)
        parts[1::2] = lines
        ends = view.memo(  # heads of one length make frames of one length
            ("zetta ends", stream, len(head)),
            lambda: array("Q", accumulate(len(before[length]) + length for length in lengths)),
        )
        return Encoded(b"".join(parts), ends)

    def _each(self, view: View, topics: str | Sequence[str | None], queried: Mapping[str, Lines]) -> Encoded:
        length, most = len(view.batch), self._max_event_bytes
        end = MOST_BATCH_BYTES + 2 * view.batch.cost * len(self._members)
        each = [topics] * length if isinstance(topics, str) else topics
        # Of every distinct topic: its frames, with the lines that they take.
        plans: dict[str | None, list[tuple[bytes, Sequence[Line]]]] = {None: []}
        for topic in dict.fromkeys(each):
            if topic is not None:
                plans[topic] = [
                    (frame.head, self._lines(view, frame.wish, queried)) for frame in self._plan(topic)
                ]
        buffer = bytearray()
        ends = array("Q")
        there = bytearray(length)
        unsendable: list[int] = []
        headers, small = _HEADERS, len(_HEADERS)
        begin = 0
        for index, topic in enumerate(each):
            for head, lines in plans[topic]:
                line = lines[index]
                if line is not None:
                    size = len(head) + len(line)
                    buffer += headers[size] if size < small else frames.header(size)
                    buffer += head
                    buffer += line
            if len(buffer) > begin:
                if len(buffer) - begin > most or len(buffer) > end:
                    del buffer[begin:]
                    unsendable.append(index)
                else:
                    there[index] = 1
            begin = len(buffer)
            ends.append(begin)
        tally = None if all(there) else list(accumulate(there, initial=0))
        tallies: dict[Hashable, Sequence[int]] = {
            n: self._tally(view, n, each, there, queried) for n in self._limited
        }
        # Events that had no data, and those that a query could not be asked for: the most of one.
        bad = max([self._stream.lines(view).bad, *(lines.bad for lines in queried.values())])
        return Encoded(bytes(buffer), ends, tally, tallies, tuple(unsendable), bad)

    def _plan(self, topic: str) -> tuple[_Frame, ...]:
        """The frames of an event with this topic."""
        found = self._plans.get(topic)
        if found is None:
            found = tuple(self._frames(topic))
            if self._plan_bytes > MOST_PLAN_BYTES:
                self._plans.clear()
                self._plan_bytes = 0
            self._plans[topic] = found
            self._plan_bytes += _FRAME_BYTES + sum(len(frame.head) + _FRAME_BYTES for frame in found)
        return found

    def _frames(self, topic: str) -> Iterator[_Frame]:
        members = [member for member in self._members if member.wish.pattern.matches(topic)]
        plain = tuple(member.number for member in members if member.wish.query is None)
        written = _encode(topic)
        for member in members:
            number, query = member.number, member.wish.query
            if not self._multiple:
                yield _Frame(_head(written, number), member.wish if query is not None else None, (number,))
            elif query is not None:
                yield _Frame(_head(written, [number]), member.wish, (number,))
            elif number == plain[0]:
                yield _Frame(_head(written, plain), None, plain)

    def _lines(self, view: View, wanted: Wish | None, queried: Mapping[str, Lines]) -> Sequence[Line]:
        return (self._stream.lines(view) if wanted is None else queried[wanted.key]).lines

    def _tally(
        self,
        view: View,
        number: int,
        topics: Sequence[str | None],
        there: Sequence[int],
        queried: Mapping[str, Lines],
    ) -> list[int]:
        """Prefix counts of the events of one subscription."""
        lines: dict[str | None, Sequence[Line]] = {}
        for topic in dict.fromkeys(topics):
            if topic is not None:
                for frame in self._plan(topic):
                    if number in frame.numbers:
                        lines[topic] = self._lines(view, frame.wish, queried)
        counts = (
            1 if there[i] and topic in lines and lines[topic][i] is not None else 0
            for i, topic in enumerate(topics)
        )
        return list(accumulate(counts, initial=0))


def head(topic: str, ids: object) -> bytes:
    """What an event says before its timestamp. ids: a number, or several."""
    return _head(_encode(topic), ids)


def _head(written: bytes, ids: object) -> bytes:
    return b'{"type":"event","topic":%b,"subscriptionId":%b,"timestamp":' % (written, _encode(ids))
