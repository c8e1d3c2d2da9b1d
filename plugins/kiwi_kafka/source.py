"""A Kafka topic as a source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import trio

from kiwi_gw.api import (
    Extent,
    HistoryReader,
    Out,
    Positions,
    Section,
    SourceChanged,
    SourceContext,
    SourceStatistics,
)
from kiwi_kafka.lease import Lease
from kiwi_kafka.lineage import Lineage
from kiwi_kafka.lookup import created_anew, cut_off
from kiwi_kafka.pool import Kafka
from kiwi_kafka.seam import NO_ID, TopicView
from kiwi_kafka.settings import KafkaSourceSettings


class KafkaSource:
    """Events from the end of the topic on, or from given positions.

    While the cluster is away `run` goes on waiting: its subscriptions stay. A topic that does not exist
    is waited for. What was deleted before it was read is announced as a gap. While `run` is running it
    can be read again (`History`).
    """

    def __init__(self, settings: KafkaSourceSettings, kafka: Kafka) -> None:
        self._topic = settings.topic
        self._follow = settings.on_partition_change == "continue"
        self._headers = settings.fields is not None and "headers" in settings.fields
        self._kafka = kafka
        self._lease: Lease | None = None
        self._began = trio.Event()
        self.lineage: Lineage = Lineage(kafka.lookup, self._topic, NO_ID)

    def statistics(self) -> SourceStatistics:
        """Behind the end that the brokers let a reader of committed records read up to (with no open
        transaction, the high watermark). The watch asks for it every `probe_interval_ms`, 20 topics at a
        time; reading costs nothing for it. An offset that holds no record counts like one that does."""
        behind = self._lease.behind if self._lease is not None else {}
        return SourceStatistics(behind, self._kafka.up)

    async def run(self, out: Out, start: Positions | None) -> None:
        """SourceChanged: the topic was deleted, created anew, cut off, or (if so set) has grown."""
        with self._kafka.told(out.trouble):
            await self._run(out, start)

    async def _run(self, out: Out, start: Positions | None) -> None:
        if start is None:
            view, positions = await self._kafka.lookup.ends(self._topic)
        else:
            view = await self._kafka.lookup.find(self._topic)
            positions = await self._continue(view, start)
        self.lineage = self._kafka.lineage(view)
        try:
            await self._kafka.lookup.trace(view, self.lineage, positions)
        except SourceChanged:
            if start is not None:
                raise
            self.lineage = self._kafka.lineage(view)
            await self._kafka.lookup.trace(view, self.lineage, positions)
        with self._kafka.lease(view, positions, headers=self._headers, follow=self._follow) as lease:
            self._lease = lease
            self._began.set()
            try:
                await out.ready(dict(positions))
                while True:
                    await out.publish(await lease.take())
            finally:
                self._lease, self._began = None, trio.Event()

    # --- history ---

    async def extent(self) -> Extent:
        """The first record that the cluster keeps of every partition, and where the next one will be.

        The end is the cluster's (of committed records), not where this gateway's own reading is: a client
        may come with positions from another gateway that is a little further. SourceChanged as in `run`.
        """
        return await self._kafka.lookup.extent(await self._live())

    async def at(self, timestamp: int) -> Positions:
        """In every partition the first committed record at or after `timestamp` (ms), or the end."""
        return await self._kafka.lookup.since(await self._live(), timestamp)

    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        """Read from `positions`. Reading takes turns while `client.max_history_consumers` are in use."""
        async with self._kafka.replay(await self._live(), positions) as reader:
            yield reader

    async def _live(self) -> Lease:
        while self._lease is None:
            await self._began.wait()
        return self._lease

    async def _continue(self, view: TopicView, start: Positions) -> dict[int, int]:
        topic = self._topic
        if not self._kafka.is_same(view):
            raise created_anew(topic)
        if not set(start) <= set(view.leaders):
            raise SourceChanged(
                f"topic {topic!r} has fewer partitions than it had: it has been deleted and created anew"
            )
        added = set(view.leaders) - set(start)
        if added and not self._follow:
            raise SourceChanged(
                f"topic {topic!r} has grown from {len(start)} to {len(view.leaders)} partitions"
            )
        ends = await self._kafka.lookup.known_ends(view)
        for partition, position in start.items():
            if position > ends.get(partition, position):
                raise cut_off(topic, partition, ends[partition], position)
        return {partition: start.get(partition, 0) for partition in view.leaders}


def build_source(settings: Section, context: SourceContext) -> KafkaSource:
    """SourceType.build: no I/O."""
    kafka = cast("Kafka", context.services["kafka"])
    return KafkaSource(cast("KafkaSourceSettings", settings), kafka)
