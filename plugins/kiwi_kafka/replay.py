"""Reads a topic again, with a consumer of its own that nobody else's reading waits for.

As in `reader.py` the consumer is disposable: the stretch knows where reading goes on. So a read that is
cancelled, or that fails, costs a seek or another consumer, and nothing is read twice or not at all.
"""

from __future__ import annotations

import math
from typing import Protocol

import structlog
import trio

from kiwi_gw.api import Batch, Positions
from kiwi_kafka.lease import Lease
from kiwi_kafka.pause import Pauses
from kiwi_kafka.repairs import REPAIRABLE, Helper, Repairs
from kiwi_kafka.seam import Consumer, Place, UnreachableError
from kiwi_kafka.stretch import Stretch
from kiwi_kafka.turns import Turns

log = structlog.get_logger("kiwi_kafka")

_WAIT_MS = 50
"""How long one read waits for records, before it looks whether only empty offsets were passed."""
_TURN_RECORDS = 1_000
_TURN_BYTES = 1024 * 1024
_FIRST_RECORDS = 100
"""Of the first read, when nobody knows yet how large records are."""
_CHECK_S = 0.02
"""How old the last look at the topic's id may be when records are handed over: less than it takes to delete a
topic and to make it anew."""
_NOTHING_S = 1.0
"""Nothing for so long: perhaps there is nothing up to the end of the log."""


class Archive(Helper, Protocol):
    """What a replay needs of the pool."""

    async def history_consumer(self) -> Consumer:
        """A new consumer, as soon as a broker answers."""

    def suspect(self) -> None:
        """Something did not work that should: look at the brokers at once."""

    async def find_range(self, lease: Lease, partition: int) -> None:
        """Find out where to go on with a partition that rests."""

    async def check(self, lease: Lease) -> None:
        """End the lease if its topic is another one by now."""

    async def nothing_before(self, place: Place, offset: int) -> int | None:
        """If no record is kept from `offset` to the end: the end."""


