"""A socket, an owner and a source that exist only here, to run the core without a network.

What a client would read is one run of bytes (`FakeOutlet.wire`): events look like
`<name:partition:offset:xxx>` and notices like `{number}`, the index in `Client.notices`. So order, cuts and
losses can be read off the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.commands import Limit
from kiwi_gw.core.encoding import EncodingMemo, Wire, wire
from kiwi_gw.core.evaluation import Evaluations, Shares
from kiwi_gw.core.feed import Feed, FeedLimits, Request
from kiwi_gw.core.notices import Ended, Lagged, Notice
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import Budget
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import (
    Batch,
    Encoded,
    Gap,
    Interceptor,
    Joiner,
    Mode,
    OverflowPolicy,
    Positions,
    Shape,
    SourceInfo,
    Start,
    StartAt,
    WireFormat,
)

Place = tuple[int, int]
"""(partition, offset) of one event."""

_TOKEN = re.compile(rb"<(\w+):(\d+):(\d+):(x*)>|\{(\d+)\}|(\[)|(\])")


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeOutlet:
    """A socket that takes as much as `take` says (given what is offered), with a control lane.

    Having taken less than it was offered it is full, and nothing is tried until `writable`.
    """

    def __init__(self, take: Callable[[int], int] | None = None) -> None:
        self.clear = True
        self.wire = bytearray()
        self.sends = 0
        self.wakes = 0
        self.take = take or (lambda size: size)
        self.max_bytes = 256 * 1024
        self._tail = b""
        self._lane: list[bytes] = []
        self._ring: dict[Subscription, None] = {}
        self._full = False
        self._busy = False

    def send(self, data: memoryview | bytes) -> int:
        assert self.clear, "sent past what waits"
        self.sends += 1
        return self._write(data)

    def keep(self, tail: bytes) -> None:
        assert not self._tail
        self._tail = tail
        self.clear = False

    def wake(self, subscription: Subscription) -> None:
        self.wakes += 1
        self._ring[subscription] = None
        self._pump()

    def control(self, frame: bytes) -> None:
        self._lane.append(frame)
        self._pump()

    def writable(self) -> None:
        """The client has read: the socket takes bytes again."""
        self._full = False
        self._pump()

    @property
    def waiting(self) -> bool:
        return self._full or bool(self._tail or self._lane or self._ring)

    def _write(self, data: memoryview | bytes) -> int:
        taken = self.take(len(data))
        assert 0 <= taken <= len(data)
        self.wire += data[:taken]
        if taken < len(data):
            self._full, self.clear = True, False
        return taken

    def _pump(self) -> None:
        if self._busy or self._full:
            self.clear = self.clear and not (self._lane or self._tail)
            return
        self._busy = True
        try:
            while not self._full and self._step():
                pass
        finally:
            self._busy = False
        self.clear = not (self._full or self._tail or self._lane)

    def _step(self) -> bool:
        if self._tail:
            self._tail = self._tail[self._write(self._tail) :]
        elif self._lane:
            frame = self._lane.pop(0)
            self._tail = frame[self._write(frame) :]
        elif self._ring:
            subscription = next(iter(self._ring))
            del self._ring[subscription]
            self._serve(subscription)
        else:
            return False
        return True

    def _serve(self, subscription: Subscription) -> None:
        if subscription.lag_due:
            self._ring[subscription] = None
            subscription.owner.notify(subscription, subscription.take_lag(subscription.feed.now))
            return
        offer = subscription.offer(self.max_bytes)
        if offer is None:
            if subscription.lag_due:
                self._ring[subscription] = None
            return
        data = b"".join(offer.views)
        assert len(data) == offer.size
        self._tail = subscription.settle(offer, self._write(data) if data else 0)
        if subscription.readable:
            self._ring[subscription] = None


class Mailbox:
    """The outlet of a reader that comes by itself, as an HTTP request does."""

    clear = False

    def __init__(self) -> None:
        self.woken = 0

    def send(self, data: memoryview | bytes) -> int:
        raise AssertionError("nothing is sent to a reader that comes by itself")

    def keep(self, tail: bytes) -> None:
        raise AssertionError("nothing is sent to a reader that comes by itself")

    def wake(self, subscription: Subscription) -> None:
        self.woken += 1


class Client:
    """The owner of subscriptions, with its outlet: writes every notice on the wire behind what was sent."""

    def __init__(self, take: Callable[[int], int] | None = None) -> None:
        self.outlet = FakeOutlet(take)
        self.notices: list[Notice] = []
        self.heard: Callable[[Subscription, Notice], None] | None = None

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        self.notices.append(notice)
        self.outlet.control(b"{%d}" % (len(self.notices) - 1))
        if self.heard is not None:
            self.heard(subscription, notice)

    def read(self) -> list[Event | Notice]:
        """What is on the wire, which must be whole events and notices and nothing else."""
        return parse(bytes(self.outlet.wire), self.notices)

    @property
    def places(self) -> list[Place]:
        """The events that it was sent, in order."""
        return [item.place for item in self.read() if isinstance(item, Event)]

    @property
    def lags(self) -> list[Lagged]:
        return [notice for notice in self.notices if isinstance(notice, Lagged)]

    @property
    def ends(self) -> list[Ended]:
        return [notice for notice in self.notices if isinstance(notice, Ended)]


@dataclass(frozen=True)
class Event:
    """One event as a client reads it. `name` is that of the format."""

    name: str
    place: Place


def parse(data: bytes, notices: Sequence[Notice] = ()) -> list[Event | Notice]:
    """Reads a wire. AssertionError where anything but whole events and notices is on it."""
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


def joined(fragments: bytes) -> bytes:
    """A joiner: `[` and `]` around a run of fragments."""
    assert fragments
    return b"[%b]" % fragments


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
    join: Joiner | None = None,
) -> WireFormat:
    """Writes events under a name. keep: which pass its filter; big: which are too large to be sent;
    fails: which make it raise EncodingFailed."""

    def encode(batch: Batch) -> Encoded:
        places = list(zip(batch.partitions, batch.offsets, strict=True))
        if fails is not None and any(map(fails, places)):
            raise EncodingFailed("this event cannot be encoded")
        unsendable = tuple(i for i, place in enumerate(places) if big is not None and big(place))
        here = [(keep is None or keep(place)) for place in places]
        parts = [
            fragment(name, *place) if yes and i not in unsendable else b""
            for i, (place, yes) in enumerate(zip(places, here, strict=True))
        ]
        return Encoded(
            buffer=b"".join(parts),
            ends=list(accumulate(map(len, parts))),
            tally=None if keep is None else list(accumulate(map(int, here), initial=0)),
            unsendable=unsendable,
        )

    return WireFormat(("names", name), encode, join)


INFO = SourceInfo("source", "fake", Shape(()))
REPLAYABLE = SourceInfo("source", "fake", Shape(()), replayable=True)


@dataclass
class World:
    """One source with its feed; makes its batches and remembers what it made."""

    limits: FeedLimits = field(default_factory=FeedLimits)
    memory: int = 1 << 40
    memo_bytes: int = 1 << 40
    start: Positions = field(default_factory=lambda: {0: 0})
    begin: bool = True
    info: SourceInfo = INFO
    shares: Shares | None = None

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.evaluations: Evaluations | None = None
        if self.shares is not None:
            self.evaluations = Evaluations(self.shares, self.clock, self.clock)
        self.budget = Budget(self.memory)
        self.mistakes: list[Exception] = []
        self.memo = EncodingMemo(self.memo_bytes, self.budget, self.mistakes.append, self.evaluations)
        self.feed = Feed(self.info, self.limits, self.memo, self.budget, self.clock)
        self.next = dict(self.start)
        self.made: list[Place] = []
        if self.begin:
            self.feed.started(self.start)

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
        """The next event of each of these partitions, in this order. hole: offsets left out before them."""
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
        for _ in self.feed.publish(batch):
            pass
        return list(zip(batch.partitions, batch.offsets, strict=True))

    def subscribe(
        self,
        client: Client,
        form: WireFormat | None = None,
        *,
        credit: int | None = None,
        capacity: int | None = None,
        overflow: OverflowPolicy | None = None,
        limits: Mapping[Hashable, Limit] | None = None,
        until: Positions | None = None,
        interceptor: Interceptor | None = None,
        start: Start = StartAt.LATEST,
        report_every: float | None = None,
        handle: Hashable = "h",
        payer: Payer | None = None,
    ) -> Subscription:
        """credit: None, push; else the first balance of a pull subscription."""
        item: Wire = wire(form or names(), interceptor)
        mode = Mode.PUSH if credit is None else Mode.PULL
        most = limits or {}
        request = Request(
            handle, item, mode, credit or 0, most, overflow, capacity, until, start, report_every, payer
        )
        return self.feed.subscribe(request, client.outlet, client)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.feed.sweep()
