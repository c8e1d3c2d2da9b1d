"""The service `kafka`: a few consumers that carry all live sources of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import cast

import structlog
import trio

from kiwi_gw.api import (
    Decode,
    GroupMember,
    HistoryReader,
    PluginContext,
    PluginError,
    RefusalCode,
    SchemaRefused,
)
from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.client.options import tls_context
from kiwi_kafka.commits import GroupCommits
from kiwi_kafka.history.bounded_topic_reader import BoundedTopicReader
from kiwi_kafka.history.history_reader import TopicHistoryReader
from kiwi_kafka.history.replay_scheduler import ReplayScheduler
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.live.consumer_task import ConsumerTask
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.monitor.cluster_monitor import ClusterMonitor
from kiwi_kafka.monitor.topic_lookup import TopicLookup, recreated
from kiwi_kafka.monitor.topic_monitor import TopicMonitor
from kiwi_kafka.ports import (
    AdminClient,
    ClientFactory,
    Consumer,
    GroupMembership,
    MissingTopic,
    RecordProducer,
    TopicDescription,
    TopicPartition,
)
from kiwi_kafka.registry.schema_registry import SchemaRegistry
from kiwi_kafka.registry.source_schemas import SourceSchemas
from kiwi_kafka.registry.subject_versions import SubjectVersions
from kiwi_kafka.settings import KafkaSettings, RegistrySettings

log = structlog.get_logger("kiwi_kafka")

NO_REGISTRY = "decode.registry needs the address of the schema registry: kafka.registry.url"

_BREADTH = 4
"""So many consumers are made before two sources share one."""
_PER_CONSUMER = 100
"""Partitions in one consumer before another is made: every fetch names all of them."""
_UNPACED = 64
_LONGEST_GATHER_MS = 45


class Kafka:
    """Serve the sources of one cluster: `lookup` asks about topics, `open_reader` has one read on,
    `open_history_reader` has it read again, `producer` writes, `commits` keeps how far groups have come."""

    def __init__(
        self,
        settings: KafkaSettings,
        clients: ClientFactory,
        nursery: trio.Nursery,
        registry: SchemaRegistry | None = None,
        versions: SubjectVersions | None = None,
    ) -> None:
        self._clients = clients
        self._registry, self._versions = registry, versions
        self._most = settings.client.max_consumers
        self._poll_records = settings.client.max_poll_records
        self._tasks: list[ConsumerTask] = []
        self._nursery = nursery
        self._read_by: dict[TopicReader, ConsumerTask | TopicHistoryReader] = {}
        self._scheduler = ReplayScheduler(settings.client.max_history_consumers)
        self._lineages: dict[str, TopicLineage] = {}  # of the topics as they were last opened
        self._topic_monitor = TopicMonitor(settings, self._reassign, self._rebuild, self.on_cluster_away)
        servers = ", ".join(settings.servers)
        self._cluster_monitor = ClusterMonitor(clients, self, servers, settings.probe_interval_ms / 1000)
        self._groups = clients.groups()
        self.session_seconds = settings.client.session_timeout_ms / 1000
        self.commits = GroupCommits(self._groups, nursery)
        self.lookup = TopicLookup(self._cluster_monitor, settings.client.request_timeout_ms / 1000)

    def start(self) -> None:
        """Serve, in tasks of the nursery, until that is cancelled."""
        self._nursery.start_soon(self._cluster_monitor.run)

    # --- for sources ---

    @property
    def up(self) -> bool:
        """Return whether the cluster answered the last probe."""
        return self._cluster_monitor.up

    def report_outages_to(self, listener: Callable[[str], None]) -> AbstractContextManager[None]:
        """See `ClusterMonitor.report_outages_to`."""
        return self._cluster_monitor.report_outages_to(listener)

    @property
    def consumers(self) -> tuple[int, ...]:
        """Return how many partitions each consumer in use reads."""
        return tuple(task.partitions for task in self._tasks if task.topic_readers)

    def producer(self, topic: str) -> RecordProducer:
        """Make a producer, which is to be closed."""
        return self._clients.producer(topic)

    @asynccontextmanager
    async def join_group(self, membership: GroupMembership) -> AsyncIterator[GroupMember]:
        """Be a member of a group while the block runs."""
        member, scope, left = self._clients.member(membership), trio.CancelScope(), trio.Event()

        async def be_member() -> None:
            try:
                with scope:
                    await member.run()
            finally:
                left.set()

        self._nursery.start_soon(be_member)
        try:
            yield member
        finally:
            scope.cancel()
            with trio.CancelScope(shield=True):  # it takes a second at most to leave
                await left.wait()

    def schemas_of(self, decode: Decode, say: Callable[[object, str], None]) -> SourceSchemas | None:
        """Return what adds schemas to the batches of a source (`say`: see there); None if its bytes name
        none. Raises PluginError if there is no registry."""
        if not decode.registry:
            return None
        if self._registry is None:
            raise PluginError(NO_REGISTRY)
        return SourceSchemas(self._registry, decode, say)

    @property
    def subject_versions(self) -> SubjectVersions:
        """Return what registers the schemas of what is written. Raises SchemaRefused if there is no
        registry."""
        if self._versions is None:
            raise SchemaRefused(RefusalCode.UNAVAILABLE, NO_REGISTRY)
        return self._versions

    def close(self) -> None:
        """Close what has no task of its own."""
        self._groups.close()

    def is_same(self, info: TopicDescription) -> bool:
        """Return whether positions of the topic's last reader still mean anything; if there was none, they
        may."""
        known = self._lineages.get(info.name)
        return known is None or not info.is_another(known.topic_id)

    def lineage(self, info: TopicDescription) -> TopicLineage:
        """Return what is known of the topic's history; a new lineage for one that was created anew."""
        known = self._lineages.get(info.name)
        if known is None or known.ended or known.topic_id != info.id:
            known = self._lineages[info.name] = TopicLineage(self.lookup, info.name, info.id)
        return known

    @contextmanager
    def open_reader(
        self,
        info: TopicDescription,
        positions: Mapping[int, int],
        *,
        headers: bool,
        follow_new_partitions: bool,
    ) -> Iterator[TopicReader]:
        """Have the topic read from `positions` (of all partitions) on, as long as the block lasts.

        headers: whether batches have a column of headers. follow_new_partitions: whether added partitions
        join; if not, the reader ends with SourceChanged.
        """
        lineage = self.lineage(info)
        topic_reader = TopicReader(
            info, positions, headers=headers, follow_new_partitions=follow_new_partitions, lineage=lineage
        )
        task = self._choose(topic_reader)
        self._read_by[topic_reader] = task
        self._topic_monitor.add(topic_reader)
        task.add(topic_reader)
        try:
            yield topic_reader
        finally:
            topic_reader.end(trio.ClosedResourceError())
            task.remove(topic_reader)
            self._topic_monitor.remove(topic_reader)
            del self._read_by[topic_reader]

    @asynccontextmanager
    async def open_history_reader(
        self, live: TopicReader, positions: Mapping[int, int]
    ) -> AsyncIterator[HistoryReader]:
        """Read the topic of a reader again from `positions` on, with a consumer for this alone.

        Reading waits for its turn while `client.max_history_consumers` are in use.
        """
        topic_reader = BoundedTopicReader(live, positions)
        history_reader = TopicHistoryReader(
            self.lookup, self._clients, topic_reader, self._scheduler, self._poll_records
        )
        self._read_by[topic_reader] = history_reader
        self._topic_monitor.add(topic_reader)
        try:
            yield history_reader
        finally:
            topic_reader.end(trio.ClosedResourceError())
            self._topic_monitor.remove(topic_reader)
            del self._read_by[topic_reader]
            try:
                await history_reader.close()
            finally:
                self._scheduler.release(history_reader)

    # --- for readers ---

    async def consumer(self) -> Consumer:
        await self._cluster_monitor.admin()
        return await self._clients.consumer()

    async def verify(self, topic_readers: Sequence[TopicReader]) -> None:
        live = [topic_reader for topic_reader in topic_readers if not topic_reader.ended]
        infos = await (await self._cluster_monitor.admin()).describe_topics(
            {topic_reader.topic for topic_reader in live}
        )
        for topic_reader in live:
            info = infos[topic_reader.topic]
            if isinstance(info, MissingTopic):
                # Deleted, or its broker has just started. Nothing of that name is read before it is known.
                for partition in set(topic_reader.next) - topic_reader.suspended:
                    topic_reader.suspended.add(partition)
                    self.on_out_of_range(topic_reader, partition)
            elif info.is_another(topic_reader.topic_id):
                topic_reader.end(recreated(topic_reader.topic))

    def probe_now(self) -> None:
        self._cluster_monitor.probe_now()

    def fetch_interval_ms(self) -> int:
        partitions = sum(task.partitions for task in self._tasks)
        return round(min(1.0, max(0.0, (partitions - _UNPACED) / 400)) * _LONGEST_GATHER_MS)

    async def find_corrupt_batch(self, tp: TopicPartition, offset: int) -> tuple[int, int] | None:
        return await self.lookup.find_corrupt_batch(tp, offset)

    def on_out_of_range(self, topic_reader: TopicReader, partition: int) -> None:
        self._nursery.start_soon(self._resolve_out_of_range, topic_reader, partition)

    # --- for the cluster monitor ---

    async def poll(self, admin: AdminClient) -> None:
        await self._topic_monitor.poll(admin)

    def records_received(self) -> int:
        return sum(task.records for task in self._everybody())

    def on_cluster_away(self) -> None:
        for task in self._everybody():
            task.rebuild()

    # --- details ---

    def _everybody(self) -> set[ConsumerTask | TopicHistoryReader]:
        return {*self._tasks, *self._read_by.values()}

    def _choose(self, topic_reader: TopicReader) -> ConsumerTask:
        partitions = sum(task.partitions for task in self._tasks) + len(topic_reader.next)
        wanted = min(self._most, max(_BREADTH, -(-partitions // _PER_CONSUMER)))
        # One consumer cannot read a topic twice, for two sources of the same topic.
        able = [r for r in self._tasks if all(other.topic != topic_reader.topic for other in r.topic_readers)]
        idle = [task for task in able if not task.topic_readers]
        if idle:
            return idle[0]
        if not able or len(self._tasks) < wanted:
            task = ConsumerTask(self)
            self._tasks.append(task)
            self._nursery.start_soon(task.run)
            return task
        return min(able, key=lambda task: task.partitions)

    def _reassign(self, topic_reader: TopicReader) -> None:
        self._read_by[topic_reader].reassign()

    def _rebuild(self, topic_reader: TopicReader) -> None:
        self._read_by[topic_reader].rebuild()

    async def _resolve_out_of_range(self, topic_reader: TopicReader, partition: int) -> None:
        await self.lookup.resolve_out_of_range(topic_reader, partition)
        if topic_reader in self._read_by:
            self._reassign(topic_reader)


@asynccontextmanager
async def open_kafka(context: PluginContext) -> AsyncIterator[Kafka]:
    """Open the service, for one section `kafka`. PluginError if a file that it names cannot be used."""
    settings = cast("KafkaSettings", context.section("kafka"))
    try:
        tls_context(settings.security)
    except OSError as error:
        raise PluginError(f"kafka.security: {error}") from error
    registries = () if settings.registry is None else await _registries(settings.registry)
    with ExitStack() as behind:  # members of groups, which leave when the nursery is cancelled
        async with trio.open_nursery() as nursery:
            kafka = Kafka(settings, BrokerClientFactory(settings, nursery), nursery, *registries)
            behind.callback(kafka.close)
            kafka.start()
            try:
                yield kafka
            finally:
                nursery.cancel_scope.cancel()


async def _registries(settings: RegistrySettings) -> tuple[SchemaRegistry, SubjectVersions]:
    from kiwi_kafka.registry.client import RegistryClient  # with an HTTP client, which few need

    try:
        # In a thread: to load the system's authorities takes up to 0.2 s.
        client = await trio.to_thread.run_sync(RegistryClient, settings)
    except OSError as error:
        raise PluginError(f"kafka.registry.ca: {error}") from error
    registry = SchemaRegistry(client)
    return registry, SubjectVersions(client, registry.cache)
