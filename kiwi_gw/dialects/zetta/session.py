"""One client's half of the Zetta protocol: which topics it wants, and which sources are read for them.

Theory of operation. There is one core subscription (a *reader* here) per source that a topic may match, for
all topics of the connection; its wire format writes the events of every topic that matches, in the order of
their ids. When topics come or go, the readers that are concerned are recast, opened or cancelled. A query for
devices has readers of its own, which begin with the newest event of every key where a source keeps those.

Topics are wishes that last: a source that ends is told to those that named it, and if it comes back it is
read again. A source that the client may not read is to it one that does not exist.

Commands are made one at a time, from what is true at that moment: carrying one out may bring a notice that
changes it (a limit is reached) before the next one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Final

from kiwi_gw.core.commands import (
    Breach,
    Cancel,
    Command,
    Continue,
    Hangup,
    Limit,
    Offload,
    Open,
    Recast,
    Remind,
    Reply,
)
from kiwi_gw.core.notices import (
    Continued,
    Ended,
    Lagged,
    LimitReached,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    RecastRefused,
    Reminded,
    SourceAppeared,
)
from kiwi_gw.dialects.base import SessionLimits
from kiwi_gw.dialects.compiling import Compiling, busy
from kiwi_gw.dialects.throttle import Throttle, Verdict
from kiwi_gw.dialects.zetta import replies, requests
from kiwi_gw.dialects.zetta.devices import Devices, devices_wire
from kiwi_gw.dialects.zetta.events import Member, events_wire
from kiwi_gw.dialects.zetta.step_queue import STEPS, CommandSteps, StepQueue
from kiwi_gw.dialects.zetta.streams import Stream
from kiwi_gw.dialects.zetta.wishes import Asked, Wish, asked, wish
from kiwi_gw.model import CloseReason, SourceInfo, StartAt, WireFormat

RATE_LIMITED: Final = "rate_limited"
POLICY_VIOLATION: Final = 1008

MAX_DEVICE_QUERIES: Final = 4
"""Queries for devices of one connection: each has a wire key of its own of every source that it reads."""

_LOOKED_AT: Final = 8
"""Sources that are looked at in one step, for a pattern without regular expressions."""

LOSS_SECONDS: Final = 1.0
"""A subscription is told of losses at most once in this time."""

RETRY_SECONDS: Final = 5.0
"""When a source that could not be read is tried again."""

_OVER = (CloseReason.ENDED, CloseReason.REMOVED, CloseReason.ALTERED, CloseReason.CHANGED)
"""Ends that a pattern is not told of: it goes on with what else it matches."""

_PASSING = (CloseReason.FAILED.value, "too_many_wire_keys")
"""Codes of OpenFailed for what may be over by then: a source that takes long to start."""


@dataclass(slots=True)
class _Subscription:
    """One topic of the client.

    held: errors that are told behind its `subscribe-ack`; None: that was sent. lost: given up since it was
    told of a loss; unknown: and more, uncounted; told_at: when that was. over: sources of which it was told
    that they cannot be read. devices: what it knows of those if it asks for any.
    """

    number: int
    written: bytes
    wish: Wish
    limit: Limit | None
    held: list[Reply] | None = field(default_factory=list)
    lost: int = 0
    unknown: bool = False
    told_at: float = float("-inf")
    over: set[str] = field(default_factory=set)
    devices: Devices | None = None
    member: Member = field(init=False)

    def __post_init__(self) -> None:
        self.member = Member(self.number, self.wish, self.limit is not None)

    @property
    def has_lost(self) -> bool:
        """Whether it is to be told of a loss."""
        return self.lost > 0 or self.unknown

    def lose(self, events: int | None) -> None:
        """Note that so many were given up; None: nobody knows how many."""
        self.lost += events or 0
        self.unknown = self.unknown or events is None

    def losses(self, now: float) -> str:
        """Say what it has lost, once. In events of the sources: what a query or a pattern would have left of
        them, nobody knows."""
        lost, unknown = self.lost, self.unknown
        self.lost, self.unknown, self.told_at = 0, False, now
        if unknown:
            return f"more than {lost} events were lost" if lost else "events were lost, nobody knows how many"
        return f"{lost} event{' of its sources was' if lost == 1 else 's of its sources were'} lost"


@dataclass(slots=True)
class _Reader:
    """One core subscription. members: whom it serves, in the order of their ids; before: whom it served until
    its last recast. snapshot: it begins with the newest event of every key."""

    handle: int
    info: SourceInfo
    stream: Stream
    members: dict[int, _Subscription] = field(default_factory=dict)
    before: dict[int, _Subscription] = field(default_factory=dict)
    snapshot: bool = False


class ZettaSession:
    """Implements `kiwi_gw.core.commands.Session`.

    stream: the topics of a source. multiple: one event for all topics without a query (`filterMultiple`).
    wall: ms since the epoch. clock: monotonic seconds.
    """

    def __init__(
        self,
        stream: Callable[[SourceInfo], Stream],
        limits: SessionLimits,
        wall: Callable[[], int],
        clock: Callable[[], float],
        *,
        multiple: bool = False,
        max_event_bytes: int,
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._wall = wall
        self._clock = clock
        self._multiple = multiple
        self._max_event_bytes = max_event_bytes
        self._throttle = Throttle(limits.commands_per_second, limits.commands_burst, limits.flood_seconds)
        self._compiling = Compiling(limits, clock)
        self._steps = StepQueue(self._compiling)
        self._numbers = count(1)
        self._handles = count(1)
        self._subscriptions: dict[int, _Subscription] = {}
        self._sources: dict[str, SourceInfo] = {}
        self._readers: dict[Hashable, _Reader] = {}
        self._joined: dict[str, _Reader] = {}  # by source: the one that serves its topics
        self._reading: dict[str, tuple[requests.Subscribe, Asked]] = {}  # by handles of their own
        self._reminded_at: float | None = None
        self._asked_turn = False
        self._retry: dict[str, float] = {}  # ids of sources that could not be read, and when to try again

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        """One message of the client, in a text or a binary frame. It gets exactly one answer."""
        verdict = self._throttle.admit(now)
        if verdict is Verdict.FLOOD:
            yield Hangup(POLICY_VIOLATION, RATE_LIMITED, Breach.COMMANDS)
            return
        if verdict is Verdict.EXCESS:
            words = f"too many messages: at most {self._limits.commands_per_second:g} a second"
            yield self._error(requests.BAD_REQUEST, None, words, breach=Breach.COMMANDS)
            return
        request = requests.read(message)
        match request:
            case requests.Subscribe():
                yield from self._subscribe(request)
            case requests.Unsubscribe(number):
                yield from self._unsubscribe(number)
            case requests.Ping(data):
                yield Reply(replies.pong(self._wall(), data))
            case requests.Bad(code, words, topic):
                yield self._error(code, topic, words, breach=Breach.MESSAGE)

    def notice(self, notice: Notice) -> Iterable[Command]:
        """What it means for the client. Notices about readers that are given up mean nothing."""
        match notice:
            case Offloaded(handle=str(handle)):
                return self._answered(handle, notice)
            case SourceAppeared(info):
                return self._appeared(info)
            case LimitReached(int(handle), int(number)):
                return self._limit_reached(handle, number)
            case Lagged(handle=int(handle), dropped=dropped):
                return self._lost(handle, dropped)
            case Ended(handle=int(handle)):
                return self._ended(handle, notice)
            case Opened(source=info):
                self._works(info)
                return ()
            case OpenFailed(handle=int(handle)):
                return self._open_failed(handle, notice)
            case RecastRefused(handle=int(handle)):
                return self._recast_refused(handle, notice)
            case Reminded():
                return self._reminded()
            case Continued(idle):
                return self._continued(idle=idle)
            case _:
                return ()

    # --- what the client says --------------------------------------------------------------

    def _subscribe(self, request: requests.Subscribe) -> Iterator[Command]:
        wait = self._compiling.wait()
        if wait:
            yield self._error(requests.BAD_REQUEST, request.written, busy(wait), breach=Breach.COMMANDS)
            return
        try:
            with self._compiling.charged():
                text = asked(request.topic, self._limits.query_bytes)
                question = text.question
                wanted = wish(text) if question is None else None
        except ValueError as error:
            yield self._error(requests.BAD_REQUEST, request.written, str(error))
            return
        if wanted is not None:
            yield from self._begin(request, wanted)
        elif question is not None:
            reading = f"query {next(self._handles)}"
            self._reading[reading] = request, text
            yield Offload(reading, question)

    def _answered(self, handle: str, notice: Offloaded) -> Iterator[Command]:
        """Go on with a subscription whose query was read elsewhere."""
        self._compiling.charge_offloaded(notice.seconds)
        request, text = self._reading.pop(handle)
        try:
            with self._compiling.charged():
                wanted = wish(text, notice.answer)
        except ValueError as error:
            yield self._error(requests.BAD_REQUEST, request.written, str(error))
        else:
            yield from self._begin(request, wanted)

    def _begin(self, request: requests.Subscribe, wanted: Wish) -> Iterator[Command]:
        too_many = self._too_many(wanted)
        if too_many is not None:
            yield self._error(requests.BAD_REQUEST, request.written, too_many)
            return
        number = next(self._numbers)
        limit = None if request.limit is None else Limit(request.limit)
        new = _Subscription(number, request.written, wanted, limit)
        if request.limit == 0:
            yield from self._left(new)  # not behind those that are left: that would keep as many as it likes
            return
        self._subscriptions[number] = new
        if wanted.devices:
            new.devices = Devices(request.written, number, self._multiple, wanted)
        steps = self._refresh(new), self._acknowledge(new)
        # Once all sources are read: what is published from then on reaches the client. But what there is of
        # devices comes as soon as a source is read, and before the client knows the id it could be lost.
        yield from self._in_turns(chain(*(reversed(steps) if wanted.devices else steps)))

    def _acknowledge(self, new: _Subscription) -> Iterator[Command]:
        if new.held is not None:
            held, new.held = new.held, None
            yield Reply(replies.subscribed(self._wall(), new.written, new.number))
            yield from held
            yield from self._tell_loss(new)

    def _too_many(self, wanted: Wish) -> str | None:
        most = self._limits.subscriptions
        if most and len(self._subscriptions) >= most:
            return f"a connection can have at most {most} subscriptions"
        of_devices = sum(item.wish.devices for item in self._subscriptions.values())
        if wanted.devices and of_devices >= MAX_DEVICE_QUERIES:
            return f"a connection can have at most {MAX_DEVICE_QUERIES} queries for devices"
        most = self._limits.queries
        keys = {item.wish.key for item in self._subscriptions.values()} | {wanted.key}
        if most and wanted.query is not None and len(keys - {""}) > most:
            return f"a connection can have at most {most} different queries"
        return None

    def _unsubscribe(self, number: int | None) -> Iterator[Command]:
        if number is None or number not in self._subscriptions:
            yield self._error(requests.NOT_SUPPORTED, None, "no subscription has this id")
        else:
            yield from self._leave(number)

    def _leave(self, number: int) -> Iterator[Command]:
        left = self._subscriptions.pop(number, None)
        if left is None:
            return
        readers = [reader for reader in self._readers.values() if number in reader.members]
        if len(readers) < STEPS:  # all in one turn: no event comes in between
            with self._compiling.charged():
                yield from self._left(left)
                for reader in readers:
                    yield from self._leave_reader(reader)
        else:
            steps = (command for reader in readers for command in self._leave_reader(reader))
            yield from self._in_turns(chain(steps, self._left(left)))

    def _limit_reached(self, handle: int, number: int) -> Iterator[Command]:
        yield from self._leave(number)
        reader = self._readers.get(handle)
        if reader is not None and number in reader.members:
            yield from self._leave_reader(reader)  # it stands still until then, for its other topics too

    def _left(self, left: _Subscription) -> Iterator[Command]:
        yield from self._acknowledge(left)
        # What it still knew of a loss is told while its id means something.
        yield from self._tell_loss(left)
        yield Reply(replies.unsubscribed(self._wall(), left.number))

    def _in_turns(self, steps: CommandSteps) -> Iterator[Command]:
        yield from self._steps.do(steps)
        yield from self._ask_turn()

    def _ask_turn(self) -> Iterator[Command]:
        if not self._asked_turn and (wait := self._steps.waits) is not None:
            self._asked_turn = True
            yield Continue(wait)

    def _continued(self, *, idle: bool) -> Iterator[Command]:
        self._asked_turn = False
        if idle or self._steps.waits == 0:
            yield from self._steps.go_on(charged=not idle)
        yield from self._ask_turn()

    # --- which sources are read ------------------------------------------------------------

    def _appeared(self, info: SourceInfo) -> Iterator[Command]:
        """Also one that was there under this id before: what is left of that is still sent."""
        self._sources[info.id] = info
        self._works(info)
        self._joined.pop(info.id, None)
        yield from self._read(info)

    def _works(self, info: SourceInfo) -> None:
        self._retry.pop(info.id, None)
        for item in self._subscriptions.values():
            item.over.discard(info.id)

    def _read(self, info: SourceInfo) -> Iterator[Command]:
        """Whoever wants something of a source that is not read yet."""
        yield from self._join(info)
        for item in [item for item in self._subscriptions.values() if item.wish.devices]:
            yield from self._look_for_devices(item, info)

    def _refresh(self, new: _Subscription) -> CommandSteps:
        """Read the sources that a new subscription may want."""
        every = 1 if new.wish.pattern.patterns else _LOOKED_AT
        for seen, info in enumerate(list(self._sources.values())):
            if new.number not in self._subscriptions:
                return
            if self._sources.get(info.id) is not info:
                continue  # it was read when it came in the place of this one
            if new.wish.devices:
                yield from self._look_for_devices(new, info)
            elif self._stream(info).may_match(new.wish.pattern):
                yield from self._join(info, new)
            if seen % every == 0:
                yield None

    def _join(self, info: SourceInfo, new: _Subscription | None = None) -> Iterator[Command]:
        """Have a source read for all that want it. new: it alone is new among those."""
        reader = self._joined.get(info.id)
        members = {} if reader is None else dict(reader.members)
        if reader is not None and new is not None:
            members[new.number] = new
        else:
            may_match = self._stream(info).may_match
            for number, item in self._subscriptions.items():
                if not item.wish.devices and may_match(item.wish.pattern):
                    members[number] = item
        if reader is not None:
            yield from self._recast(reader, members)
        elif members:
            reader = _Reader(next(self._handles), info, self._stream(info), members)
            self._joined[info.id] = self._readers[reader.handle] = reader
            yield Open(reader.handle, info.id, self._form(reader), limits=_limits(reader))

    def _recast(self, reader: _Reader, members: dict[int, _Subscription]) -> Iterator[Command]:
        """Have a reader serve others, or be told that it goes on as before."""
        if members.keys() != reader.members.keys() and reader.handle in self._readers:
            fewer = members.keys() < reader.members.keys()
            served = dict(sorted(members.items()))
            reader.members, reader.before = served, reader.members
            yield Recast(reader.handle, self._form(reader), _limits(reader), fewer)
            reader.before = {}
            if reader.members is served:
                for item in served.values():
                    item.over.discard(reader.info.id)

    def _leave_reader(self, reader: _Reader) -> Iterator[Command]:
        """Have a reader serve those of its members that are still there."""
        members = {n: item for n, item in reader.members.items() if n in self._subscriptions}
        if members:
            yield from self._recast(reader, members)
        elif reader.handle in self._readers:
            self._forget(reader)
            yield Cancel(reader.handle)

    def _look_for_devices(
        self, item: _Subscription, info: SourceInfo, start: StartAt = StartAt.SNAPSHOT
    ) -> Iterator[Command]:
        """A reader of its own for a query for devices: it begins with what is there."""
        stream = self._stream(info)
        if item.number not in self._subscriptions or not stream.has_devices:
            return
        if any(item.number in r.members and r.info is info for r in self._readers.values()):
            return
        reader = _Reader(next(self._handles), info, stream, {item.number: item})
        reader.snapshot = start is StartAt.SNAPSHOT
        self._readers[reader.handle] = reader
        yield Open(reader.handle, info.id, self._form(reader), limits=_limits(reader), start=start)

    def _form(self, reader: _Reader) -> Callable[[SourceInfo], WireFormat]:
        members = list(reader.members.values())
        alone = members[0].devices if len(members) == 1 else None
        if alone is not None:
            return lambda info: devices_wire(alone, reader.stream, reader.handle, self._max_event_bytes)
        readers = tuple(item.member for item in members)
        return lambda info: events_wire(
            reader.stream, readers, multiple=self._multiple, max_event_bytes=self._max_event_bytes
        )

    def _forget(self, reader: _Reader) -> None:
        self._readers.pop(reader.handle, None)
        if self._joined.get(reader.info.id) is reader:
            del self._joined[reader.info.id]

    # --- what happened in the core ---------------------------------------------------------

    def _lost(self, handle: int, dropped: int | None) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None or dropped == 0:
            return
        for item in list(reader.members.values()):
            item.lose(dropped)
            if self._clock() - item.told_at >= LOSS_SECONDS:
                yield from self._tell_loss(item)
        if any(item.has_lost for item in reader.members.values()):
            yield from self._remind(LOSS_SECONDS)

    def _tell_loss(self, item: _Subscription) -> Iterator[Command]:
        if item.held is None and item.has_lost:
            yield from self._tell_trouble(item, item.losses(self._clock()))

    def _tell_trouble(self, item: _Subscription, words: str) -> Iterator[Command]:
        error = self._error(requests.SERVER_ERROR, item.written, words, item.number)
        if item.held is not None:
            item.held.append(error)
        else:
            yield error

    def _ended(self, handle: int, ended: Ended) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None:
            return
        self._forget(reader)
        lost = ended.dropped is None or ended.dropped > 0
        quiet = ended.reason in _OVER and not lost
        for item in list(reader.members.values()):
            if item.wish.concrete or not quiet:
                item.lose(ended.dropped)
                words = ended.message
                if item.has_lost:
                    words = f"{words}; {item.losses(self._clock())}"
                item.over.add(reader.info.id)
                yield from self._tell_trouble(item, words)
        if ended.reason is CloseReason.UNAUTHORIZED:  # or it could not be given the form that it needs now
            yield from self._try_later(reader.info)

    def _open_failed(self, handle: int, failed: OpenFailed) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None:
            return
        self._forget(reader)
        # The newest events are not kept by key, or are not for one without the right to replay.
        if reader.snapshot and failed.code not in ("unknown_source", *_PASSING):
            for item in reader.members.values():
                yield from self._look_for_devices(item, reader.info, StartAt.LATEST)
            return
        if failed.code == "unknown_source":
            return  # it is not there, or not for this client: the same answer
        passing = failed.code in _PASSING
        for item in list(reader.members.values()):
            if (passing or item.wish.concrete) and reader.info.id not in item.over:
                item.over.add(reader.info.id)
                yield from self._tell_trouble(item, failed.message)
        if passing:
            yield from self._try_later(reader.info)

    def _recast_refused(self, handle: int, refused: RecastRefused) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None:
            return
        new = [item for number, item in reader.members.items() if number not in reader.before]
        reader.members = reader.before
        for item in new:
            if reader.info.id not in item.over:
                item.over.add(reader.info.id)
                yield from self._tell_trouble(item, refused.message)
        yield from self._try_later(reader.info)

    # --- what is to be done in a while -----------------------------------------------------

    def _try_later(self, info: SourceInfo) -> Iterator[Command]:
        self._retry[info.id] = self._clock() + RETRY_SECONDS
        yield from self._remind(RETRY_SECONDS)

    def _remind(self, seconds: float) -> Iterator[Command]:
        at = self._clock() + seconds
        if self._reminded_at is None or at < self._reminded_at:
            self._reminded_at = at
            yield Remind(seconds)

    def _reminded(self) -> Iterator[Command]:
        self._reminded_at = None
        now = self._clock()
        waits = []
        for item in list(self._subscriptions.values()):
            if item.has_lost:
                if now - item.told_at >= LOSS_SECONDS:
                    yield from self._tell_loss(item)
                else:
                    waits.append(item.told_at + LOSS_SECONDS - now)
        for source_id, at in list(self._retry.items()):
            info = self._sources.get(source_id)
            if at > now:
                waits.append(at - now)
            elif info is not None:
                del self._retry[source_id]
                yield from self._in_turns(self._read(info))
        if waits:
            yield from self._remind(max(0.001, min(waits)))

    def _error(
        self,
        code: int,
        topic: bytes | None,
        words: str,
        number: int | None = None,
        breach: Breach | None = None,
    ) -> Reply:
        return Reply(replies.error(self._wall(), code, topic, words, number), breach)


def _limits(reader: _Reader) -> Mapping[Hashable, Limit]:
    return {n: item.limit for n, item in reader.members.items() if item.limit is not None}
