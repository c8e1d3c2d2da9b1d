"""Fetches from one broker the partitions that it leads, in a task of its own."""

from __future__ import annotations

import math
from functools import partial
from time import thread_time
from typing import Final, Protocol

import trio

from kiwi_gw.api import Wakeup
from kiwi_kafka.client.brokers import Brokers
from kiwi_kafka.client.connection import BrokerConnection
from kiwi_kafka.client.fetch_session import (
    API,
    FIRST_VERSION,
    LAST_VERSION,
    FetchAnswer,
    FetchLimits,
    FetchSession,
)
from kiwi_kafka.client.partition_fetch import PartitionFetch
from kiwi_kafka.ports import TopicPartition, UnreachableError

_SHORT_WAIT_MS: Final = 50
"""How long a broker may hold a fetch that leaves out partitions that are full: they come back soon."""
_GATHER_S: Final = 0.002
_GATHER_FACTOR: Final = 4
"""From one fetch to the next pass at least so many times the seconds that this thread has worked until its
answer was handed on (publishing it comes after), up to `_GATHER_S`: many records go out together then, and a
lone one waits for nothing. An idle loop may pause a millisecond longer: so coarse are its timers."""


class FetchTarget(Protocol):
    """Name what a fetcher needs of the consumer."""

    def is_resting(self, tp: TopicPartition) -> bool:
        """Return whether nobody reads the partition for now."""

    def accept(self, fetcher: BrokerFetcher, answer: FetchAnswer) -> None:
        """Take what was fetched."""

    def answered(self) -> None:
        """Hand on what was taken of one answer, before more is fetched."""


class BrokerFetcher:
    """Fetch what is given to it, until cancelled.

    node: the broker. timeout: seconds for each answer, and for each further part of a large one. interval:
    least seconds from a fetch that brought records to the next, which the broker then does not hold. pause:
    the same, but it may hold the next, and there is none where a fetch brought as much as it may. Both are
    counted from when the fetch was sent: one that was held for longer is followed at once.
    """

    def __init__(
        self, node: int, target: FetchTarget, brokers: Brokers, limits: FetchLimits, timeout: float
    ) -> None:
        self.node = node
        self.interval = self.pause = 0.0
        self._target = target
        self._brokers = brokers
        self._limits = limits
        self._timeout = timeout
        self._partitions: dict[TopicPartition, PartitionFetch] = {}
        self._changed: set[TopicPartition] = set()
        self._full: set[TopicPartition] = set()
        self._woken = Wakeup()
        self._asking: trio.CancelScope | None = None  # while an answer is waited for

    def add(self, partition: PartitionFetch) -> None:
        self._partitions[partition.tp] = partition
        self.look_at(partition.tp, now=True)

    def remove(self, tp: TopicPartition) -> None:
        del self._partitions[tp]
        self.look_at(tp)

    def look_at(self, tp: TopicPartition, *, now: bool = False) -> None:
        """Note that the partition is in another state. now: give up the fetch that waits, if one does."""
        self._changed.add(tp)
        self._woken.set()
        if now and self._asking is not None:
            self._asking.cancel()

    async def run(self) -> None:
        """Fetch. UnreachableError: the broker does not answer."""
        while True:
            connection = await self._brokers.connect(self.node)
            try:
                await self._session(connection)
            finally:
                connection.close()

    async def _session(self, connection: BrokerConnection) -> None:
        """Fetch, until a fetch is given up."""
        first, last = connection.versions.get(API, (0, -1))
        version = min(last, LAST_VERSION)
        if version < max(first, FIRST_VERSION):
            raise UnreachableError(f"it speaks versions {first} to {last} of Fetch, not {FIRST_VERSION}")
        session = FetchSession(version, self._limits)
        self._full.clear()
        self._changed.update(self._partitions)
        gathers = 0.0
        with trio.CancelScope() as scope:
            connection.on_progress = partial(self._extend, scope)
            while True:
                await self._until_wanted(session)
                began, worked = trio.current_time(), thread_time()
                # A broker that holds a fetch goes through all of its partitions for every record of one.
                wait_ms = 0 if gathers else _SHORT_WAIT_MS if self._full else self._limits.wait_ms
                body = session.request(wait_ms)
                scope.deadline, self._asking = began + self._timeout, scope
                sizes = self._accept(session.answer(await connection.exchange(API, version, body)))
                scope.deadline, self._asking = math.inf, None
                self._target.answered()
                brought = any(sizes)
                gathers = self.interval if brought else 0.0
                pause = max(gathers, min(_GATHER_FACTOR * (thread_time() - worked), _GATHER_S))
                if brought and not self._is_full(sizes):
                    pause = max(pause, self.pause)
                if trio.current_time() < began + pause:
                    await trio.sleep_until(began + pause)
                elif brought:
                    await _let_others_run()
        self._asking = None
        if trio.current_time() >= scope.deadline:
            raise UnreachableError(f"no answer to a fetch within {self._timeout:g} s")

    def _accept(self, answers: list[FetchAnswer]) -> list[int]:
        """Give them to the consumer. Returns how many bytes of records are in each."""
        for answer in answers:
            if answer.tp in self._partitions:
                self._target.accept(self, answer)
        return [len(answer.data) for answer in answers]

    def _is_full(self, sizes: list[int]) -> bool:
        """Return whether an answer is about as large as it may be, so that more is there already."""
        return 2 * max(sizes) > self._limits.partition_bytes or 2 * sum(sizes) > self._limits.max_bytes

    def _extend(self, scope: trio.CancelScope) -> None:
        # A large answer over a slow line is none that does not come.
        scope.deadline = trio.current_time() + self._timeout

    async def _until_wanted(self, session: FetchSession) -> None:
        """Wait until there is something to fetch, and nothing of what is read has been fetched far enough."""
        while True:
            self._update(session)
            if session and all(map(self._target.is_resting, self._full)):
                return
            await self._woken.wait()

    def _update(self, session: FetchSession) -> None:
        for tp in self._changed:
            partition = self._partitions.get(tp)
            self._full.discard(tp)
            if partition is None or not partition.wants_more:
                session.leave_out(tp)
            elif partition.is_full or (partition.has_something and self._target.is_resting(tp)):
                self._full.add(tp)
                session.leave_out(tp)
            else:
                session.fetch(tp, partition.fetched)
        self._changed.clear()
        self._woken.clear()


async def _let_others_run() -> None:
    """Let sources begin to publish what they were handed before the broker is asked on: what has room in one
    turn goes out then. Two rounds: in one, Trio may run this task before those that it woke."""
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
