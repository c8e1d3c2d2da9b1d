"""A socket, an owner and a source that exist only here, to run the core without a network.

What a client would read is one run of bytes (`FakeFrameWriter.wire`): events look like
`<name:partition:offset:xxx>` and notices like `{number}`, the index in `Client.notices`. So order, cuts and
losses can be read off the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.commands import LabelLimit, Open
from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.lag_watch import take_lag
from kiwi_gw.core.notices import Ended, Lagged, Notice
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.round_budget import LIGHT_USER_SECONDS, ROUND_SECONDS, RoundBudget
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.transforms import per_record
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import (
    Batch,
    Encoded,
    EventSchema,
    EventTransform,
    Framing,
    Gap,
    Interceptor,
    Mode,
    OverflowPolicy,
    Positions,
    SourceInfo,
    Start,
    StartAt,
    WireFormat,
)

ENDLESS = 1 << 60

Place = tuple[int, int]
"""(partition, offset) of one event."""

_TOKEN = re.compile(rb"<(\w+):(\d+):(\d+):(x*)>|\{(\d+)\}|(\[)|(\])")


class Clock:
    """Hold the seconds, moved by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeFrameWriter:
    """Take as much as `take` says (given what is offered), like a socket with a control queue.

    Once it has taken less than it was offered, it is full, and nothing is tried until `drain`.
    """

    def __init__(self, take: Callable[[int], int] | None = None) -> None:
        self.writable, self.awaits_turn = True, False
        self.wire = bytearray()
        self.sends = 0
        self.wakes = 0
        self.take = take or (lambda size: size)
        self.max_bytes = 256 * 1024
        self._partial_frame = b""
        self._control_queue: list[bytes] = []
        self._ready: dict[Subscription, None] = {}
        self._full = False
        self._busy = False

    def send(self, data: memoryview | bytes) -> int:
        assert self.writable, "sent past what waits"
        self.sends += 1
        return self._write(data)

    def send_many(self, parts: Sequence[memoryview | bytes]) -> int:
        return self.send(b"".join(parts))

    def hold_remainder(self, tail: bytes) -> None:
        assert not self._partial_frame
        self._partial_frame = tail
        self.writable = False

    def mark_ready(self, subscription: Subscription) -> None:
        self.wakes += 1
        self._ready[subscription] = None
        if not self.awaits_turn:
            self._pump()

    def control(self, frame: bytes) -> None:
        self._control_queue.append(frame)
        self._pump()

    def drain(self) -> None:
        """Make room, as if the client had read: the socket takes bytes again."""
        self._full = False
        self._pump()

    @property
    def waiting(self) -> bool:
        return self._full or bool(self._partial_frame or self._control_queue or self._ready)

    def _write(self, data: memoryview | bytes) -> int:
        taken = self.take(len(data))
        assert 0 <= taken <= len(data)
        self.wire += data[:taken]
        if taken < len(data):
            self._full, self.writable = True, False
        return taken

    def _pump(self) -> None:
        if self._busy or self._full:
            self.writable = self.writable and not (self._control_queue or self._partial_frame)
            return
        self._busy = True
        try:
            while not self._full and self._step():
                pass
        finally:
            self._busy = False
        self.writable = not (self._full or self._partial_frame or self._control_queue)

    def _step(self) -> bool:
        if self._partial_frame:
            self._partial_frame = self._partial_frame[self._write(self._partial_frame) :]
        elif self._control_queue:
            frame = self._control_queue.pop(0)
            self._partial_frame = frame[self._write(frame) :]
        elif self._ready:
            subscription = next(iter(self._ready))
            del self._ready[subscription]
            self._serve(subscription)
        else:
            return False
        return True

    def _serve(self, subscription: Subscription) -> None:
        if subscription.lag_due:
            self._ready[subscription] = None
            subscription.owner.notify(subscription, take_lag(subscription, subscription.hub.now))
            return
        prepared = subscription.prepare(self.max_bytes)
        if prepared is None:
            if subscription.lag_due:
                self._ready[subscription] = None
            return
        data = b"".join(prepared.views)
        assert len(data) == prepared.size
        self._partial_frame = subscription.commit(prepared, self._write(data) if data else 0)
        if subscription.readable:
            self._ready[subscription] = None


class Mailbox:
    """Write for a reader that comes by itself, as an HTTP request does."""

    writable = awaits_turn = False

    def __init__(self) -> None:
        self.woken = 0

    def send(self, data: memoryview | bytes) -> int:
        raise AssertionError("nothing is sent to a reader that comes by itself")

    def send_many(self, parts: Sequence[memoryview | bytes]) -> int:
        raise AssertionError("nothing is sent to a reader that comes by itself")

    def hold_remainder(self, tail: bytes) -> None:
        raise AssertionError("nothing is sent to a reader that comes by itself")

    def mark_ready(self, subscription: Subscription) -> None:
        self.woken += 1


