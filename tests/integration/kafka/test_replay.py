"""Reading a topic again on the real broker: everything between two positions, once and in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.api import Gap, HistoryReader, OffsetRange, SourceChanged
from kiwi_kafka.ports import TopicPartition
from tests.integration.kafka.support import Running, delete_records, kafka_on, running
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]


class Taken:
    """What a reader has read, checked as it comes: offsets by partition, values, gaps."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self.positions = dict(positions)
        self.offsets: dict[int, list[int]] = {p: [] for p in positions}
        self.values: dict[int, list[object]] = {p: [] for p in positions}
        self.gaps: list[Gap] = []
        self.count = 0

    async def read_to(self, reader: HistoryReader, until: Mapping[int, int], count: int = 10**9) -> None:
        """Read until it is there, or `count` events came."""
        while self.count < count:
            batch = await reader.read(until)
            for partition, offset in batch.starts.items():
                assert offset >= self.positions[partition]
                self.positions[partition] = offset
            if batch.gap is not None:
                self.gaps.append(batch.gap)
            rows = zip(batch.partitions, batch.offsets, batch.column("value"), strict=True)
            for partition, offset, value in rows:
                assert self.positions[partition] <= offset < until[partition]
                self.offsets[partition].append(offset)
                self.values[partition].append(value)
                self.positions[partition] = offset + 1
            self.count += len(batch)
            if all(batch.starts[p] >= end for p, end in until.items()):
                return


@asynccontextmanager
async def source_on(broker: Broker, topic: str) -> AsyncIterator[Running]:
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, topic) as source:
        yield source


async def test_from_the_first_to_the_end(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 200_000, 4)
    async with source_on(broker, name) as running:
        offset_range = await running.source.offset_range()
        assert offset_range == OffsetRange(dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 50_000))
        taken = Taken(offset_range.first)
        async with running.source.read_from(offset_range.first) as reader:
            middle = {p: 10_000 + p for p in range(4)}
            with trio.fail_after(30):
                await taken.read_to(reader, middle)
                assert taken.positions == middle
                await taken.read_to(reader, offset_range.end)
            # What comes meanwhile is live, and is read again when the end is moved on.
            await topics.fill(name, 400, 4)
            await running.out.wait_for(400)
            with trio.fail_after(10):
                await taken.read_to(reader, running.out.positions)
    assert taken.offsets == {p: list(range(50_100)) for p in range(4)}
    assert running.out.offsets == {p: list(range(50_000, 50_100)) for p in range(4)}
    assert not taken.gaps


