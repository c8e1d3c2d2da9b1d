"""Read a topic again, with a consumer of its own, so that no other reading waits for it.

As in `live/consumer_task.py` the consumer is disposable: the topic reader knows where reading goes on. So a
read that is cancelled or fails costs a seek or another consumer. No record is read twice or left out.
"""

from __future__ import annotations

import math

import structlog
import trio

from kiwi_gw.api import Backoff, Batch, Positions
from kiwi_kafka.history.bounded_topic_reader import BoundedTopicReader
from kiwi_kafka.history.replay_scheduler import ReplayScheduler
from kiwi_kafka.live.fetch_recovery import RECOVERABLE, FetchRecovery
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.monitor.topic_lookup import TopicLookup
from kiwi_kafka.ports import ClientFactory, Consumer, TopicPartition, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_WAIT_MS = 50
"""How long one read waits for records."""
_TURN_RECORDS = 1_000
_TURN_BYTES = 1024 * 1024
_FIRST_RECORDS = 100
"""Of the first read, when it is not known yet how large records are."""
_CHECK_S = 0.02
"""How old the last look at the topic's id may be when records are handed over: less than it takes to delete a
topic and to make it anew."""
_NOTHING_S = 1.0
"""Nothing for so long: perhaps there is nothing up to the end of the log."""


