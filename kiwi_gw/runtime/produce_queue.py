"""Records that clients write to one source, on their way to it.

What comes while the source writes is what it gets next, and there is no more than one call at a time. Who
sends one record and waits for it never waits longer: only behind a call with many records others gather for a
moment. Connections are taken in turn, some records of each. Those that have just begun to wait have turns of
their own: who sends one record goes before those who send without end, as in fair queues of networks (RFC
8290, 3.3). Every record is answered in time, even by a source that hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Final, Protocol

import structlog
import trio

from kiwi_gw.api import Producer
from kiwi_gw.model import Outgoing, Published, Refusal, Unpublished
from kiwi_gw.runtime.fan_out_pace import FanOutPace
from kiwi_gw.runtime.meters import SourceMeter
from kiwi_gw.runtime.plugin_faults import FaultBarrier

log = structlog.get_logger(__name__)

MOST_BYTES: Final = 16 << 20
"""Records of one source that are not answered."""
_AT_ONCE, _AT_ONCE_TICKETS, _AT_ONCE_BYTES = 1_024, 512, 2 << 20
"""Records, and tickets, that are handed over together: who publishes little waits for no more than that of
others, and everybody for making batches of the records (1 to 3 us each), and for answering tickets (3 us)."""
TURN_RECORDS: Final = 32
"""Records of a connection's turn. A ticket has no more."""
_MANY: Final = 8
_GATHER_SECONDS: Final = 0.002
"""How long records gather behind a call that had so many lone ones of the same connections: who sends them
without end would have a call made for each of its packets, which everybody pays for."""
_LEAST_SECONDS: Final = 0.5
"""With less than that left a record is not handed over: it would be in doubt for no good reason."""
_GRACE_SECONDS: Final = 0.25
"""How long after its time a source may still say what became of records."""
_SWEEP_SECONDS: Final = 0.1
"""How often it is looked for records that cannot be handed over in time any more."""
_SLICE_SECONDS: Final = 0.005
"""How long answers are given before others have their turn."""
RECORD_OVERHEAD: Final = 256
"""That a record counts more than it has."""

ProduceResult = Published | Unpublished | Refusal

_IN_DOUBT = Unpublished("not known whether it was written", retriable=True, known=False)
_NOT_IN_TIME = Unpublished("not written: the source did not come to it in time", retriable=True, known=True)
_RESTING = Unpublished("not written: the source does not run just now", retriable=True, known=True)
_UNABLE = Unpublished("not written: this source cannot be written to", retriable=False, known=True)


@dataclass(slots=True, eq=False)
class ProduceTicket:
    """Records of one connection that are handed over together. size: of all of them, as it counts. deadline:
    by Trio's clock. results: of each; none until they are known."""

    handle: Hashable
    records: Sequence[Outgoing]
    size: int
    asked_at: float | None
    deadline: float
    results: Sequence[ProduceResult] = ()


class ProduceFeed(Protocol):
    """What one connection has on its way."""

    def settle(self) -> None:
        """Look for records that have a result now."""

    def make_room(self) -> None:
        """See whether the client may be read again."""


