"""Watch the topics of the live sources: are they still there, the same ones, with as many partitions, and
read?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import structlog
import trio

from kiwi_gw.api import SourceChanged
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.monitor.topic_lookup import recreated
from kiwi_kafka.ports import AdminClient, MissingTopic, TopicDescription, TopicPartition
from kiwi_kafka.settings import KafkaSettings

log = structlog.get_logger("kiwi_kafka")

_TOPICS = 20
"""Topics that one look takes, in turns, so that a hundred of them cost little."""
_STALLED_S = 5.0
_GONE_AFTER = 2
"""A broker that has just started may not know a topic yet: so often it must be missing, in a row."""


class TopicMonitor:
    """Look at the topics of all readers, some at a time.

    on_repartitioned(reader): its partitions have changed. stalled(reader): its consumer does not move.
    on_broker_back(): one that did not answer does again.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        on_repartitioned: Callable[[TopicReader], None],
        stalled: Callable[[TopicReader], None],
        on_broker_back: Callable[[], None],
    ) -> None:
        self._discovers = settings.partition_discovery_enabled
        self._share = settings.probe_interval_ms / settings.partition_discovery_interval_ms
        self._on_repartitioned = on_repartitioned
        self._on_stalled = stalled
        self._on_broker_back = on_broker_back
        self._rotation: deque[TopicReader] = deque()
        self._silent_nodes: frozenset[int] = frozenset()

    def add(self, topic_reader: TopicReader) -> None:
        self._rotation.appendleft(topic_reader)

    def remove(self, topic_reader: TopicReader) -> None:
        self._rotation.remove(topic_reader)

    async def poll(self, admin: AdminClient) -> None:
        """Look at the next topics in turn. UnreachableError: no broker answers."""
        due = self._due()
        infos = await admin.describe_topics({topic_reader.topic for topic_reader in due})
        present = [info for info in infos.values() if isinstance(info, TopicDescription)]
        for topic_reader in due:
            if not topic_reader.ended:
                self._judge(topic_reader, infos[topic_reader.topic])
        if not present:
            return
        ends = await admin.end_offsets(present, stable=True)
        if self._silent_nodes - ends.silent_nodes:
            # A broker is back, or leads no longer. A consumer may not notice for `request_timeout_ms`.
            self._on_broker_back()
        self._silent_nodes = ends.silent_nodes
        now = trio.current_time()
        for topic_reader in due:
            known = (
                (partition, ends.known.get(TopicPartition(topic_reader.topic, partition)))
                for partition in topic_reader.next
            )
            topic_reader.ends.update((partition, end) for partition, end in known if end is not None)
            if not topic_reader.ended and self._is_stalled(topic_reader, ends.known, now):
                log.warning("kafka consumer stands still, making another", topic=topic_reader.topic)
                topic_reader.stalls.clear()
                self._on_stalled(topic_reader)

    def _due(self) -> list[TopicReader]:
        count = len(self._rotation)
        every_interval = math.ceil(count * self._share) if self._discovers else 0
        count = max(_TOPICS, every_interval)
        due = [self._rotation[i] for i in range(min(count, len(self._rotation)))]
        self._rotation.rotate(-len(due))
        return due

    def _judge(self, topic_reader: TopicReader, info: TopicDescription | MissingTopic) -> None:
        if isinstance(info, MissingTopic):
            topic_reader.missing += 1
            if topic_reader.missing >= _GONE_AFTER:
                topic_reader.end(SourceChanged(f"topic {topic_reader.topic!r} has been deleted"))
                self._on_repartitioned(topic_reader)
            else:
                self._rotation.remove(topic_reader)
                self._rotation.appendleft(topic_reader)  # look again next time
            return
        topic_reader.missing = 0
        if info.is_another(topic_reader.topic_id):
            topic_reader.end(recreated(topic_reader.topic))
            self._on_repartitioned(topic_reader)
            return
        new_partitions = topic_reader.new_partitions(info.leaders)
        if new_partitions and self._discovers:
            if topic_reader.follow_new_partitions:
                topic_reader.add_partitions(new_partitions)
            else:
                before, after = len(topic_reader.next), len(info.leaders)
                topic_reader.end(
                    SourceChanged(
                        f"topic {topic_reader.topic!r} has grown from {before} to {after} partitions"
                    )
                )
            self._on_repartitioned(topic_reader)

    def _is_stalled(self, topic_reader: TopicReader, ends: Mapping[TopicPartition, int], now: float) -> bool:
        stalled = False
        for partition, offset in topic_reader.next.items():
            end = topic_reader.read_target(
                partition, ends.get(TopicPartition(topic_reader.topic, partition), 0)
            )
            if end <= offset or partition in topic_reader.suspended or not topic_reader.has_capacity:
                topic_reader.stalls.pop(partition, None)
                continue
            seen, since = topic_reader.stalls.get(partition, (-1, now))
            if seen != offset:
                topic_reader.stalls[partition] = (offset, now)
            elif now - since >= _STALLED_S:
                stalled = True
        return stalled
