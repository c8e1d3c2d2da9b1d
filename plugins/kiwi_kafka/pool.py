"""The service `kafka`: a few consumers that carry all live sources of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import cast

import structlog
import trio

from kiwi_gw.api import HistoryReader, PluginContext, PluginError
from kiwi_kafka.aio_loop import client_loop
from kiwi_kafka.client import tls_context
from kiwi_kafka.lease import Lease
from kiwi_kafka.lineage import Lineage
from kiwi_kafka.link import Link
from kiwi_kafka.lookup import Lookup, created_anew
from kiwi_kafka.noise import quiet_client
from kiwi_kafka.reader import Reader
from kiwi_kafka.replay import Replay
from kiwi_kafka.seam import Consumer, Missing, Place, Scout, TopicView, Transport
from kiwi_kafka.settings import KafkaSettings
from kiwi_kafka.stretch import Stretch
from kiwi_kafka.transport import AioTransport
from kiwi_kafka.turns import Turns
from kiwi_kafka.watch import Watch

log = structlog.get_logger("kiwi_kafka")

_BREADTH = 4
"""So many consumers are made before two sources share one."""
_PER_CONSUMER = 100
"""Partitions in one consumer before another is made: every fetch names all of them."""
_UNPACED = 64
_LONGEST_GATHER_MS = 45


class Kafka:
    """What sources use: `lookup` asks about topics, `lease` has one read on, `replay` has it read again."""

    def __init__(self, settings: KafkaSettings, transport: Transport, nursery: trio.Nursery) -> None:
        self._transport = transport
        self._most = settings.client.max_consumers
        self._poll_records = settings.client.max_poll_records
        self._readers: list[Reader] = []
        self._nursery = nursery
        self._home: dict[Lease, Reader | Replay] = {}
        self._turns = Turns(settings.client.max_history_consumers)
        self._lineages: dict[str, Lineage] = {}  # of the topics as they were last leased
        self._watch = Watch(settings, self._reassign, self._rebuild, self.away)
        servers = ", ".join(settings.servers)
        self._link = Link(transport, self, servers, settings.probe_interval_ms / 1000)
        self.lookup = Lookup(self._link, settings.client.request_timeout_ms / 1000)
        self._archive = _Archive(self.lookup, transport, self._link)

    def start(self) -> None:
        """Serve, in tasks of the nursery, until that is cancelled."""
        self._nursery.start_soon(self._link.run)

    # --- for sources ---

    @property
    def up(self) -> bool:
        """Whether the cluster answered the last probe."""
        return self._link.up

    def told(self, listener: Callable[[str], None]) -> AbstractContextManager[None]:
        """See `Link.told`."""
        return self._link.told(listener)

    @property
    def consumers(self) -> tuple[int, ...]:
        """How many partitions each consumer in use reads."""
        return tuple(reader.partitions for reader in self._readers if reader.leases)

    def is_same(self, view: TopicView) -> bool:
        """Whether positions of the topic's last lease still mean anything; if there was none, they may."""
        known = self._lineages.get(view.name)
        return known is None or not view.is_another(known.topic_id)

    def lineage(self, view: TopicView) -> Lineage:
        """What is known of the topic's history; a new one for one that was created anew."""
        known = self._lineages.get(view.name)
        if known is None or known.over or known.topic_id != view.id:
            known = self._lineages[view.name] = Lineage(self.lookup, view.name, view.id)
        return known

    @contextmanager
    def lease(
        self, view: TopicView, positions: Mapping[int, int], *, headers: bool, follow: bool
    ) -> Iterator[Lease]:
        """Have the topic read from `positions` (of all partitions) on, as long as the block lasts.

        headers: whether batches have a column of headers. follow: whether partitions that are added
        join; if not, the lease ends with SourceChanged.
        """
        lineage = self.lineage(view)
        lease = Lease(view, positions, headers=headers, follow=follow, lineage=lineage)
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

    @asynccontextmanager
    async def replay(self, live: Lease, positions: Mapping[int, int]) -> AsyncIterator[HistoryReader]:
        """Read the topic of a lease again from `positions` on, with a consumer for this alone.

        Reading waits for its turn while `client.max_history_consumers` are in use.
        """
        stretch = Stretch(live, positions)
        replay = Replay(self._archive, stretch, self._turns, self._poll_records)
        self._home[stretch] = replay
        self._watch.add(stretch)
        try:
            yield replay
        finally:
            stretch.end(trio.ClosedResourceError())
            self._watch.remove(stretch)
            del self._home[stretch]
            try:
                await replay.close()
            finally:
                self._turns.give(replay)

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
            elif view.is_another(lease.topic_id):
                lease.end(created_anew(lease.topic))

    def suspect(self) -> None:
        self._link.suspect()

    def longest_gather_ms(self) -> int:
        partitions = sum(reader.partitions for reader in self._readers)
        return round(min(1.0, max(0.0, (partitions - _UNPACED) / 400)) * _LONGEST_GATHER_MS)

    async def unreadable(self, place: Place, offset: int) -> tuple[int, int] | None:
        return await self.lookup.unreadable(place, offset)

    def out_of_range(self, lease: Lease, partition: int) -> None:
        self._nursery.start_soon(self._find_range, lease, partition)

    # --- for the link ---

    async def look(self, scout: Scout) -> None:
        await self._watch.look(scout)

    def received(self) -> int:
        return sum(reader.records for reader in self._everybody())

    def away(self) -> None:
        for reader in self._everybody():
            reader.rebuild()

    # --- details ---

    def _everybody(self) -> set[Reader | Replay]:
        return {*self._readers, *self._home.values()}

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
        await self.lookup.find_range(lease, partition)
        if lease in self._home:
            self._reassign(lease)


class _Archive:
    """The pool as a replay sees it, which waits for its repairs itself."""

    def __init__(self, lookup: Lookup, transport: Transport, link: Link) -> None:
        self._transport = transport
        self._link = link
        self.find_range = lookup.find_range
        self.check = lookup.check
        self.nothing_before = lookup.nothing_before
        self.unreadable = lookup.unreadable
        self.suspect = link.suspect

    async def history_consumer(self) -> Consumer:
        await self._link.scout()
        return await self._transport.consumer(live=False)

    def out_of_range(self, lease: Lease, partition: int) -> None:
        """It rests until the next read."""


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