class TopicHistoryReader:
    """Implement `HistoryReader` of `kiwi_gw.api`. One task uses it at a time; `close` it at last.

    One read is one turn of the client: at most 1,000 records and about a megabyte, so that the event loop
    does nothing else for no more than a few milliseconds.
    """

    def __init__(
        self,
        lookup: TopicLookup,
        clients: ClientFactory,
        topic_reader: BoundedTopicReader,
        scheduler: ReplayScheduler,
        poll_records: int,
    ) -> None:
        self.records = 0  # received so far
        self._lookup = lookup
        self._clients = clients
        self._topic_reader = topic_reader
        self._scheduler = scheduler
        self._recovery = FetchRecovery((topic_reader,), lookup.find_corrupt_batch, _rests)
        self._backoff = Backoff(0.1, 5.0)
        self._consumer: Consumer | None = None
        self._assigned: set[TopicPartition] = set()
        self._arrived: set[TopicPartition] = set()  # where the consumer may be further than the topic reader
        self._paused: set[TopicPartition] = set()
        self._astray = False  # the consumer may be elsewhere than the topic reader
        self._stale = False
        self._turn_records = min(_TURN_RECORDS, poll_records)
        self._most = min(_FIRST_RECORDS, poll_records)
        self._moved = trio.current_time()
        self._checked_at = -math.inf

    async def read(self, until: Positions) -> Batch:
        """Return the next events below `until`, as in `kiwi_gw.api`. SourceChanged: it is another topic by
        now."""
        await trio.lowlevel.checkpoint()
        topic_reader = self._topic_reader
        topic_reader.read_until(until)
        self._moved = trio.current_time()
        topic_reader.wanted = True
        try:
            while (batch := topic_reader.next_batch()) is None:
                await self._turn()
        finally:
            topic_reader.wanted = False
        return batch

    @property
    def idle(self) -> bool:
        """Return whether no call waits for what it reads."""
        return not self._topic_reader.wanted

    async def close(self) -> None:
        """Give the consumer back."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    # --- for the pool ---

    def reassign(self) -> None:
        """Do nothing: the next read sees that the topic reader has ended."""

    def rebuild(self) -> None:
        """Throw the consumer away, if there is one; the next read makes another."""
        self._stale = True

    # --- details ---

    async def _turn(self) -> None:
        """Read once, or do what must be done before the next read."""
        topic_reader = self._topic_reader
        for partition in sorted(topic_reader.suspended):
            await self._lookup.resolve_out_of_range(topic_reader, partition)
        tps = topic_reader.fetch_positions()
        if not tps:
            return
        try:
            consumer = await self._steered(tps)
            await self._read(consumer)
        except UnreachableError as error:
            log.debug("kafka consumer given up", error=str(error))
            self._stale = True
            self._lookup.cluster_monitor.probe_now()
            await trio.sleep(self._backoff.next())

    async def _read(self, consumer: Consumer) -> None:
        topic_reader = self._topic_reader
        self._astray = True
        try:
            # Of all of them: what was fetched of a partition that rests is thus thrown away, and does not
            # keep the client from fetching more.
            fetched = await consumer.read((), _WAIT_MS, self._most)
        except RECOVERABLE as error:
            await self._recovery.recover(consumer, error)
            self._stale = self._stale or bool(topic_reader.suspended)
        else:
            parts = fetched.get(topic_reader.topic, [])
            if parts and trio.current_time() - self._checked_at >= _CHECK_S:
                # A topic that was deleted and made anew while it was not read answers as the old one.
                await self._lookup.check(topic_reader)
                self._checked_at = trio.current_time()
            count = sum(len(part.records) for part in parts)
            if count > _FIRST_RECORDS:
                await trio.lowlevel.checkpoint()  # to make columns of many takes as long as to decode them
            topic_reader.accept(parts)
            # Noted at once: the end may be moved on before the next turn.
            self._arrived |= self._assigned - topic_reader.fetch_positions().keys()
            if parts:
                self._moved = trio.current_time()
            else:
                await self._pass_empty_end()
            if count:
                self.records += count
                self._backoff.reset()
                self._most = topic_reader.turn_of(_TURN_BYTES, self._turn_records)
        self._astray = bool(topic_reader.unverified)  # what came of them was thrown away

    async def _steered(self, tps: dict[TopicPartition, int]) -> Consumer:
        """Return the consumer, which reads exactly these partitions, from there."""
        if self._scheduler.should_yield(self):
            await self.close()
            self._scheduler.release(self)
        await self._scheduler.acquire(self)
        if self._stale:
            await self.close()
            self._assigned.clear()  # one that has arrived may be what was wrong
        elif not tps.keys() <= self._assigned:
            await self.close()
        consumer = self._consumer
        if consumer is None:
            consumer = await self._new_consumer(tps)
        if self._astray:
            await self._recovery.rewind(consumer)
            self._astray = False
        resting = self._arrived - self._paused - tps.keys()
        again = {tp: tps[tp] for tp in self._arrived & tps.keys()}
        if resting:
            await consumer.pause(resting)
            self._paused |= resting
        if again:
            await consumer.resume(again)
            self._arrived -= again.keys()
            self._paused -= again.keys()
        return consumer

    async def _new_consumer(self, tps: dict[TopicPartition, int]) -> Consumer:
        self._stale = False
        await self._lookup.cluster_monitor.admin()  # as soon as a broker answers
        consumer = self._consumer = await self._clients.consumer(live=False)
        # Partitions that have arrived rest in it, so that they need no other one when their end is moved.
        arrived = {tp: self._topic_reader.next[tp.partition] for tp in self._assigned}
        self._paused, self._astray = set(), False
        try:
            await consumer.assign(arrived | tps)
        except BaseException:
            self._stale = True
            raise
        self._assigned |= tps.keys()
        self._arrived = self._assigned - tps.keys()
        await self._lookup.check(self._topic_reader)
        self._checked_at = trio.current_time()
        return consumer

    async def _pass_empty_end(self) -> None:
        """Find out, when nothing has come for a while, whether nothing is left up to the end of the log."""
        if trio.current_time() - self._moved < _NOTHING_S:
            return
        # Where compaction has emptied the end of a log, no read shows a client how far it is.
        self._moved = trio.current_time()
        for tp, offset in self._topic_reader.fetch_positions().items():
            end = await self._lookup.end_if_empty(tp, offset)
            if end is not None:
                self._topic_reader.advance(tp.partition, end)


def _rests(topic_reader: TopicReader, partition: int) -> None:
    """Do nothing: a partition that is out of range rests until the next read, which handles it."""