class Replay:
    """A `HistoryReader` of `kiwi_gw.api`. One task uses it at a time; `close` it at last.

    One read is one turn of the client: at most 1,000 records and about a megabyte, so that the event loop
    does nothing else for no more than a few milliseconds.
    """

    def __init__(self, archive: Archive, stretch: Stretch, turns: Turns, poll_records: int) -> None:
        self.records = 0  # received so far
        self._archive = archive
        self._stretch = stretch
        self._turns = turns
        self._repairs = Repairs(archive, (stretch,))
        self._pauses = Pauses(0.1, 5.0)
        self._consumer: Consumer | None = None
        self._assigned: set[Place] = set()
        self._arrived: set[Place] = set()  # where the consumer may be further than the stretch
        self._paused: set[Place] = set()
        self._astray = False  # the consumer may be elsewhere than the stretch
        self._stale = False
        self._turn_records = min(_TURN_RECORDS, poll_records)
        self._most = min(_FIRST_RECORDS, poll_records)
        self._moved = trio.current_time()
        self._checked_at = -math.inf

    async def read(self, until: Positions) -> Batch:
        """The next events below `until`, as in `kiwi_gw.api`. SourceChanged: it is another topic by now."""
        await trio.lowlevel.checkpoint()
        stretch = self._stretch
        stretch.aim(until)
        self._moved = trio.current_time()
        stretch.wanted = True
        try:
            while (batch := stretch.next_batch()) is None:
                await self._turn()
        finally:
            stretch.wanted = False
        return batch

    @property
    def idle(self) -> bool:
        """Whether nobody waits for what it reads."""
        return not self._stretch.wanted

    async def close(self) -> None:
        """Give the consumer back."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    # --- for the pool ---

    def reassign(self) -> None:
        """The lease has ended: the next read sees it."""

    def rebuild(self) -> None:
        """Throw the consumer away, if there is one; the next read makes another."""
        self._stale = True

    # --- details ---

    async def _turn(self) -> None:
        """One read of the consumer, or what must be done before the next one."""
        stretch = self._stretch
        for partition in sorted(stretch.held):
            await self._archive.find_range(stretch, partition)
        places = stretch.places()
        if not places:
            return
        try:
            consumer = await self._steered(places)
            await self._read(consumer)
        except UnreachableError as error:
            log.debug("kafka consumer given up", error=str(error))
            self._stale = True
            self._archive.suspect()
            await trio.sleep(self._pauses.next())

    async def _read(self, consumer: Consumer) -> None:
        stretch = self._stretch
        self._astray = True
        try:
            # Of all of them: what was fetched of a partition that rests is thus thrown away, and does not
            # keep the client from fetching more.
            fetched = await consumer.read((), _WAIT_MS, self._most)
        except REPAIRABLE as error:
            self.records += await self._repairs.repair(consumer, error)
            self._stale = self._stale or bool(stretch.held)
        else:
            parts = fetched.get(stretch.topic, [])
            if parts and trio.current_time() - self._checked_at >= _CHECK_S:
                # A topic that was deleted and made anew while nobody read answers as if it were the old one.
                await self._archive.check(stretch)
                self._checked_at = trio.current_time()
            count = sum(len(part.records) for part in parts)
            stretch.offer(parts)
            # Noted at once: the end may be moved on before the next turn.
            self._arrived |= self._assigned - stretch.places().keys()
            if not count:
                await self._follow(consumer)
            else:
                self.records += count
                self._moved = trio.current_time()
                self._pauses.reset()
                self._most = stretch.turn_of(_TURN_BYTES, self._turn_records)
        self._astray = bool(stretch.doubted)  # what came of them was thrown away

    async def _steered(self, places: dict[Place, int]) -> Consumer:
        """The consumer, which reads exactly these places, from there."""
        if self._turns.is_over(self):
            await self.close()
            self._turns.give(self)
        await self._turns.take(self)
        if self._stale:
            await self.close()
            self._assigned.clear()  # one that has arrived may be what was wrong
        elif not places.keys() <= self._assigned:
            await self.close()
        consumer = self._consumer
        if consumer is None:
            consumer = await self._new_consumer(places)
        if self._astray:
            await self._repairs.rewind(consumer)
            self._astray = False
        resting = self._arrived - self._paused - places.keys()
        again = {place: places[place] for place in self._arrived & places.keys()}
        if resting:
            await consumer.pause(resting)
            self._paused |= resting
        if again:
            await consumer.resume(again)
            self._arrived -= again.keys()
            self._paused -= again.keys()
        return consumer

    async def _new_consumer(self, places: dict[Place, int]) -> Consumer:
        self._stale = False
        consumer = self._consumer = await self._archive.history_consumer()
        # Partitions that have arrived rest in it, so that they need no other one when their end is moved.
        arrived = {place: self._stretch.next[place.partition] for place in self._assigned}
        self._paused, self._astray = set(), False
        try:
            await consumer.assign(arrived | places)
        except BaseException:
            self._stale = True
            raise
        self._assigned |= places.keys()
        self._arrived = self._assigned - places.keys()
        await self._archive.check(self._stretch)
        return consumer

    async def _follow(self, consumer: Consumer) -> None:
        """Move the stretch over offsets that hold no record: markers of transactions, compaction."""
        stretch = self._stretch
        places = stretch.places()
        for place, offset in (await consumer.positions(places)).items():
            if offset > places[place]:
                stretch.advance(place.partition, offset)
                self._moved = trio.current_time()
        self._arrived |= self._assigned - stretch.places().keys()
        if trio.current_time() - self._moved < _NOTHING_S:
            return
        # What compaction leaves at the end of a log shows no client how far it is.
        self._moved = trio.current_time()
        for place, offset in stretch.places().items():
            end = await self._archive.nothing_before(place, offset)
            if end is not None:
                stretch.advance(place.partition, end)