async def test_by_time(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    began = 1_700_000_000_000
    rows = [Record(b"%d" % n, partition=0, timestamp=began + 1000 * n) for n in range(100)]
    await topics.produce(name, rows, codec="lz4")
    async with source_on(broker, name) as running:
        at = running.source.at
        assert await at(began + 40_000) == {0: 40, 1: 0}
        assert await at(began + 40_001) == {0: 41, 1: 0}
        assert await at(began + 99_001) == {0: 100, 1: 0}
        assert await at(-1) == {0: 0, 1: 0}  # which means another thing to Kafka
        async with running.source.read_from(await at(began + 97_500)) as reader:
            taken = Taken({0: 0, 1: 0})
            await taken.read_to(reader, {0: 100, 1: 0})
    assert taken.values[0] == [b"98", b"99"]


async def test_only_committed_records_and_no_wait_for_aborted_ones(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 1)
    placed = []
    for n in range(4):
        records = [Record(b"%d-%d" % (n, m)) for m in range(20)]
        placed += await topics.produce(name, records, transactional_id=f"{name}-{n}")
        await topics.produce(name, [Record(b"never")] * 50, transactional_id=f"{name}-{n}", abort=True)
    async with source_on(broker, name) as running:
        # The last offsets hold aborted records and markers alone.
        end = {0: placed[-1][1] + 53}
        with trio.fail_after(10):
            while (await running.source.offset_range()).end != end:  # noqa: ASYNC110  (nobody tells)
                await trio.sleep(0.05)
        async with running.source.read_from({0: 0}) as reader:
            taken = Taken({0: 0})
            with trio.fail_after(5):
                await taken.read_to(reader, end)
    assert [(0, offset) for offset in taken.offsets[0]] == placed
    assert not taken.gaps


async def test_where_nothing_is_kept(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.produce(name, [Record(b"x" * 5_000)] * 10)
    await topics.produce(name, [Record(b"never")] * 5, transactional_id=f"{name}-a", abort=True)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        end = 16  # the marker has an offset too
        with trio.fail_after(10):
            while (await source.source.offset_range()).end != {0: end}:  # noqa: ASYNC110  (nobody tells)
                await trio.sleep(0.05)
        for offset in (0, 9, 10, end - 1):  # aborted records and markers are something
            assert await kafka.lookup.end_if_empty(TopicPartition(name, 0), offset) is None
        assert await kafka.lookup.end_if_empty(TopicPartition(name, 0), end) == end


SOON_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
"""Settings of a topic that `compacting_broker` compacts while a test waits."""


@pytest.fixture
async def compacting_broker(tmp_path: Path) -> AsyncIterator[Broker]:
    quick = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "100"}
    options = ("-XX:TieredStopAtLevel=1",)
    async with Broker(tmp_path / "broker", properties=quick, java_options=options) as broker:
        yield broker


async def compacted(broker: Broker, name: str) -> list[int]:
    """Make a topic, write 2,000 records with 50 keys to it, slowly enough for segments to end, and wait until
    half of them are gone. Returns the offsets of those that were there then."""
    topics = Topics(broker.bootstrap)
    await topics.create(name, 1, SOON_COMPACTED)
    async with source_on(broker, name) as running:
        for turn in range(40):
            await topics.produce(name, [Record(b"%d" % turn, key=b"%d" % n) for n in range(50)])
            await trio.sleep(0.1)

        async def offsets() -> list[int]:
            async with running.source.read_from({0: 0}) as reader:
                taken = Taken({0: 0})
                with trio.fail_after(10):
                    await taken.read_to(reader, {0: 2_000})
                assert taken.positions == {0: 2_000}
                assert not taken.gaps
            return taken.offsets[0]

        with trio.fail_after(40):
            while len(kept := await offsets()) > 1_000:  # noqa: ASYNC110  (the cleaner tells nobody)
                await trio.sleep(0.5)
    return kept


@pytest.mark.extended
async def test_holes_that_compaction_left(compacting_broker: Broker, new_topic: NewTopic) -> None:
    kept = await compacted(compacting_broker, new_topic())
    # The newest of every key is there, and what is there is in order.
    assert kept[-50:] == list(range(1_950, 2_000))
    assert kept == sorted(set(kept))


async def test_deleted_under_a_reader(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    for _ in range(40):  # batches that do not fit one fetch
        await topics.fill(name, 2_000, 2, size=1_000)
    end = {0: 40_000, 1: 40_000}
    async with source_on(broker, name) as running, running.source.read_from({0: 0, 1: 0}) as reader:
        taken = Taken({0: 0, 1: 0})
        with trio.fail_after(20):
            await taken.read_to(reader, end, count=3_000)
            await delete_records(broker.bootstrap, name, {0: 38_500})
            assert (await running.source.offset_range()).first == {0: 38_500, 1: 0}
            await taken.read_to(reader, end)
    (gap,) = taken.gaps
    ((partition, (first, last)),) = gap.ranges.items()
    assert (partition, last, gap.count) == (0, 38_499, None)
    assert taken.offsets == {0: [*range(first), *range(38_500, 40_000)], 1: list(range(40_000))}


@pytest.mark.extended
async def test_killed_in_the_middle(own_broker: Broker, new_topic: NewTopic) -> None:
    topics = Topics(own_broker.bootstrap)
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 200_000, 4)
    end = dict.fromkeys(range(4), 50_000)
    start = dict.fromkeys(range(4), 0)
    async with source_on(own_broker, name) as running, running.source.read_from(start) as reader:
        taken = Taken(start)
        await taken.read_to(reader, end, count=50_000)
        await own_broker.kill()
        with trio.move_on_after(4):  # what the client holds still comes, then nothing
            await taken.read_to(reader, end)
        assert taken.count < 200_000
        await own_broker.start()
        with trio.fail_after(5):
            await taken.read_to(reader, end)
    assert taken.offsets == {p: list(range(50_000)) for p in range(4)}
    assert not taken.gaps


async def test_created_anew_under_a_reader(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.fill(name, 50_000, 1)
    async with source_on(broker, name) as running:
        topic_reader = running.source.read_from({0: 0})
        async with topic_reader as reader:
            taken = Taken({0: 0})
            await taken.read_to(reader, {0: 50_000}, count=1_000)
            await topics.delete(name)
            await topics.create(name, 1)
            await topics.produce(name, [Record(b"new")] * 60_000)
            with trio.fail_after(10):
                await running.ended.wait()
                with pytest.raises(SourceChanged):
                    await taken.read_to(reader, {0: 50_000})
        assert isinstance(running.error, SourceChanged)
    assert b"new" not in taken.values[0]


async def test_cancelled_again_and_again(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 100_000, 4)
    start, end = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 25_000)
    cancelled = 0
    async with source_on(broker, name) as running, running.source.read_from(start) as reader:
        taken = Taken(start)
        patience = 0.0
        with trio.fail_after(50):
            while any(taken.positions[p] < end[p] for p in end):
                with trio.move_on_after(patience) as scope:
                    await taken.read_to(reader, end)
                cancelled += scope.cancelled_caught
                patience = (patience + 0.0007) % 0.03
    assert cancelled > 10
    assert taken.offsets == {p: list(range(25_000)) for p in range(4)}


async def test_live_reading_goes_on_beside_it(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 100_000, 4)
    start, end = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 25_000)
    async with source_on(broker, name) as running, trio.open_nursery() as nursery:
        done = trio.Event()

        async def read_again() -> None:
            taken = Taken(start)
            async with running.source.read_from(start) as reader:
                await taken.read_to(reader, end)
            assert taken.offsets == {p: list(range(25_000)) for p in range(4)}
            done.set()

        for _ in range(3):
            nursery.start_soon(read_again)
        with trio.fail_after(40):
            while not done.is_set():
                before = running.out.count
                await topics.fill(name, 40, 4)
                await running.out.wait_for(before + 40)
    live = len(running.out.offsets[0])
    assert running.out.offsets == {p: list(range(25_000, 25_000 + live)) for p in range(4)}
