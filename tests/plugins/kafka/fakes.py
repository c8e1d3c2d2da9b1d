"""A cluster in memory, below the ports of the Kafka plugin."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import PluginContext, SourceContext
from kiwi_gw.testing import MemoryPublisher
from kiwi_kafka import KAFKA, Kafka, KafkaSettings, KafkaSourceSettings
from kiwi_kafka.ports import (
    CorruptRecordsError,
    FetchedPartition,
    GroupList,
    GroupMembership,
    GroupMemberTask,
    GroupOffsets,
    MissingTopic,
    OffsetOutOfRangeError,
    OffsetsResult,
    RecordProducer,
    TopicDescription,
    TopicPartition,
    UnreachableError,
)


@dataclass
class Row:
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp: int = -1
    headers: Sequence[tuple[str, bytes | None]] = ()
    epoch: int = -1  # of the leader that took it
    spoiled: bool = False  # the batch of that record cannot be decoded


@dataclass
class FakeTopic:
    id: bytes
    rows: list[list[Row]]
    starts: list[int]
    ends: list[int]
    epoch: int = -1  # of the leader of all partitions; -1: the cluster knows no epochs
    elections: list[tuple[int, list[int]]] = field(default_factory=list)  # epochs, and the ends then


@dataclass
class FakeGroups:
    """written: what was stored together, in order, by group and topic. gate: storing waits for it. members:
    of groups, with their kind. silent: groups of which nobody says how many."""

    offsets: dict[tuple[str, str], dict[int, tuple[int, str]]] = field(default_factory=dict)
    written: list[tuple[str, dict[int, tuple[int, str]]]] = field(default_factory=list)
    gate: trio.Event = field(default_factory=trio.Event)
    members: dict[str, tuple[int, str]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    async def fetch(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        await trio.lowlevel.checkpoint()
        kept = self.offsets.get((group, topic), {})
        return {p: kept[p] for p in partitions if p in kept}

    async def store(self, group: str, topic: str, positions: Mapping[int, tuple[int, str]]) -> None:
        self.written.append((group, dict(positions)))
        await self.gate.wait()
        self.offsets.setdefault((group, topic), {}).update(positions)

    async def state(self, group: str) -> tuple[int, str]:
        await trio.lowlevel.checkpoint()
        if group in self.silent:
            await trio.sleep_forever()
        return self.members.get(group, (0, ""))

    async def forget(self, group: str) -> None:
        await trio.lowlevel.checkpoint()
        for key in [key for key in self.offsets if key[0] == group]:
            del self.offsets[key]

    def close(self) -> None:
        pass


@dataclass
class FakeCluster:
    """`frozen`: nobody answers. `failing`: what the next reads raise. Every consumer ever made is kept."""

    topics: dict[str, FakeTopic] = field(default_factory=dict)
    frozen: bool = False
    deaf: bool = False  # consumers get nothing, though brokers answer
    shows_holes: bool = True  # a fetch at the end of the log shows what offsets hold no record
    consumers: list[FakeConsumer] = field(default_factory=list)
    failing: list[Exception] = field(default_factory=list)
    asked_for: set[str] = field(default_factory=set)
    refused: str = ""  # why brokers never say where an epoch ends
    stubborn: bool = False  # leaders do not say it for now
    knows_epochs: int = 1_000_000  # the newest that the asked broker has heard of
    epochs_asked: list[dict[int, int]] = field(default_factory=list)
    kept: FakeGroups = field(default_factory=FakeGroups)
    unlisted: frozenset[int] = frozenset()  # nodes that do not say which groups they coordinate
    changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    _made: int = 0

    def create(self, name: str, partitions: int = 1) -> None:
        self._made += 1
        rows: list[list[Row]] = [[] for _ in range(partitions)]
        self.topics[name] = FakeTopic(
            self._made.to_bytes(16, "big"), rows, [0] * partitions, [0] * partitions
        )

    def grow(self, name: str, partitions: int) -> None:
        topic = self.topics[name]
        while len(topic.rows) < partitions:
            topic.rows.append([])
            topic.starts.append(0)
            topic.ends.append(0)

    def add(
        self, name: str, partition: int, *values: bytes | None, spoiled: bool = False, timestamp: int = -1
    ) -> None:
        topic = self.topics[name]
        for value in values:
            offset = topic.ends[partition]
            row = Row(offset, value, timestamp=timestamp, spoiled=spoiled, epoch=topic.epoch)
            topic.rows[partition].append(row)
            topic.ends[partition] += 1
        self.wake()

    def elect(self, name: str, ends: Sequence[int] | None = None) -> None:
        """Another leader. ends: by partition, what its log lacks behind it is gone (an unclean election)."""
        topic = self.topics[name]
        for partition, end in enumerate(topic.ends if ends is None else ends):
            topic.rows[partition] = [row for row in topic.rows[partition] if row.offset < end]
            topic.ends[partition] = end
        topic.epoch += 1
        topic.elections.append((topic.epoch, list(topic.ends)))

    def hole(self, name: str, partition: int, size: int) -> None:
        """Offsets without a record: markers, or what compaction left."""
        self.topics[name].ends[partition] += size

    def forget(self, name: str, partition: int, before: int) -> None:
        topic = self.topics[name]
        topic.starts[partition] = before
        topic.rows[partition] = [row for row in topic.rows[partition] if row.offset >= before]

    def compact(self, name: str, partition: int, *offsets: int) -> None:
        rows = self.topics[name].rows
        rows[partition] = [row for row in rows[partition] if row.offset not in offsets]

    def wake(self) -> None:
        self.changed.unpark_all()

    @property
    def reading(self) -> list[FakeConsumer]:
        return [consumer for consumer in self.consumers if not consumer.closed]

    async def answer(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.frozen:
            await trio.sleep(2)
            raise UnreachableError("nobody answers")

    async def admin(self) -> FakeAdminClient:
        await self.answer()
        return FakeAdminClient(self)

    def producer(self, topic: str) -> RecordProducer:
        raise AssertionError("nobody here writes")

    def groups(self) -> GroupOffsets:
        return self.kept

    def member(self, membership: GroupMembership) -> GroupMemberTask:
        raise AssertionError("nobody joins a group here")

    async def consumer(self, *, live: bool = True) -> FakeConsumer:
        await self.answer()
        self.consumers.append(FakeConsumer(self, live=live))
        return self.consumers[-1]


class Nobody:
    """A cluster for a lineage that is not to ask."""

    async def find(self, topic: str) -> TopicDescription:
        raise AssertionError(f"{topic} was looked for")

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> dict[int, int]:
        raise AssertionError(f"{epochs} were asked for")


@dataclass
class FakeAdminClient:
    at: FakeCluster

    async def describe_topics(
        self, topics: Collection[str], rights: bool = False
    ) -> dict[str, TopicDescription | MissingTopic]:
        await self.at.answer()
        self.at.asked_for.update(topics)
        infos: dict[str, TopicDescription | MissingTopic] = {}
        for name in topics:
            topic = self.at.topics.get(name)
            infos[name] = (
                TopicDescription(
                    name,
                    topic.id,
                    dict.fromkeys(range(len(topic.rows)), 1),
                    True if rights else None,
                    dict.fromkeys(range(len(topic.rows)), min(topic.epoch, self.at.knows_epochs)),
                )
                if topic
                else MissingTopic(name)
            )
        return infos

    async def beginning_offsets(self, infos: Collection[TopicDescription]) -> OffsetsResult:
        await self.at.answer()
        return self._offsets(infos, lambda topic: topic.starts)

    async def end_offsets(self, infos: Collection[TopicDescription], stable: bool) -> OffsetsResult:
        await self.at.answer()
        return self._offsets(infos, lambda topic: topic.ends)

    def _offsets(self, infos: Collection[TopicDescription], which: Any) -> OffsetsResult:
        return OffsetsResult(
            {
                TopicPartition(info.name, p): which(self.at.topics[info.name])[p]
                for info in infos
                if info.name in self.at.topics
                for p in info.leaders
            }
        )

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> OffsetsResult:
        await self.at.answer()
        self.at.epochs_asked.append(dict(epochs))
        if self.at.refused:
            return OffsetsResult(
                {}, refused={TopicPartition(info.name, partition): self.at.refused for partition in epochs}
            )
        if self.at.stubborn:
            return OffsetsResult({}, frozenset({1}))
        topic = self.at.topics[info.name]
        known = {}
        for partition, epoch in epochs.items():
            later = [ends[partition] for began, ends in topic.elections if began > epoch]
            if topic.epoch >= 0:
                known[TopicPartition(info.name, partition)] = min([topic.ends[partition], *later])
        return OffsetsResult(known)

    async def offsets_for_time(self, infos: Collection[TopicDescription], timestamp: int) -> OffsetsResult:
        await self.at.answer()
        known = {}
        for info in infos:
            for partition, rows in enumerate(self.at.topics[info.name].rows):
                later = [row.offset for row in rows if row.timestamp >= timestamp]
                known[TopicPartition(info.name, partition)] = later[0] if later else -1
        return OffsetsResult(known)

    async def end_if_empty(self, info: TopicDescription, tp: TopicPartition, offset: int) -> int | None:
        await self.at.answer()
        topic = self.at.topics[tp.topic]
        kept = any(row.offset >= offset for row in topic.rows[tp.partition])
        return None if kept else topic.ends[tp.partition]

    async def find_corrupt_batch(
        self, info: TopicDescription, tp: TopicPartition, offset: int
    ) -> tuple[int, int] | None:
        await self.at.answer()
        rows = self.at.topics[tp.topic].rows[tp.partition]
        spoiled = [row.offset for row in rows if row.spoiled and row.offset >= offset]
        return (spoiled[0], spoiled[-1] + 1) if spoiled else None

    async def list_groups(self) -> GroupList:
        await self.at.answer()
        kept = self.at.kept
        return GroupList(frozenset({*kept.members, *(group for group, _ in kept.offsets)}), self.at.unlisted)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


@dataclass(eq=False)
class FakeConsumer:
    at: FakeCluster
    assigned: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    closed: bool = False
    fetch_interval_ms: int = 0
    live: bool = True

    def __post_init__(self) -> None:
        self.on_arrived: Callable[[], None] = lambda: None

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        assert not self.assigned, "assigned twice"
        await trio.lowlevel.checkpoint()
        self.assigned = dict(positions)

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        await trio.lowlevel.checkpoint()
        self.assigned.update(positions)

    async def pause(self, assigned: Collection[TopicPartition]) -> None:
        await trio.lowlevel.checkpoint()
        self.paused.update(assigned)

    async def resume(self, positions: Mapping[TopicPartition, int]) -> None:
        await trio.lowlevel.checkpoint()
        self.assigned.update(positions)
        self.paused.difference_update(positions)

    async def read(
        self, resting: Collection[TopicPartition], wait_ms: int, max_records: int | None = None
    ) -> dict[str, list[FetchedPartition]]:
        with trio.move_on_after(wait_ms / 1000):
            while True:
                await trio.lowlevel.checkpoint()
                if self.at.failing:
                    raise self.at.failing.pop(0)
                if not self.at.frozen and not self.at.deaf and (fetched := self._fetch(resting, max_records)):
                    return fetched
                await self.at.changed.park()
        return {}

    def _fetch(
        self, resting: Collection[TopicPartition], max_records: int | None
    ) -> dict[str, list[FetchedPartition]]:
        fetched: dict[str, list[FetchedPartition]] = {}
        left = max_records or 100
        for tp in self.assigned.keys() - set(resting):
            topic = self.at.topics.get(tp.topic)
            if topic is None or tp in self.paused:
                continue
            position = self.assigned[tp]
            if not topic.starts[tp.partition] <= position <= topic.ends[tp.partition]:
                raise OffsetOutOfRangeError({tp: position})
            rows = [row for row in topic.rows[tp.partition] if row.offset >= position]
            sound = list(itertools.takewhile(lambda row: not row.spoiled, rows))[:left]
            if rows and not sound:
                if fetched:
                    break
                raise CorruptRecordsError(tp, "Invalid CRC")
            left -= len(sound)
            if sound:
                self.assigned[tp] = sound[-1].offset + 1
            elif self.at.shows_holes:
                self.assigned[tp] = topic.ends[tp.partition]
            if self.assigned[tp] > position:
                epoch = sound[-1].epoch if sound else -1
                part = FetchedPartition(tp.partition, sound, self.assigned[tp], epoch)
                fetched.setdefault(tp.topic, []).append(part)
            if not left:
                break
        return fetched

    def read_nowait(self, resting: Collection[TopicPartition]) -> dict[str, list[FetchedPartition]]:
        raise AssertionError("this one never calls `on_arrived`")

    def set_fetch_interval(self, wait_ms: int, pause_ms: int = 0) -> None:
        self.fetch_interval_ms = wait_ms

    async def close(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def pool_on(cluster: FakeCluster, **settings: Any) -> AsyncIterator[Kafka]:
    async with trio.open_nursery() as nursery:
        section = KafkaSettings(bootstrap_servers="fake:9092", **settings)
        kafka = Kafka(section, cluster, nursery)
        kafka.start()
        yield kafka
        nursery.cancel_scope.cancel()


class Run:
    """A source that runs into a MemoryPublisher."""

    def __init__(self, kafka: Kafka, topic: str, out: MemoryPublisher | None = None, **settings: Any) -> None:
        section = KafkaSourceSettings(type="kafka", topic=topic, **settings)
        self.source = KAFKA.build(section, SourceContext(topic, PluginContext({}), {"kafka": kafka}))
        self.out = MemoryPublisher(KAFKA.description_of(section).schema) if out is None else out
        self.error: Exception | None = None
        self.ended = trio.Event()
        self.scope = trio.CancelScope()

    async def __call__(self, start: Mapping[int, int] | None = None) -> None:
        with self.scope:
            try:
                await self.source.run(self.out, start)
            except Exception as error:  # noqa: BLE001  (a test looks at it)
                self.error = error
        self.ended.set()

    @property
    def values(self) -> list[object]:
        return [record["value"] for record in self.out.records]


@asynccontextmanager
async def run_on(
    cluster: FakeCluster, pool: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Run]:
    """A source of the topic `t` that runs, and waits for what comes. pool: settings of the cluster."""
    async with pool_on(cluster, **(pool or {})) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", **settings)
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        yield run
        nursery.cancel_scope.cancel()
