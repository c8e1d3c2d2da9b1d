"""How the events of a source look to one client: a frame for each of its topics that matches.

Theory of operation. The fragment of an event is the frames of all matching subscriptions, in the order of
their ids. A frame is a header, a head (topic and ids) and a line (timestamp and data). Lines are made once
per batch, or once per batch and query, and kept with its `DecodedBatch`: clients with other ids only copy
them. Ids begin at 1 in every connection, so most clients of a source share the whole fragments. Where all
events of a batch have one topic and make one frame each, all that is left is to join the lines with what is
between.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, cast

import msgspec

from kiwi_gw.dialect_api import frames
from kiwi_gw.dialects.encoder import separators
from kiwi_gw.dialects.zetta.topic_filters import TopicFilter
from kiwi_gw.dialects.zetta.topic_plan_cache import TopicPlanCache
from kiwi_gw.dialects.zetta.topic_streams import EventBodies, EventBody, TopicStream
from kiwi_gw.model import Batch, Encoded, Steps, TimeSlice, WireFormat, at_once
from kiwi_gw.query.decoded_batch import DecodedBatch

MOST_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Of the frames of one batch, and twice its own bytes for every subscription: many with one query that makes
much of little would fill the memory."""

_FRAME_BYTES: Final = 200
"""Of a frame in a plan, without the bytes of its head."""

_HEADERS: Final = [frames.header(length) for length in range(4_096)]

_FEW: Final = 15
"""A bit mask: the clock is looked at behind every 16 events, and behind each with frames of some size."""

_encode = msgspec.json.Encoder().encode


PLAIN_IDS: Final = 128
"""The frames of a lone topic, of a source with one topic, are shared up to this id."""


class StreamMember:
    """Hold a subscription that reads a source. limited: whether its events are counted."""

    __slots__ = ("limited", "marks", "number", "topic_filter")

    def __init__(self, number: int, topic_filter: TopicFilter, limited: bool = False) -> None:
        self.number, self.topic_filter, self.limited = number, topic_filter, limited
        mark = b"%d %d %b " % (number, limited, topic_filter.key.encode())
        self.marks: Final = mark, mark + topic_filter.pattern.digest
        """Its part of a wire key: where its pattern leaves no event out, and where it does."""


_Frame = tuple[bytes, int, tuple[int, ...]]
"""One frame of an event: its head, whose lines it has (0: the data as they are, else the query with that
number, from 1), and those of its ids whose events are counted."""

_plan_cache: Final[TopicPlanCache[tuple[_Frame, ...]]] = TopicPlanCache()


def events_wire(
    stream: TopicStream, members: Sequence[StreamMember], *, multiple: bool, max_event_bytes: int
) -> WireFormat:
    """Make the wire format of a source for these subscriptions, in the order of their ids.

    multiple: those without a query share one frame, with the list of their ids; others have a list of one.

    A client chooses its queries, and the patterns that leave some of the source's events out. It does not
    choose ids, which count up from 1, and has only one form of a source by them. Forms that are not the same
    for most clients are charged to it.
    """
    selecting = [stream.selects(member.topic_filter.pattern) for member in members]
    made = blake2b(digest_size=20)
    for member, selects in zip(members, selecting, strict=True):
        mark = member.marks[selects]
        made.update(b"%d " % len(mark))
        made.update(mark)
    # One string, whose hash is computed once: the key is looked up for every batch.
    key = f"zetta {multiple} {max_event_bytes} {made.hexdigest()}"
    events = _Events(stream, tuple(members), multiple, max_event_bytes)
    queries = any(member.topic_filter.query is not None for member in members)
    # One topic, one frame, no query: the work depends on the source alone, not on a client.
    plain = len(members) == 1 and members[0].number <= PLAIN_IDS and not queries
    simple = stream.naming.static is not None and plain
    return WireFormat(key, events, steps=None if simple else events.steps, chosen=queries or any(selecting))


