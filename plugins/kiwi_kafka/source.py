"""A Kafka topic as a source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import trio

from kiwi_gw.api import (
    CommitRefused,
    GroupMember,
    GroupState,
    HistoryReader,
    OffsetRange,
    Outgoing,
    Part,
    Positions,
    Published,
    Publisher,
    RefusalCode,
    SchemaVersion,
    Sharing,
    SourceChanged,
    SourceContext,
    SourceStatistics,
    Unpublished,
)
from kiwi_kafka.degradation import Degradation
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.monitor.topic_lookup import recreated, truncated
from kiwi_kafka.ports import NO_ID, GroupMembership, MissingTopic, RecordProducer, TopicDescription
from kiwi_kafka.service import Kafka
from kiwi_kafka.settings import KafkaSourceSettings


class KafkaSource:
    """Publish events from the end of the topic on, or from given positions.

    While the cluster is away `run` goes on waiting: its subscriptions stay. A topic that does not exist
    is waited for, and that is said. What was deleted before it was read is announced as a gap. While `run`
    is running it can be read again (`History`), written to (`Producer`), keeps how far groups have come
    (`Committer`), and has the schemas of what is written registered (`SchemaRegistrar`).
    Where its bytes name schemas of a registry, a batch is handed over when these are known (`registry`).
    """

    def __init__(self, settings: KafkaSourceSettings, kafka: Kafka, *, headers: bool = False) -> None:
        """Make it. headers: whether those of records are wanted, whatever the settings say."""
        self._topic = settings.topic
        self._follow_new_partitions = settings.on_partition_change == "continue"
        self._headers = headers or (settings.fields is not None and "headers" in settings.fields)
        self._kafka = kafka
        self._degradation = Degradation()
        self._schemas = kafka.schemas_of(settings.decode.decode, self._degradation.say)
        self._topic_reader: TopicReader | None = None
        self._producer: RecordProducer | None = None
        self._began = trio.Event()
        self.lineage: TopicLineage = TopicLineage(kafka.lookup, self._topic, NO_ID)

    def statistics(self) -> SourceStatistics:
        """Return how far it is behind the end that the brokers let a reader of committed records read up to
        (with no open transaction, the high watermark). The topic monitor asks for it every
        `probe_interval_ms`, 20 topics at a time; reading costs nothing for it. An offset that holds no record
        counts like one that does."""
        behind = self._topic_reader.behind if self._topic_reader is not None else {}
        return SourceStatistics(behind, self._kafka.up and not self._degradation)

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Publish the topic until cancelled. Raises SourceChanged if it was deleted, created anew or cut off,
        or (if so set) has grown."""
        tell = partial(self._degradation.say, self._kafka)
        with self._degradation.reported_to(publisher.report_degraded), self._kafka.report_outages_to(tell):
            info, positions = await self._begin(start)
            with self._kafka.open_reader(
                info, positions, headers=self._headers, follow_new_partitions=self._follow_new_partitions
            ) as topic_reader:
                self._topic_reader = topic_reader
                # Who wraps a publisher may not hand it on yet.
                topic_reader.has_subscription = partial(getattr, publisher, "subscribed", True)
                self._began.set()
                try:
                    await publisher.ready(dict(positions))
                    while True:
                        batch = await topic_reader.take()
                        if self._schemas is not None:
                            batch = await self._schemas.added_to(batch)
                        await publisher.publish(batch)
                finally:
                    self._topic_reader, self._began = None, trio.Event()
                    if self._producer is not None:
                        self._producer.close()
                        self._producer = None

    async def _begin(self, start: Positions | None) -> tuple[TopicDescription, dict[int, int]]:
        """Find the topic, where to begin in it, and of which history that is."""
        say = partial(self._degradation.say, self._topic)
        if start is None:
            info, positions = await self._kafka.lookup.ends(self._topic, say)
        else:
            info = await self._kafka.lookup.find(self._topic, say)
            positions = await self._continue(info, start)
        self.lineage = self._kafka.lineage(info)
        try:
            await self._kafka.lookup.trace(info, self.lineage, positions)
        except SourceChanged:
            if start is not None:
                raise
            self.lineage = self._kafka.lineage(info)
            await self._kafka.lookup.trace(info, self.lineage, positions)
        return info, positions

    # --- history ---

    async def offset_range(self) -> OffsetRange:
        """Return the first record that the cluster keeps of every partition, and where the next one will be.

        The end is the cluster's (of committed records), not where this gateway's own reading is: a client may
        come with positions from another gateway that is a little further. Raises SourceChanged as `run`.
        """
        return await self._kafka.lookup.offset_range(await self._live())

    async def at(self, timestamp: int) -> Positions:
        """Return for every partition the first committed record at or after `timestamp` (ms), or the end."""
        return await self._kafka.lookup.since(await self._live(), timestamp)

    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        """Read from `positions`. Reading takes turns while `client.max_history_consumers` are in use."""
        async with self._kafka.open_history_reader(await self._live(), positions) as reader:
            yield reader if self._schemas is None else self._schemas.added_by(reader)

    # --- writing ---

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        """Write them, idempotently, to all in-sync replicas (`client.producer`)."""
        if self._topic_reader is None:
            waits = Unpublished("not written: the topic is not there, or not yet", retriable=True, known=True)
            return [waits] * len(records)
        self._producer = self._producer or self._kafka.producer(self._topic)
        return await self._producer.produce(records, within)

    async def register_schema(self, part: Part, definition: str) -> SchemaVersion:
        """Register it under the subject of the topic (`registry.subject_versions`)."""
        return await self._kafka.subject_versions.register(f"{self._topic}-{part}", definition)

    async def find_schema(self, part: Part, version: int) -> SchemaVersion:
        """Find it under the subject of the topic."""
        return await self._kafka.subject_versions.find(f"{self._topic}-{part}", version)

    async def known_schema(self, part: Part, definition: str) -> SchemaVersion:
        """Find it under the subject of the topic, if it is there."""
        return await self._kafka.subject_versions.known(f"{self._topic}-{part}", definition)

    async def committed(self, group: str) -> Mapping[int, tuple[int, str]]:
        """Return what is in `__consumer_offsets`. Raises CommitRefused."""
        return await self._kafka.commits.fetch(group, self._topic, (await self._live()).next)

    async def commit(self, group: str, positions: Mapping[int, tuple[int, str]]) -> None:
        """Keep these, if every one is a place in a partition of the topic. Raises CommitRefused."""
        live = await self._live()
        beyond = {}
        for partition, (offset, _) in positions.items():
            if partition not in live.next:
                raise CommitRefused(RefusalCode.POSITIONS, f"there is no partition {partition}")
            if offset < 0:
                raise CommitRefused(RefusalCode.POSITIONS, f"{offset} is no offset")
            if offset > live.next[partition]:
                beyond[partition] = offset
        if beyond:
            await self._check_ends(beyond)
        await self._kafka.commits.commit(group, self._topic, positions)

    # --- groups ---

    @asynccontextmanager
    async def join(
        self, group: str, kind: str, sharing: Sharing, begin: Callable[[], Awaitable[Positions]]
    ) -> AsyncIterator[GroupMember]:
        """Be a member of a consumer group (`client.group_member`)."""
        live = await self._live()
        membership = GroupMembership(
            group, self._topic, kind, sharing, self._kafka.session_seconds, live.next.keys, begin
        )
        async with self._kafka.join_group(membership) as member:
            yield member

    async def group_state(self, group: str) -> GroupState:
        """Return what Kafka knows of a group."""
        return GroupState(await self._kafka.commits.state(group), await self.committed(group))

    async def forget_group(self, group: str) -> None:
        """Have Kafka forget a group."""
        await self._kafka.commits.forget(group)

    async def _check_ends(self, positions: Mapping[int, int]) -> None:
        """Raise CommitRefused unless the partitions reach as far. What was read already does."""
        info = await self._kafka.lookup.describe(self._topic)
        if isinstance(info, MissingTopic):
            raise CommitRefused(RefusalCode.UNAVAILABLE, "the topic is not there", retry=True)
        ends = await self._kafka.lookup.known_ends(info)
        for partition, offset in positions.items():
            if (end := ends.get(partition)) is None:
                words = f"the leader of partition {partition} does not answer"
                raise CommitRefused(RefusalCode.UNAVAILABLE, words, retry=True)
            if offset > end:
                raise CommitRefused(
                    RefusalCode.POSITIONS, f"partition {partition} ends at {end}, before {offset}"
                )

    # --- inside ---

    async def _live(self) -> TopicReader:
        while self._topic_reader is None:
            await self._began.wait()
        return self._topic_reader

    async def _continue(self, info: TopicDescription, start: Positions) -> dict[int, int]:
        topic = self._topic
        if not self._kafka.is_same(info):
            raise recreated(topic)
        if not set(start) <= set(info.leaders):
            raise SourceChanged(
                f"topic {topic!r} has fewer partitions than it had: it has been deleted and created anew"
            )
        new_partitions = set(info.leaders) - set(start)
        if new_partitions and not self._follow_new_partitions:
            raise SourceChanged(
                f"topic {topic!r} has grown from {len(start)} to {len(info.leaders)} partitions"
            )
        ends = await self._kafka.lookup.known_ends(info)
        for partition, position in start.items():
            if position > ends.get(partition, position):
                raise truncated(topic, partition, ends[partition], position)
        return {partition: start.get(partition, 0) for partition in info.leaders}


def build_source(settings: KafkaSourceSettings, context: SourceContext) -> KafkaSource:
    """Make the source (`SourceType.build`)."""
    kafka = cast("Kafka", context.services["kafka"])
    return KafkaSource(settings, kafka, headers="headers" in context.plugins.columns)
