"""The topics that one connection has subscribed to, and the SUBSCRIBEs that are still to be answered.

Theory of operation. A SUBSCRIBE is all or nothing: everything is opened without credit, a few topics in each
turn, then it is answered, and then each of its topics is given all the credit there is, so that no record
comes before the answer. What was subscribed to under the same name before is cancelled behind the last
opening and before the answer. A topic that cannot be opened cancels the others.

With `_sample` credit is given for a few records per window, and what does not get any is dropped: the policy
is `drop_oldest` with a buffer of so many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import (
    AddCredit,
    Cancel,
    Command,
    Continue,
    Inspect,
    LabelLimit,
    Open,
    Reply,
    SetTimer,
)
from kiwi_gw.core.notices import Ended, Inspected, Lagged, Opened, OpenFailed
from kiwi_gw.dialects.lenses.tables import unknown_table
from kiwi_gw.dialects.lenses.v1 import replies
from kiwi_gw.model import CloseReason, Mode, OverflowPolicy, SourceInfo, Start, WireFormat
from kiwi_gw.query.errors import QueryError

ALL: Final = 2**53 - 1
"""Credit for everything."""

GIVE_UP_SECONDS: Final = 4.25
"""A request that is not answered by then is refused. Answers are promised within 4.5 s: timers and the way to
the client have the rest."""

TURN_SECONDS: Final = 0.002
"""How long statements are read, or topics opened, before others have their turn. One may take 5 ms."""

_GRID_SECONDS: Final = 0.05

_ELSEWHERE: Final = (RefusalCode.FORBIDDEN, RefusalCode.START)
"""It may not begin there, or there is no such place: of this client, or this source."""


@dataclass(frozen=True, slots=True)
class Sample:
    """So many of the newest records per window of time."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of one topic. place: in the list of its SUBSCRIBE. starts: where it may begin, the first
    that its client has the right to. query: a text that is equal for equal ones; empty: it has none.
    position: where its name stands in the statement."""

    topic: str
    source_id: str
    place: int
    wire: Callable[[SourceInfo], WireFormat]
    starts: Sequence[Start]
    limit: int | None = None
    sample: Sample | None = None
    query: str = ""
    position: int | None = None


@dataclass(slots=True, eq=False)
class Topic:
    """One subscription. starts: where it may still begin. opening: the SUBSCRIBE that is to be answered
    before anything of it is said. held: what is to be said then. granted: credit so far."""

    handle: int
    number: int
    wanted: Wanted
    starts: list[Start]
    opening: Opening | None = None
    held: list[Reply] = field(default_factory=list)
    granted: int = 0


@dataclass(slots=True, eq=False)
class Opening:
    """A SUBSCRIBE that is not answered yet. waiting: those of its topics that are not open. unopened: of
    those, what it is not their turn yet to be."""

    number: int
    until: float
    topics: list[Topic] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    unopened: deque[Topic] = field(default_factory=deque)


class Topics:
    """See the top of this file. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._handles = count(1)
        self._subscribed: dict[str, Topic] = {}
        self._by_handle: dict[int, Topic] = {}
        self._openings: list[Opening] = []
        self._samples: dict[int, float] = {}  # when its window is over, by handle
        self._wakes_at: float | None = None

    def others(self, names: Collection[str]) -> int:
        """Count the subscriptions that are not to these topics."""
        return sum(topic.wanted.topic not in names for topic in self._by_handle.values())

    @property
    def queries(self) -> set[str]:
        """The different queries of all topics."""
        return {topic.wanted.query for topic in self._by_handle.values() if topic.wanted.query}

    @property
    def waits(self) -> bool:
        """Whether a SUBSCRIBE is still to be answered."""
        return bool(self._openings)

    # --- what the client says --------------------------------------------------------------

    def subscribe(self, number: int, wanted: Iterable[Wanted], until: float) -> Iterator[Command]:
        """Open all of them and answer, by then. An earlier SUBSCRIBE of one of these topics that is not
        answered yet fails: it would take the place of this one."""
        opening = Opening(number, until)
        for each in wanted:
            for earlier in [other for other in self._openings if _named(other, each.topic)]:
                yield from self._give_up(
                    earlier, f"`{each.topic}` was subscribed to again before it was open"
                )
            topic = Topic(next(self._handles), number, each, list(each.starts), opening)
            opening.topics.append(topic)
            opening.waiting.add(topic.handle)
        opening.unopened.extend(opening.topics)
        self._openings.append(opening)
        yield from self._open_some(opening)

    def unsubscribe(self, names: Iterable[str]) -> Iterator[Command | str]:
        """End what is subscribed to under these names; one that is being opened makes its SUBSCRIBE fail.
        Yields the commands, and the names that were subscribed to."""
        for name in names:
            for opening in [each for each in self._openings if _named(each, name)]:
                yield from self._give_up(opening, f"`{name}` was unsubscribed before it was open")
            topic = self._subscribed.get(name)
            if topic is not None:
                self._forget(topic)
                yield Cancel(topic.handle)
                yield name

    # --- what happened in the core ---------------------------------------------------------

    def opened(self, notice: Opened) -> Iterator[Command]:
        """Answer the SUBSCRIBE, if that was the last of its topics."""
        topic = self._of(notice.handle)
        if topic is None or (opening := topic.opening) is None:
            return
        opening.waiting.discard(topic.handle)
        if not opening.waiting:
            yield from self._answer(opening)

    def failed(self, notice: OpenFailed) -> Iterator[Command]:
        """Try the next place to begin at; if there is none, nothing of its SUBSCRIBE is opened."""
        topic = self._of(notice.handle)
        if topic is None or topic.opening is None:
            return
        if notice.code in _ELSEWHERE and len(topic.starts) > 1:
            del topic.starts[0]
            yield self._open(topic)
            return
        self._by_handle.pop(topic.handle)
        unknown = notice.code == RefusalCode.UNKNOWN_SOURCE
        wanted = topic.wanted
        words = str(QueryError(unknown_table(wanted.topic), wanted.position)) if unknown else notice.message
        yield from self._give_up(topic.opening, f"sqls[{wanted.place}]: {words}")

    def ended(self, notice: Ended) -> Iterator[Command]:
        """Say why a topic is over."""
        topic = self._of(notice.handle)
        if topic is None:
            return
        name = topic.wanted.topic
        if topic.opening is not None:
            self._by_handle.pop(topic.handle)
            yield from self._give_up(topic.opening, f"sqls[{topic.wanted.place}]: {notice.message}")
            return
        self._forget(topic)
        if notice.dropped != 0 and topic.wanted.sample is None:
            yield replies.lost(name, {}, notice.dropped)
        if notice.reason is CloseReason.LIMIT:
            yield replies.ended([name])
        else:
            yield replies.error(topic.number, f"{name}: {notice.reason.value}: {notice.message}")

    def lagged(self, notice: Lagged) -> Iterator[Command]:
        """Say what was given up. What a sample leaves out is not said."""
        topic = self._of(notice.handle)
        if topic is None or topic.wanted.sample is not None or notice.dropped == 0:
            return
        said = replies.lost(topic.wanted.topic, notice.ranges, notice.dropped)
        if topic.opening is not None:
            topic.held.append(said)
        else:
            yield said

    def inspected(self, notice: Inspected) -> Iterator[Command]:
        """Give a sample credit for what it may have in this window."""
        topic = self._of(notice.handle)
        if topic is not None and topic.wanted.sample is not None:
            n = topic.wanted.sample.records - (topic.granted - notice.sent)
            if n > 0:
                topic.granted += n
                yield AddCredit(topic.handle, n)

    def continued(self) -> Iterator[Command]:
        """Go on with the SUBSCRIBE whose turn it is."""
        for opening in [each for each in self._openings if each.unopened]:
            yield from self._open_some(opening)

    def timer_fired(self) -> Iterator[Command]:
        """Give up what took too long, and go on with the samples whose window is over."""
        now, self._wakes_at = self._clock(), None
        for opening in [each for each in self._openings if each.until <= now]:
            yield from self._give_up(opening, "the source does not answer in time; try again")
        for handle, over in list(self._samples.items()):
            if over <= now and (topic := self._of(handle)) is not None and topic.wanted.sample is not None:
                self._samples[handle] = now + topic.wanted.sample.seconds
                yield Inspect(handle)
        yield from self._wake()

    # --- inside ----------------------------------------------------------------------------

    def _wake(self) -> Iterator[Command]:
        """Have the timer fire when the next thing is due, but not more often than twenty times a second."""
        due = min([*(each.until for each in self._openings), *self._samples.values()], default=None)
        if due is None:
            return
        at = math.ceil(due / _GRID_SECONDS) * _GRID_SECONDS
        if self._wakes_at is None or at < self._wakes_at:
            self._wakes_at = at
            yield SetTimer(max(0.0, at - self._clock()))

    def _open_some(self, opening: Opening) -> Iterator[Command]:
        """Open as many of its topics as there is time for in a turn, until one of them is refused."""
        turn_ends = self._clock() + TURN_SECONDS
        while opening.unopened and opening in self._openings:
            topic = opening.unopened.popleft()
            self._by_handle[topic.handle] = topic
            yield self._open(topic)
            if self._clock() >= turn_ends:
                break
        if opening in self._openings:
            if opening.unopened:
                yield Continue(0, pause=True)
            yield from self._wake()

    def _open(self, topic: Topic) -> Open:
        wanted = topic.wanted
        sample = wanted.sample
        return Open(
            topic.handle,
            wanted.source_id,
            wanted.wire,
            Mode.PULL,
            limits={} if wanted.limit is None else {None: LabelLimit(wanted.limit)},
            overflow=None if sample is None else OverflowPolicy.DROP_OLDEST,
            buffer_capacity=None if sample is None else sample.records,
            start=topic.starts[0],
        )

    def _answer(self, opening: Opening) -> Iterator[Command]:
        """Let it take the place of what there was before, say so, and let the records come."""
        self._openings.remove(opening)
        for topic in opening.topics:
            topic.opening = None
            before = self._subscribed.get(topic.wanted.topic)
            if before is not None:
                self._forget(before)
                yield Cancel(before.handle)
            self._subscribed[topic.wanted.topic] = topic
        yield replies.success(opening.number, ",".join(topic.wanted.topic for topic in opening.topics))
        for topic in opening.topics:
            held, topic.held = topic.held, []
            yield from held
            sample = topic.wanted.sample
            topic.granted = ALL if sample is None else sample.records
            if sample is not None:
                self._samples[topic.handle] = self._clock() + sample.seconds
                yield from self._wake()
            if topic.handle in self._by_handle:
                yield AddCredit(topic.handle, topic.granted)

    def _give_up(self, opening: Opening, words: str) -> Iterator[Command]:
        self._openings.remove(opening)
        for topic in opening.topics:
            if self._by_handle.pop(topic.handle, None) is not None:
                yield Cancel(topic.handle)
        yield replies.error(opening.number, words)

    def _forget(self, topic: Topic) -> None:
        self._by_handle.pop(topic.handle, None)
        self._samples.pop(topic.handle, None)
        if self._subscribed.get(topic.wanted.topic) is topic:
            del self._subscribed[topic.wanted.topic]

    def _of(self, handle: object) -> Topic | None:
        return self._by_handle.get(handle) if isinstance(handle, int) else None


def _named(opening: Opening, name: str) -> bool:
    return any(topic.wanted.topic == name for topic in opening.topics)
