"""Questions to the cluster about topics, which wait for an answer however long that takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog
import trio

from kiwi_gw.api import Backoff, OffsetRange, SourceChanged
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.monitor.cluster_monitor import ClusterMonitor
from kiwi_kafka.ports import (
    AdminClient,
    MissingTopic,
    OffsetsResult,
    TopicDescription,
    TopicPartition,
    UnreachableError,
)

log = structlog.get_logger("kiwi_kafka")

_LEADER_S = 0.1
"""Until brokers agree who leads a partition."""

MISSING, DENIED = "the Kafka topic does not exist", "the gateway may not see the Kafka topic"

Say = Callable[[str], None]


def _nothing(message: str) -> None:
    """Tell nobody."""


_Ask = Callable[[AdminClient, TopicDescription], Awaitable[OffsetsResult]]


class TopicLookup:
    """Ask the cluster. patience: seconds that a partition rests while no leader says whether its log is the
    one of before."""

    def __init__(self, cluster_monitor: ClusterMonitor, patience: float) -> None:
        self.cluster_monitor = cluster_monitor
        self._patience = patience
        self._refused: set[str] = (
            set()
        )  # topics for which it was logged that leaders never say where epochs end

    async def find(self, topic: str, say: Say = _nothing) -> TopicDescription:
        """Return the topic, as soon as it exists. Waits for ever and creates nothing. say: called with what
        keeps it waiting, and with an empty text when nothing does any more."""
        backoff = Backoff(0.5, 5.0)
        logged = False
        while True:
            info = await self.describe(topic)
            if isinstance(info, TopicDescription):
                if logged:
                    log.info("kafka topic found", topic=topic)
                    say("")
                return info
            if not logged:
                log.warning(
                    "no permission for kafka topic, waiting" if info.denied else "waiting for kafka topic",
                    topic=topic,
                )
                say(DENIED if info.denied else MISSING)
                logged = True
            await trio.sleep(backoff.next())

    async def describe(self, topic: str) -> TopicDescription | MissingTopic:
        async def asked(admin: AdminClient) -> TopicDescription | MissingTopic:
            return (await admin.describe_topics([topic]))[topic]

        return await self.cluster_monitor.ask(asked)

    async def ends(self, topic: str, say: Say = _nothing) -> tuple[TopicDescription, dict[int, int]]:
        """Return the topic and the end of all its partitions: what a reader of committed records may read up
        to.

        Waits until it is there (`find`), and every partition has a leader that answers.
        """
        backoff = Backoff(0.1, 2.0)
        while True:
            info = await self.find(topic, say)
            ends = await self.known_ends(info, stable=True)
            if len(ends) == len(info.leaders):
                return info, ends
            await trio.sleep(backoff.next())

    async def known_ends(self, info: TopicDescription, stable: bool = False) -> dict[int, int]:
        """Return the ends of those partitions whose leaders answer; `stable`: without open transactions."""
        return await self._known(info, lambda admin, info: admin.end_offsets([info], stable))

    async def offset_range(self, topic_reader: TopicReader) -> OffsetRange:
        """Return what the cluster keeps of the reader's partitions. SourceChanged: the topic is another
        one."""
        # First the starts: one that has moved meanwhile is seen when it is read.
        first = await self._all(topic_reader, lambda admin, info: admin.beginning_offsets([info]))
        end = await self._all(topic_reader, lambda admin, info: admin.end_offsets([info], stable=True))
        return OffsetRange(first, {p: max(first[p], offset) for p, offset in end.items()})

    async def since(self, topic_reader: TopicReader, timestamp: int) -> dict[int, int]:
        """Return for every partition of the reader the first record at or after `timestamp` (ms), or the end.
        SourceChanged: the topic is another one."""
        end = await self._all(topic_reader, lambda admin, info: admin.end_offsets([info], stable=True))
        # Kafka gives negative numbers a meaning of their own, and has 64 bits.
        asked = min(max(timestamp, 0), 2**63 - 1)
        found = await self._all(topic_reader, lambda admin, info: admin.offsets_for_time([info], asked))
        return {p: offset if offset >= 0 else end[p] for p, offset in found.items()}

    async def check(self, topic_reader: TopicReader) -> None:
        """End the reader if its topic is another one by now."""
        info = await self.describe(topic_reader.topic)
        if isinstance(info, TopicDescription) and info.is_another(topic_reader.topic_id):
            topic_reader.end(recreated(topic_reader.topic))

    async def find_corrupt_batch(self, tp: TopicPartition, offset: int) -> tuple[int, int] | None:
        info = await self._led(tp)
        return await (await self.cluster_monitor.admin()).find_corrupt_batch(info, tp, offset)

    async def end_if_empty(self, tp: TopicPartition, offset: int) -> int | None:
        """Return the end, if no record is kept from `offset` to it."""
        info = await self._led(tp)
        return await (await self.cluster_monitor.admin()).end_if_empty(info, tp, offset)

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> dict[int, int]:
        """Ask where the records of an epoch end, by partition. -1: the leader does not know, or never
        says."""

        async def asked(admin: AdminClient) -> OffsetsResult:
            return await admin.epoch_end_offsets(info, epochs)

        said = await self.cluster_monitor.ask(asked)
        if said.refused and info.name not in self._refused:
            self._refused.add(info.name)
            why = next(iter(said.refused.values()))
            log.warning("kafka does not say whether a log was cut off", topic=info.name, error=why)
        return {tp.partition: said.known.get(tp, -1) for tp in (*said.known, *said.refused)}

    async def trace(
        self, info: TopicDescription, lineage: TopicLineage, positions: Mapping[int, int]
    ) -> None:
        """Find out to which epoch the log with these positions belongs. Raises SourceChanged if it was cut
        off since the topic was read last."""
        before = {p: known for p in positions if (known := lineage.known(p)) is not None}
        if before:
            ends = await self.epoch_end_offsets(info, {p: epoch for p, (epoch, _) in before.items()})
            for partition, end in ends.items():
                if 0 <= end < before[partition][1]:
                    lineage.end()
                    raise truncated(info.name, partition, end, before[partition][1])
        epochs = {p: epoch for p in positions if (epoch := info.epochs.get(p, -1)) >= 0}
        for partition, end in (await self.epoch_end_offsets(info, epochs)).items() if epochs else ():
            if end >= positions[partition]:
                lineage.adopt(partition, epochs[partition], positions[partition])

    async def resolve_out_of_range(self, topic_reader: TopicReader, partition: int) -> None:
        """Find out where to go on with a position that is not in the log. If it was deleted, that is
        announced, and reading goes on at the log's start. If the log ends before it, it is another topic of
        that name, or one that was cut off."""
        topic = topic_reader.topic
        unknown = 0.0
        while not topic_reader.ended:
            info = await self.describe(topic)
            if isinstance(info, TopicDescription) and partition in info.leaders:
                if info.is_another(topic_reader.topic_id):
                    topic_reader.end(recreated(topic))
                    return
                began = trio.current_time()
                if not await self._is_one_log(topic_reader, partition, info):
                    await trio.sleep(_LEADER_S)  # if it is over this is of no consequence
                    unknown += trio.current_time() - began
                    if unknown >= self._patience:
                        topic_reader.end(_not_said(topic, partition, self._patience))
                    continue
                start = (await self._known(info, lambda admin, info: admin.beginning_offsets([info]))).get(
                    partition
                )
                end = (await self.known_ends(info)).get(partition)
                position = topic_reader.next[partition]
                if end is not None and position > end:
                    topic_reader.lineage.end()
                    topic_reader.end(truncated(topic, partition, end, position))
                    return
                if start is not None and end is not None:
                    if start > position:
                        log.warning(
                            "kafka records are gone",
                            topic=topic,
                            partition=partition,
                            first=position,
                            last=start - 1,
                        )
                    topic_reader.skip(partition, max(start, position))
                    return
            await trio.sleep(0.5)

    # --- details ---

    async def _is_one_log(self, topic_reader: TopicReader, partition: int, info: TopicDescription) -> bool:
        """Return whether the leader's log is the one that was read so far. If it is another one the reader
        ends; else it is not known yet."""
        known = topic_reader.lineage.known(partition)
        if known is None:
            return True
        epoch, reached = known
        current, suspected = info.epochs.get(partition, -1), topic_reader.lineage.suspected(partition)
        if current < 0:  # brokers that do not say
            topic_reader.lineage.adopt(partition, suspected, reached)
            return True
        if current < suspected:
            return False  # this broker does not know of that leader yet
        end = (await self.epoch_end_offsets(info, {partition: epoch})).get(partition)
        if end is None:
            return False
        if 0 <= end < reached:
            topic_reader.lineage.end()
            topic_reader.end(truncated(topic_reader.topic, partition, end, reached))
            return False
        topic_reader.lineage.adopt(partition, current, reached)
        return True

    async def _led(self, tp: TopicPartition) -> TopicDescription:
        info = await self.describe(tp.topic)
        if isinstance(info, MissingTopic) or info.leaders.get(tp.partition, -1) < 0:
            raise UnreachableError(f"{tp.topic}/{tp.partition} has no leader")
        return info

    async def _known(self, info: TopicDescription, ask: _Ask) -> dict[int, int]:
        async def asked(admin: AdminClient) -> Mapping[TopicPartition, int]:
            return (await ask(admin, info)).known

        known = await self.cluster_monitor.ask(asked)
        return {
            p: known[TopicPartition(info.name, p)]
            for p in info.leaders
            if TopicPartition(info.name, p) in known
        }

    async def _all(self, topic_reader: TopicReader, ask: _Ask) -> dict[int, int]:
        """Ask for every partition of the reader, until all their leaders have answered."""
        backoff = Backoff(0.1, 2.0)
        while True:
            info = await self.find(topic_reader.topic)
            if info.is_another(topic_reader.topic_id):
                raise recreated(topic_reader.topic)
            known = await self._known(info, ask)
            if topic_reader.next.keys() <= known.keys():
                return {partition: known[partition] for partition in topic_reader.next}
            await trio.sleep(backoff.next())


def truncated(topic: str, partition: int, end: int, position: int) -> SourceChanged:
    """Say what is wrong where a log ends before a position in it."""
    return SourceChanged(
        f"partition {partition} of topic {topic!r} ends at offset {end}, before {position}: "
        "it was cut off or created anew"
    )


def _not_said(topic: str, partition: int, seconds: float) -> UnreachableError:
    """Say that a partition may not be read on, as no leader says what its log is. It may pass."""
    return UnreachableError(
        f"no leader of partition {partition} of topic {topic!r} has said within {seconds:g} s whether its "
        "log is the one that was read"
    )


def recreated(topic: str) -> SourceChanged:
    """Say what is wrong where a topic's id is another one than it was."""
    return SourceChanged(f"topic {topic!r} has been deleted and created anew")