class _Events:
    """Make the fragments of a batch."""

    __slots__ = (
        "_limited",
        "_max_event_bytes",
        "_members",
        "_multiple",
        "_plans",
        "_queries",
        "_stream",
    )

    def __init__(
        self, stream: TopicStream, members: tuple[StreamMember, ...], multiple: bool, max_event_bytes: int
    ) -> None:
        self._stream = stream
        self._members = members
        self._multiple = multiple
        self._max_event_bytes = max_event_bytes
        self._limited = tuple(m.number for m in members if m.limited)
        self._queries = {
            m.topic_filter.key: m.topic_filter for m in members if m.topic_filter.query is not None
        }
        self._plans: dict[str, tuple[_Frame, ...]] = {}

    def __call__(self, batch: Batch) -> Encoded:
        return at_once(self.steps(batch, TimeSlice()))

    def steps(self, batch: Batch, turn: TimeSlice) -> Steps[Encoded]:
        """Make the same, in turns."""
        _plan_cache.used(self._plans)
        view = self._stream.view(batch)
        yield from self._stream.decoded(view, turn, queried=bool(self._queries))
        lines = self._stream.lines(view)
        topics = self._stream.topics(view)
        if isinstance(topics, str) and not lines.bad:
            plan = yield from self._plan(topics, turn)
            if len(plan) == 1 and plan[0][1] == 0:
                found = self._alike(view, plan[0][0], lines.lines)
                if found is not None:
                    return found
        made = [lines]
        for topic_filter in self._queries.values():
            made.append((yield from self._stream.queried(view, topic_filter, turn)))
            if turn.over:
                yield
        return (yield from self._each(view, topics, made, turn))

    def _alike(self, view: DecodedBatch, head: bytes, lines: Sequence[EventBody]) -> Encoded | None:
        """Write a frame with this head for every event. None if one of them is too large.

        Measured against appending to a buffer: joining is nearly twice as fast, and other ids then cost only
        the separators and the copying.
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

    def _each(
        self,
        view: DecodedBatch,
        topics: str | Sequence[str | None],
        made: Sequence[EventBodies],
        turn: TimeSlice,
    ) -> Steps[Encoded]:
        """Write the frames event by event. made: the data as they are, and what each query leaves of them."""
        length, most = len(view.batch), self._max_event_bytes
        end = MOST_BATCH_BYTES + 2 * view.batch.cost * len(self._members)
        each = [topics] * length if isinstance(topics, str) else topics
        plans, lines = self._plans, [item.lines for item in made]
        buffer = bytearray()
        ends = array("Q")
        there = bytearray(length)
        counted = {number: bytearray(length) for number in self._limited}
        unsendable: list[int] = []
        headers, small = _HEADERS, len(_HEADERS)
        begin = 0
        for index, topic in enumerate(each):
            plan: tuple[_Frame, ...] | None = () if topic is None else plans.get(topic)
            if plan is None:
                plan = yield from self._plan(cast(str, topic), turn)
            for head, place, _ in plan:
                line = lines[place][index]
                if line is not None:
                    size = len(head) + len(line)
                    buffer += headers[size] if size < small else frames.header(size)
                    buffer += head
                    buffer += line
                    if size >= small and len(buffer) - begin > most:
                        break
            stop = len(buffer)
            look = not index & _FEW or stop - begin >= small
            if stop > begin:
                if stop - begin > most or stop > end:
                    del buffer[begin:]
                    unsendable.append(index)
                else:
                    there[index] = 1
                    if counted:
                        _count(plan, lines, index, counted)
            begin = len(buffer)
            ends.append(begin)
            if look and turn.over:
                turn.held = begin + length * len(counted)
                yield
        prefix_counts = None if all(there) else list(accumulate(there, initial=0))
        prefix_counts_by_label: dict[Hashable, Sequence[int]] = {}
        for number, marks in counted.items():
            prefix_counts_by_label[number] = array("Q", accumulate(marks, initial=0))
            if turn.over:
                yield
        mistakes = self._stream.mistakes(made)
        return Encoded(
            bytes(buffer), ends, prefix_counts, prefix_counts_by_label, tuple(unsendable), *mistakes
        )

    def _plan(self, topic: str, turn: TimeSlice) -> Steps[tuple[_Frame, ...]]:
        """Return the frames of an event with this topic."""
        found = self._plans.get(topic)
        if found is None:
            found = yield from self._made(topic, turn)
            size = _FRAME_BYTES + sum(len(head) + _FRAME_BYTES for head, _, _ in found)
            _plan_cache.keep(self._plans, topic, found, size)
        return found

    def _made(self, topic: str, turn: TimeSlice) -> Steps[tuple[_Frame, ...]]:
        members = []
        for member in self._members:
            if member.topic_filter.pattern.matches(topic):
                members.append(member)
            if turn.over:
                yield
        return tuple(self._frames(_encode(topic), members))

    def _frames(self, written: bytes, members: list[StreamMember]) -> Iterator[_Frame]:
        places = {key: place for place, key in enumerate(self._queries, 1)}
        plain = [member for member in members if member.topic_filter.query is None]
        for member in members:
            number, place = member.number, places.get(member.topic_filter.key, 0)
            counted = (number,) if member.limited else ()
            if not self._multiple:
                yield _head(written, number), place, counted
            elif place:
                yield _head(written, [number]), place, counted
            elif member is plain[0]:
                numbers = [item.number for item in plain]
                yield _head(written, numbers), 0, tuple(item.number for item in plain if item.limited)


def _count(
    plan: Sequence[_Frame], lines: Sequence[Sequence[EventBody]], index: int, counted: Mapping[int, bytearray]
) -> None:
    """Mark the event for those labels that count it."""
    for _, place, numbers in plan:
        if numbers and lines[place][index] is not None:
            for number in numbers:
                counted[number][index] = 1


def head(topic: str, ids: object) -> bytes:
    """Write what stands before the timestamp of an event. ids: a number, or several."""
    return _head(_encode(topic), ids)


def _head(written: bytes, ids: object) -> bytes:
    return b'{"type":"event","topic":%b,"subscriptionId":%b,"timestamp":' % (written, _encode(ids))
