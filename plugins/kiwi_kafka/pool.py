"""The service `kafka`: a few consumers that carry all live sources of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import structlog
import trio

from kiwi_gw.api import PluginContext, PluginError, SourceChanged
from kiwi_kafka.client import tls_context
from kiwi_kafka.lease import Lease
from kiwi_kafka.link import Link
from kiwi_kafka.noise import quiet_client
from kiwi_kafka.pause import Pauses
from kiwi_kafka.reader import Reader
from kiwi_kafka.seam import Consumer, Missing, Place, Scout, TopicView, Transport, UnreachableError
from kiwi_kafka.settings import KafkaSettings
from kiwi_kafka.transport import AioTransport, client_loop
from kiwi_kafka.watch import Watch
from kiwi_kafka.wire import NO_ID

log = structlog.get_logger("kiwi_kafka")

_BREADTH = 4
"""So many consumers are made before two sources share one."""
_PER_CONSUMER = 100
"""Partitions in one consumer before another is made: every fetch names all of them."""
_UNPACED = 64
_LONGEST_GATHER_MS = 80


class Kafka:
    """What sources use: look for a topic, ask where it ends, and lease a place in the pool."""

    def __init__(self, settings: KafkaSettings, transport: Transport, nursery: trio.Nursery) -> None:
        self._transport = transport
        self._most = settings.client.max_consumers
        self._readers: list[Reader] = []
        self._nursery = nursery
        self._home: dict[Lease, Reader] = {}
        self._ids: dict[str, bytes] = {}  # of the topics as they were last leased
        self._watch = Watch(settings, self._reassign, self._rebuild, self.away)
        servers = ", ".join(settings.servers)
        self._link = Link(transport, self, servers, settings.probe_interval_ms / 1000)

    def start(self) -> None:
        """Serve, in tasks of the nursery, until that is cancelled."""
        self._nursery.start_soon(self._link.run)

    # --- for sources ---

    @property
    def up(self) -> bool:
        """Whether the cluster answered the last probe."""
        return self._link.up

    @property
    def consumers(self) -> tuple[int, ...]:
        """How many partitions each consumer in use reads."""
        return tuple(reader.partitions for reader in self._readers if reader.leases)

    async def find(self, topic: str) -> TopicView:
        """The topic, as soon as it exists. Waits for ever and creates nothing."""
        pauses = Pauses(0.5, 5.0)
        told = False
        while True:
            view = await self._describe(topic)
            if isinstance(view, TopicView):
                if told:
                    log.info("kafka topic found", topic=topic)
                return view
            if not told:
                log.warning(
                    "no permission for kafka topic, waiting" if view.denied else "waiting for kafka topic",
                    topic=topic,
                )
                told = True
            await trio.sleep(pauses.next())

    async def ends(self, topic: str) -> tuple[TopicView, dict[int, int]]:
        """The topic and the end of all its partitions: what a reader of committed records may read up to.

        Waits until every partition has a leader that answers.
        """
        pauses = Pauses(0.1, 2.0)
        while True:
            view = await self.find(topic)
            ends = await self.known_ends(view, stable=True)
            if len(ends) == len(view.leaders):
                return view, ends
            await trio.sleep(pauses.next())

    async def known_ends(self, view: TopicView, stable: bool = False) -> dict[int, int]:
        """The ends of those partitions whose leaders answer; `stable`: without open transactions."""

        async def asked(scout: Scout) -> dict[int, int]:
            offsets = await scout.ends([view], stable)
            return {
                p: offsets.known[Place(view.name, p)]
                for p in view.leaders
                if Place(view.name, p) in offsets.known
            }

        return await self._link.ask(asked)

    def is_same(self, view: TopicView) -> bool:
        """Whether positions of the topic's last lease still mean anything; if there was none, they may."""
        return self._ids.get(view.name, view.id) == view.id

    @contextmanager
    def lease(
        self, view: TopicView, positions: Mapping[int, int], *, headers: bool, follow: bool
    ) -> Iterator[Lease]:
        """Have the topic read from `positions` (of all partitions) on, as long as the block lasts.

        headers: whether batches have a column of headers. follow: whether partitions that are added
        join; if not, the lease ends with SourceChanged.
        """
        lease = Lease(view, positions, headers=headers, follow=follow)
        self._ids[view.name] = view.id
        reader = self._choose(lease)
        self._home[lease] = reader
        self._watch.add(lease)
        reader.add(lease)
        try:
            yield lease
        finally:
            lease.end(trio.ClosedResourceError())
            reader.remove(lease)
            self._watch.remove(lease)
            del self._home[lease]

    # --- for readers ---

    async def consumer(self) -> Consumer:
        await self._link.scout()
        return await self._transport.consumer()

    async def verify(self, leases: Sequence[Lease]) -> None:
        live = [lease for lease in leases if not lease.over]
        views = await (await self._link.scout()).describe({lease.topic for lease in live})
        for lease in live:
            view = views[lease.topic]
            if isinstance(view, Missing):
                # Deleted, or its broker has just started. Nothing of that name is read before it is known.
                for partition in set(lease.next) - lease.held:
                    lease.held.add(partition)
                    self.out_of_range(lease, partition)
            elif NO_ID not in (lease.topic_id, view.id) and view.id != lease.topic_id:
                lease.end(SourceChanged(f"topic {lease.topic!r} has been deleted and created anew"))

    def suspect(self) -> None:
        self._link.suspect()

    def longest_gather_ms(self) -> int:
        partitions = sum(reader.partitions for reader in self._readers)
        return round(min(1.0, max(0.0, (partitions - _UNPACED) / 400)) * _LONGEST_GATHER_MS)

    async def unreadable(self, place: Place, offset: int) -> tuple[int, int] | None:
        view = await self._describe(place.topic)
        if isinstance(view, Missing) or view.leaders.get(place.partition, -1) < 0:
            raise UnreachableError(f"{place.topic}/{place.partition} has no leader")
        return await (await self._link.scout()).unreadable(view, place, offset)

    def out_of_range(self, lease: Lease, partition: int) -> None:
        self._nursery.start_soon(self._find_range, lease, partition)

    # --- for the link ---

    async def look(self, scout: Scout) -> None:
        await self._watch.look(scout)

    def received(self) -> int:
        return sum(reader.records for reader in self._readers)

    def away(self) -> None:
        for reader in self._readers:
            reader.rebuild()

    # --- details ---

    async def _describe(self, topic: str) -> TopicView | Missing:
        async def asked(scout: Scout) -> TopicView | Missing:
            return (await scout.describe([topic]))[topic]

        return await self._link.ask(asked)

    def _choose(self, lease: Lease) -> Reader:
        partitions = sum(reader.partitions for reader in self._readers) + len(lease.next)
        wanted = min(self._most, max(_BREADTH, -(-partitions // _PER_CONSUMER)))
        # One consumer cannot read a topic twice, for two sources of the same topic.
        able = [r for r in self._readers if all(other.topic != lease.topic for other in r.leases)]
        idle = [reader for reader in able if not reader.leases]
        if idle:
            return idle[0]
        if not able or len(self._readers) < wanted:
            reader = Reader(self)
            self._readers.append(reader)
            self._nursery.start_soon(reader.run)
            return reader
        return min(able, key=lambda reader: reader.partitions)

    def _reassign(self, lease: Lease) -> None:
        self._home[lease].reassign()

    def _rebuild(self, lease: Lease) -> None:
        self._home[lease].rebuild()

    async def _find_range(self, lease: Lease, partition: int) -> None:
        """A position is not in the log: it was deleted (announce it, go on at the log's start), or the
        log ends before it (another topic of that name, or one that was cut off)."""
        topic = lease.topic
        while not lease.over:
            view = await self._describe(topic)
            if isinstance(view, TopicView) and partition in view.leaders:
                if view.id != lease.topic_id:
                    lease.end(SourceChanged(f"topic {topic!r} has been deleted and created anew"))
                    break
                start, end = await self._link.ask(lambda scout: _range(scout, view, partition))  # noqa: B023
                position = lease.next[partition]
                if end is not None and position > end:
                    lease.end(
                        SourceChanged(
                            f"partition {partition} of topic {topic!r} ends at offset {end}, before "
                            f"{position}: it was cut off or created anew"
                        )
                    )
                    break
                if start is not None and end is not None:
                    if start > position:
                        log.warning(
                            "kafka records are gone",
                            topic=topic,
                            partition=partition,
                            first=position,
                            last=start - 1,
                        )
                    lease.skip(partition, max(start, position))
                    break
            await trio.sleep(0.5)
        if lease in self._home:
            self._reassign(lease)


async def _range(scout: Scout, view: TopicView, partition: int) -> tuple[int | None, int | None]:
    place = Place(view.name, partition)
    starts = await scout.starts([view])
    ends = await scout.ends([view], stable=False)
    return starts.known.get(place), ends.known.get(place)


@asynccontextmanager
async def open_kafka(context: PluginContext) -> AsyncIterator[Kafka]:
    """The service, for one section `kafka`. PluginError if a file of `security` cannot be used."""
    settings = cast("KafkaSettings", context.section("kafka"))
    try:
        tls_context(settings.security)
    except OSError as error:
        raise PluginError(f"kafka.security: {error}") from error
    with quiet_client():
        async with client_loop(_tell) as loop, trio.open_nursery() as nursery:
            kafka = Kafka(settings, AioTransport(loop, settings), nursery)
            kafka.start()
            try:
                yield kafka
            finally:
                nursery.cancel_scope.cancel()


def _tell(message: str, error: BaseException | None) -> None:
    # The watch finds a consumer that no longer works.
    log.warning("kafka client", problem=message, exc_info=error)