class Client:
    """Own subscriptions, with their frame writer: every notice is written behind what was sent."""

    def __init__(self, take: Callable[[int], int] | None = None) -> None:
        self.writer = FakeFrameWriter(take)
        self.notices: list[Notice] = []
        self.heard: Callable[[Subscription, Notice], None] | None = None

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        self.notices.append(notice)
        self.writer.control(b"{%d}" % (len(self.notices) - 1))
        if self.heard is not None:
            self.heard(subscription, notice)

    def read(self) -> list[Event | Notice]:
        """Return what is on the wire, which must be whole events and notices and nothing else."""
        return parse(bytes(self.writer.wire), self.notices)

    @property
    def places(self) -> list[Place]:
        """Return the events that it was sent, in order."""
        return [item.place for item in self.read() if isinstance(item, Event)]

    @property
    def lags(self) -> list[Lagged]:
        return [notice for notice in self.notices if isinstance(notice, Lagged)]

    @property
    def ends(self) -> list[Ended]:
        return [notice for notice in self.notices if isinstance(notice, Ended)]


class BoundedClient(Client):
    """Take no more than there is room for (bytes)."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.room = ENDLESS

    def _take(self, size: int) -> int:
        taken = min(size, self.room)
        self.room -= taken
        return taken


def take(subscription: Subscription, max_events: int, max_bytes: int) -> bytes:
    """Read as a request does: the bytes of what may be read now, b"" if nothing may.

    The owner is notified of a loss before the bytes that follow it are returned. A limit or an end that is
    reported meanwhile comes after them.
    """
    while True:
        if subscription.lag_due:
            subscription.owner.notify(subscription, take_lag(subscription, subscription.hub.now))
        prepared = subscription.prepare(max_bytes, max_events)
        if prepared is not None:
            data = b"".join(prepared.views)
            subscription.commit(prepared, len(data))
            if data:
                return data
        elif not subscription.lag_due:
            return b""


@dataclass(frozen=True)
class Event:
    """Hold one event as a client reads it. `name` is that of the format."""

    name: str
    place: Place


def parse(data: bytes, notices: Sequence[Notice] = ()) -> list[Event | Notice]:
    """Read a wire. AssertionError where anything but whole events and notices is on it."""
    items: list[Event | Notice] = []
    at = 0
    joined = False
    while at < len(data):
        match = _TOKEN.match(data, at)
        assert match is not None, f"not a whole frame at {at}: {data[at : at + 40]!r}"
        if match[6] or match[7]:
            assert joined == bool(match[7])
            joined = not joined
        elif match[5] is not None:
            assert not joined
            items.append(notices[int(match[5])])
        else:
            assert len(match[4]) == _padding(int(match[3]))
            items.append(Event(match[1].decode(), (int(match[2]), int(match[3]))))
        at = match.end()
    return items


JOINED = Framing(lambda size: b"[" if size else b"an empty frame", b"]", separator=0, max_bytes=100)
"""Frames with `[` and `]` around a few fragments."""


def _padding(offset: int) -> int:
    return offset * 7 % 13


def fragment(name: str, partition: int, offset: int) -> bytes:
    return b"<%s:%d:%d:%s>" % (name.encode(), partition, offset, b"x" * _padding(offset))


def names(
    name: str = "e",
    *,
    keep: Callable[[Place], bool] | None = None,
    big: Callable[[Place], bool] | None = None,
    fails: Callable[[Place], bool] | None = None,
    ends: Callable[[Place], bool] | None = None,
    framing: Framing | None = None,
) -> WireFormat:
    """Write events under a name. keep: which pass its filter; big: which are too large to be sent; fails:
    which make it raise EncodingFailed; ends: which end whoever comes to them."""

    def encode(batch: Batch) -> Encoded:
        places = list(zip(batch.partitions, batch.offsets, strict=True))
        if fails is not None and any(map(fails, places)):
            raise EncodingFailed("this event cannot be encoded")
        last = [i for i, place in enumerate(places) if ends is not None and ends(place)]
        unsendable = tuple(i for i, place in enumerate(places) if big is not None and big(place))
        here = [(keep is None or keep(place)) for place in places]
        parts = [
            fragment(name, *place) if yes and i not in unsendable else b""
            for i, (place, yes) in enumerate(zip(places, here, strict=True))
        ]
        return Encoded(
            buffer=b"".join(parts),
            ends=list(accumulate(map(len, parts))),
            prefix_counts=None if keep is None else list(accumulate(map(int, here), initial=0)),
            unsendable=unsendable,
            failing=tuple(last),
        )

    return WireFormat(("names", name), encode, framing)


def transform(interceptor: Interceptor) -> EventTransform:
    """Return what the hooks make of an interceptor."""
    return EventTransform(per_record(interceptor.apply), interceptor.key)


INFO = SourceInfo("source", "fake", EventSchema(()))
REPLAYABLE = SourceInfo("source", "fake", EventSchema(()), replayable=True)


def another(budget: RoundBudget) -> None:
    """Have the event loop get round; what is owed is forgotten."""
    budget.left = ROUND_SECONDS
    budget.light_left = LIGHT_USER_SECONDS


class RoundByRound(Evaluations):
    """Put each turn of the task that goes on with what is postponed into another round."""

    def __init__(self, shares: CpuShares, budget: RoundBudget, clock: Clock) -> None:
        super().__init__(shares, budget, clock)
        self._budget = budget

    def go_on(self, *, idle: bool) -> float | None:
        another(self._budget)
        return super().go_on(idle=idle)


@dataclass
class World:
    """Hold one source with its hub; makes its batches and remembers what it made."""

    limits: HubLimits = field(default_factory=HubLimits)
    memory: int = 1 << 40
    memo_bytes: int = 1 << 40
    start: Positions = field(default_factory=lambda: {0: 0})
    begin: bool = True
    info: SourceInfo = INFO
    shares: CpuShares | None = None

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.round = RoundBudget(self.clock)
        self.evaluations: RoundByRound | None = None
        if self.shares is not None:
            self.evaluations = RoundByRound(self.shares, self.round, self.clock)
        self.budget = MemoryBudget(self.memory)
        self.mistakes: list[Exception] = []
        self.memo = EncodingMemo(self.memo_bytes, self.budget, self.mistakes.append, self.evaluations)
        self.hub = SourceHub(self.info, self.limits, self.memo, self.budget, self.clock)
        self.next = dict(self.start)
        self.made: list[Place] = []
        if self.begin:
            self.hub.started(self.start)

    def batch(
        self,
        partitions: Iterable[int],
        *,
        gap: Gap | None = None,
        hole: int = 0,
        cost: int = 0,
        values: Sequence[object] | None = None,
        keys: Sequence[object] | None = None,
    ) -> Batch:
        """Make the next event of each of these partitions, in order. hole: offsets left out before them."""
        for partition in {*self.next} if hole else ():
            self.next[partition] += hole
        if gap is not None:
            for partition, (_, last) in gap.ranges.items():
                self.next[partition] = last + 1
        starts = dict(self.next)
        places: list[Place] = []
        for partition in partitions:
            places.append((partition, self.next[partition]))
            self.next[partition] += 1
        self.made += places
        columns = {} if values is None else {"value": values}
        if keys is not None:
            columns["key"] = keys
        return Batch(starts, [p for p, _ in places], [o for _, o in places], columns, cost, gap)

    def produce(self, events: int | Sequence[int], **options: object) -> list[Place]:
        """Publish one batch to the end: so many events of partition 0, or one of each partition listed."""
        batch = self.batch([0] * events if isinstance(events, int) else events, **options)  # type: ignore[arg-type]
        another(self.round)
        for _ in publish(self.hub, batch):
            another(self.round)
        return list(zip(batch.partitions, batch.offsets, strict=True))

    def subscribe(
        self,
        client: Client,
        form: WireFormat | None = None,
        *,
        credit: int | None = None,
        capacity: int | None = None,
        overflow: OverflowPolicy | None = None,
        limits: Mapping[Hashable, LabelLimit] | None = None,
        until: object = None,
        interceptor: Interceptor | None = None,
        before: Sequence[EventTransform] = (),
        start: Start = StartAt.LATEST,
        report_every: float | None = None,
        handle: Hashable = "h",
        payer: Payer | None = None,
    ) -> Subscription:
        """Subscribe a client. credit: None, push; else the first balance of a pull one. until: as JSON."""
        made = form or names()
        command = Open(
            handle,
            self.hub.info.id,
            lambda info: made,
            Mode.PUSH if credit is None else Mode.PULL,
            credit or 0,
            limits or {},
            overflow,
            capacity,
            start,
            until,
            report_every,
        )
        item = keyed_format(made, before if interceptor is None else [transform(interceptor)])
        return self.hub.subscribe(command, item, client.writer, client, payer)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.hub.sweep()