class ProduceQueue:
    """Hand records over to one source. source: as it runs now, None while it does not. spawn: starts a task
    that outlives the call. pace: of fan-out, which gives way to them. meter: None for no measuring."""

    def __init__(
        self,
        source: Callable[[], object],
        spawn: Callable[[Callable[[], Awaitable[None]]], object],
        pace: FanOutPace,
        meter: SourceMeter | None,
    ) -> None:
        self._source, self._spawn, self._pace, self._meter = source, spawn, pace, meter
        # Of both, whose turn is next comes first.
        self._begun: dict[ProduceFeed, deque[ProduceTicket]] = {}  # those that have had no turn yet
        self._waiting: dict[ProduceFeed, deque[ProduceTicket]] = {}
        self._sweep_at = 0.0
        self._bytes = 0
        self._blocked: set[ProduceFeed] = set()
        self._running = False
        self._producer: Producer | None = None  # the last one that there was

    @property
    def full(self) -> bool:
        """Whether clients that publish here are not to be read."""
        return self._bytes >= MOST_BYTES

    def add(self, feed: ProduceFeed, ticket: ProduceTicket) -> None:
        """Take records. They are answered later, or never if `drop` comes before."""
        waiting = self._waiting.get(feed)
        (self._begun.setdefault(feed, deque()) if waiting is None else waiting).append(ticket)
        self._bytes += ticket.size
        if self.full:
            self._blocked.add(feed)
        if not self._running:
            self._running = True
            self._spawn(self._run)

    def drop(self, feed: ProduceFeed) -> None:
        """Forget what waits of a connection that is gone."""
        self._blocked.discard(feed)
        if left := [*self._begun.pop(feed, ()), *self._waiting.pop(feed, ())]:
            self._release(left)

    def refuse(self, feed: ProduceFeed, refusal: Refusal) -> None:
        """Give what waits of a connection this for its result, which is still to be told."""
        tickets = [*self._begun.pop(feed, ()), *self._waiting.pop(feed, ())]
        for ticket in tickets:
            ticket.results = [refusal] * len(ticket.records)
        self._release(tickets)

    # --- inside ----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._begun or self._waiting:
                tickets, late = self._gather()
                await self._answer(late)
                await self._hand_over(list(tickets))
                await self._answer(tickets)
                lone = sum([len(ticket.records) == 1 for ticket in tickets])
                if lone - len(set(tickets.values())) >= _MANY:
                    await trio.sleep(_GATHER_SECONDS)
                else:  # what comes in the same round of the event loop goes together
                    await trio.lowlevel.checkpoint()
        finally:
            self._running = False

    def _gather(self) -> tuple[dict[ProduceTicket, ProduceFeed], dict[ProduceTicket, ProduceFeed]]:
        """Take what is handed over next, a turn of each connection after the other; and apart from it what
        has waited for too long."""
        now = trio.current_time()
        late = self._take_late(now)
        tickets: dict[ProduceTicket, ProduceFeed] = {}
        count = size = 0
        turns = self._begun, self._waiting
        while (
            (self._begun or self._waiting)
            and count < _AT_ONCE
            and size < _AT_ONCE_BYTES
            and len(tickets) < _AT_ONCE_TICKETS
        ):
            turns = turns[1], turns[0]
            whose = turns[0] or turns[1]
            feed = next(iter(whose))
            waiting = whose.pop(feed)
            most = count + max(TURN_RECORDS, len(waiting[0].records))
            while waiting and count + len(waiting[0].records) <= most and size < _AT_ONCE_BYTES:
                ticket = waiting.popleft()
                if ticket.deadline - now < _LEAST_SECONDS:
                    late[ticket] = feed
                else:
                    count += len(ticket.records)
                    size += ticket.size
                    tickets[ticket] = feed
            if waiting:
                self._waiting[feed] = waiting
        for ticket in late:
            ticket.results = [_NOT_IN_TIME] * len(ticket.records)
        return tickets, late

    def _take_late(self, now: float) -> dict[ProduceTicket, ProduceFeed]:
        """Take what has waited for too long, whoever's turn it is: now and then, for there may be many."""
        late: dict[ProduceTicket, ProduceFeed] = {}
        if now < self._sweep_at:
            return late
        self._sweep_at = now + _SWEEP_SECONDS
        for group in (self._begun, self._waiting):
            for feed, waiting in list(group.items()):
                while waiting and waiting[0].deadline - now < _LEAST_SECONDS:
                    late[waiting.popleft()] = feed
                if not waiting:
                    del group[feed]
        return late

    async def _hand_over(self, tickets: Sequence[ProduceTicket]) -> None:
        """Have the source write them, and note what became of each."""
        if not tickets:
            return
        source = self._source()
        producer = self._producer
        if source is not producer:  # asking a protocol takes as long as a record
            producer = self._producer = source if isinstance(source, Producer) else None
        if producer is None:
            none = _RESTING if source is None else _UNABLE
            _note(tickets, repeat(none))
            return
        began = trio.current_time()
        within = min([ticket.deadline for ticket in tickets]) - began
        records = list(chain.from_iterable([ticket.records for ticket in tickets]))
        self._pace.records_written(len(records))
        results: Sequence[ProduceResult] = ()
        with FaultBarrier() as barrier, trio.move_on_after(within + _GRACE_SECONDS):
            results = await producer.produce(records, within)
            if len(results) != len(records):
                raise ValueError(f"{len(records)} records were handed over, and have {len(results)} results")
            if not all(issubclass(kind, Published | Unpublished) for kind in set(map(type, results))):
                raise TypeError("a result of a record is neither a Published nor an Unpublished")
        if barrier.error is not None:
            log.error("a source failed to write", exc_info=barrier.error)
            results = ()
        if self._meter is not None:
            self._meter.produce_duration.observe(trio.current_time() - began)
        _note(tickets, results or repeat(_IN_DOUBT))

    async def _answer(self, tickets: Mapping[ProduceTicket, ProduceFeed]) -> None:
        """Tell the connections, each of all that it has at once."""
        if self._meter is not None:
            for ticket in tickets:
                _count(ticket.results, self._meter.produced)
        self._release(tickets)
        until = trio.current_time() + _SLICE_SECONDS
        for feed in dict.fromkeys(tickets.values()):
            feed.settle()
            if trio.current_time() >= until:
                await trio.lowlevel.checkpoint()
                until = trio.current_time() + _SLICE_SECONDS

    def _release(self, tickets: Iterable[ProduceTicket]) -> None:
        self._bytes -= sum([ticket.size for ticket in tickets])
        if self._blocked and not self.full:
            blocked, self._blocked = self._blocked, set()
            for feed in blocked:
                feed.make_room()


def _note(tickets: Sequence[ProduceTicket], results: Iterable[ProduceResult]) -> None:
    """Say of each ticket what became of its records."""
    left = iter(results)
    for ticket in tickets:
        ticket.results = list(islice(left, len(ticket.records)))


def _count(results: Sequence[ProduceResult], counted: MutableMapping[str, int]) -> None:
    """Count what became of records, by its name for operators."""
    unpublished = [result for result in results if isinstance(result, Unpublished)]
    if len(unpublished) < len(results):
        counted["written"] += len(results) - len(unpublished)
    for result in unpublished:
        counted["not_written" if result.known else "unknown"] += 1
