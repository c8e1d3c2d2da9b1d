"""The consumer: reads partitions, with a fetcher for each broker that leads any of them.

What a fetcher has brought waits, undecoded, until it is read: of each partition what two answers hold, then
its broker is not asked on. So a reader that is busy holds back the brokers, and one that waits has records as
they come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog
import trio
from aiokafka import errors as kafka_errors

from kiwi_gw.api import Backoff, Wakeup
from kiwi_kafka.client.broker_fetcher import BrokerFetcher
from kiwi_kafka.client.brokers import Brokers
from kiwi_kafka.client.fetch_session import FetchAnswer, FetchLimits
from kiwi_kafka.client.partition_fetch import PartitionFetch
from kiwi_kafka.ports import (
    FetchedPartition,
    MissingTopic,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    TopicPartition,
    UnreachableError,
)

log = structlog.get_logger("kiwi_kafka")

_LONGEST_PAUSE_S: Final = 1.0
_QUIET_S: Final = 1.0
"""Where no leader was lost for so long, the pauses before a search begin anew."""


class FetchingConsumer:
    """Implement `Consumer`. `run` must be running, in a task of its own, until it is closed.

    timeout: seconds for the answer to a fetch. most: records of one read, if it does not say so itself.
    retry: seconds before the next attempt. refresh: seconds after which leaders are looked for anyway.
    """

    def __init__(
        self,
        brokers: Brokers,
        limits: FetchLimits,
        *,
        timeout: float,
        most: int,
        retry: float,
        refresh: float,
    ) -> None:
        self.on_arrived: Callable[[], None] = lambda: None
        self._brokers = brokers
        self._limits = limits
        self._timeout = timeout
        self._most = most
        self._retry = retry
        self._refresh = refresh
        self._interval = self._pause = 0.0
        self._partitions: dict[TopicPartition, PartitionFetch] = {}
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._led_by: dict[TopicPartition, BrokerFetcher] = {}  # a leader is looked for where one is missing
        self._resting: frozenset[TopicPartition] = frozenset()
        self._ready: dict[TopicPartition, PartitionFetch] = {}
        self._arrived = Wakeup()
        self._searched = Wakeup()
        self._failure: Exception | None = None
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery  # as long as it runs

    async def run(self) -> None:
        """Fetch until closed or cancelled. What fails in it the next `read` raises."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    await self._find_leaders()
        except Exception as error:  # noqa: BLE001  (it belongs to who reads, not to the nursery of all)
            self._fail(error)
        finally:
            self._brokers.close()
            # No cycle is to be left, with the megabytes that were fetched ahead: fetchers have them, too.
            self._partitions, self._ready, self._fetchers, self._led_by = {}, {}, {}, {}

    # --- what a reader calls ---

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._partitions = {tp: PartitionFetch(tp, offset) for tp, offset in positions.items()}
        self._searched.set()
        await trio.lowlevel.checkpoint()

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        for tp, offset in positions.items():
            self._seek(tp, offset)
        await trio.lowlevel.checkpoint()

    async def pause(self, tps: Collection[TopicPartition]) -> None:
        for tp in self._partitions.keys() & tps:
            self._partitions[tp].pause()
            self._ready.pop(tp, None)
            self._look_at(tp)
        await trio.lowlevel.checkpoint()

    async def resume(self, positions: Mapping[TopicPartition, int]) -> None:
        for tp, offset in positions.items():
            if tp in self._partitions:
                self._partitions[tp].is_paused = False
                self._look_at(tp)
                self._seek(tp, offset)
        await trio.lowlevel.checkpoint()

    async def read(
        self, resting: Collection[TopicPartition], wait_ms: int, max_records: int | None = None
    ) -> dict[str, list[FetchedPartition]]:
        most = max_records or self._most
        # Nothing runs between taking and returning: it might take what comes next, and hand it on before.
        await trio.lowlevel.checkpoint()
        self._rest(resting)
        fetched = self._take(most)
        with trio.move_on_after(wait_ms / 1000):
            while not fetched:
                await self._arrived.wait()
                fetched = self._take(most)
        return fetched

    def read_nowait(self, resting: Collection[TopicPartition]) -> dict[str, list[FetchedPartition]]:
        self._rest(resting)
        return {} if self._failure is not None else self._take(self._most, raises=False)

    def set_fetch_interval(self, wait_ms: int, pause_ms: int = 0) -> None:
        self._interval, self._pause = wait_ms / 1000, pause_ms / 1000
        for fetcher in self._fetchers.values():
            fetcher.interval, fetcher.pause = self._interval, self._pause

    async def close(self) -> None:
        self._scope.cancel()
        self._brokers.close()  # it may not have begun to run
        await trio.lowlevel.checkpoint()

    def _seek(self, tp: TopicPartition, offset: int) -> None:
        if tp in self._partitions and self._partitions[tp].seek(offset):
            self._ready.pop(tp, None)
            self._look_at(tp, now=True)

    def _look_at(self, tp: TopicPartition, *, now: bool = False) -> None:
        if tp in self._led_by:
            self._led_by[tp].look_at(tp, now=now)

    def _rest(self, tps: Collection[TopicPartition]) -> None:
        if tps or self._resting:
            before, self._resting = self._resting, frozenset(tps)
            for tp in before ^ self._resting:
                self._look_at(tp)

    def _take(self, most: int, *, raises: bool = True) -> dict[str, list[FetchedPartition]]:
        """Return what has come. No checkpoint is in it: a read that is cancelled loses nothing. raises:
        whether a problem with no records before it is raised, or left where it is."""
        if raises and self._failure is not None:
            raise self._failure
        by_topic: dict[str, list[FetchedPartition]] = {}
        for tp, partition in list(self._ready.items()):
            if most <= 0:
                break
            if tp in self._resting:
                continue
            was_full = partition.is_full
            part = partition.take(most)
            if part is None and partition.problem is not None:
                if by_topic or not raises:
                    break  # it is raised when it comes first
                problem, partition.problem = partition.problem, None
                del self._ready[tp]
                self._look_at(tp)
                raise problem
            del self._ready[tp]
            if partition.has_something:
                self._ready[tp] = partition  # behind the others
            if was_full:
                self._look_at(tp)
            if part is not None:
                most -= len(part.records)
                by_topic.setdefault(tp.topic, []).append(part)
        return by_topic

    # --- what fetchers call ---

    def is_resting(self, tp: TopicPartition) -> bool:
        return tp in self._resting

    def accept(self, fetcher: BrokerFetcher, answer: FetchAnswer) -> None:
        tp = answer.tp
        partition = self._partitions[tp]
        if answer.offset == partition.fetched and partition.wants_more:
            if answer.code:
                self._refused(partition, answer.code)
            elif 0 <= answer.replica != fetcher.node:
                partition.from_replica = True
                self._have_led(tp, answer.replica)
            else:
                partition.accept(answer)
            if partition.has_something:
                self._ready[tp] = partition
        if self._led_by.get(tp) is fetcher:
            fetcher.look_at(tp)

    def answered(self) -> None:
        if self._ready:
            self.on_arrived()
            if self._ready:  # more than fits, or a problem: for who reads
                self._arrived.set()

    def _refused(self, partition: PartitionFetch, code: int) -> None:
        tp, error = partition.tp, kafka_errors.for_code(code)
        if error is kafka_errors.UnknownTopicOrPartitionError:
            # Brokers know topics by name here: what comes next may be of a new topic of that name.
            self._fail(UnreachableError(f"topic {tp.topic!r} is not there"))
        elif error is kafka_errors.TopicAuthorizationFailedError:
            partition.stop(TopicAuthorizationError(tp.topic))
        elif error is kafka_errors.OffsetOutOfRangeError and not partition.from_replica:
            partition.stop(OffsetOutOfRangeError({tp: partition.fetched}))
        else:
            log.debug("kafka fetch refused", topic=tp.topic, partition=tp.partition, error=error.__name__)
            self._have_led(tp, None)

    # --- leaders ---

    async def _find_leaders(self) -> None:
        """Have every partition fetched from its leader, again and again: leaders change."""
        backoff = Backoff(self._retry, _LONGEST_PAUSE_S)
        while True:
            self._searched.clear()
            is_assigned = bool(self._partitions)
            if is_assigned:
                try:
                    await self._look_for_leaders()
                except (UnreachableError, kafka_errors.KafkaError) as error:
                    log.debug("kafka leaders unknown", error=str(error))
                if self._led_by.keys() != self._partitions.keys():
                    await trio.sleep(backoff.next())
                    continue
            found = trio.current_time()
            with trio.move_on_after(self._refresh) as nothing_lost:
                await self._searched.wait()
            if trio.current_time() - found > _QUIET_S:
                backoff.reset()
            if is_assigned and not nothing_lost.cancelled_caught:
                await trio.sleep(backoff.next())  # brokers elect another leader, or the same is there again

    async def _look_for_leaders(self) -> None:
        infos = await self._brokers.describe({tp.topic for tp in self._partitions})
        for tp, partition in self._partitions.items():
            info = infos[tp.topic]
            if isinstance(info, MissingTopic):
                if info.denied:
                    partition.stop(TopicAuthorizationError(tp.topic))
                    self._ready[tp] = partition
                    self._arrived.set()
                continue
            leader = info.leaders.get(tp.partition, -1)
            if not (partition.from_replica and tp in self._led_by):
                partition.from_replica = False
                self._have_led(tp, leader if leader >= 0 else None)

    def _have_led(self, tp: TopicPartition, node: int | None) -> None:
        before = self._led_by.get(tp)
        if before is not None:
            if before.node == node:
                return
            before.remove(tp)
            del self._led_by[tp]
        if node is None:
            self._searched.set()
            return
        fetcher = self._fetchers.get(node)
        if fetcher is None:
            fetcher = self._fetchers[node] = BrokerFetcher(
                node, self, self._brokers, self._limits, self._timeout
            )
            fetcher.interval, fetcher.pause = self._interval, self._pause
            self._nursery.start_soon(self._run, fetcher)
        self._led_by[tp] = fetcher
        fetcher.add(self._partitions[tp])

    async def _run(self, fetcher: BrokerFetcher) -> None:
        try:
            await fetcher.run()
        except (UnreachableError, kafka_errors.KafkaError) as error:
            log.debug("kafka broker lost", node=fetcher.node, error=str(error))
        del self._fetchers[fetcher.node]
        self._led_by = {tp: other for tp, other in self._led_by.items() if other is not fetcher}
        self._searched.set()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._arrived.set()
