"""What the task of one consumer does with what it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.live.consumer_task import ConsumerTask
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.ports import Consumer, FetchedPartition, TopicDescription, TopicPartition
from tests.plugins.kafka.fakes import FakeCluster, FakeConsumer, Nobody
from tests.plugins.kafka.scripted_broker import SECONDS, Cluster, cluster_of


class Host:
    """Give out consumers of a cluster in memory."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    async def consumer(self) -> Consumer:
        return await self.cluster.consumer()

    async def verify(self, topic_readers: object) -> None:
        await trio.lowlevel.checkpoint()

    async def find_corrupt_batch(self, tp: TopicPartition, offset: int) -> None:
        raise AssertionError

    def on_out_of_range(self, topic_reader: TopicReader, partition: int) -> None:
        raise AssertionError

    def probe_now(self) -> None:
        raise AssertionError

    def fetch_interval_ms(self) -> int:
        return 0


def reader(offset: int, topic: str = "t") -> TopicReader:
    lineage = TopicLineage(Nobody(), topic, bytes(16))
    info = TopicDescription(topic, bytes(16), {0: 1})
    return TopicReader(info, {0: offset}, headers=False, follow_new_partitions=False, lineage=lineage)


async def test_a_reader_that_comes_during_a_read_gets_nothing_of_it(autojump_clock: MockClock) -> None:
    """A source that is restarted has another place in its topic than the one before it."""
    old, new = reader(0), reader(3)

    class Replacing(FakeConsumer):
        async def read(
            self, resting: Collection[TopicPartition], wait_ms: int, max_records: int | None = None
        ) -> dict[str, list[FetchedPartition]]:
            fetched = await super().read(resting, wait_ms, max_records)
            if old in task.topic_readers:
                task.remove(old)
                task.add(new)
            return fetched

    class Cluster(FakeCluster):
        async def consumer(self, *, live: bool = True) -> FakeConsumer:
            await trio.lowlevel.checkpoint()
            self.consumers.append(Replacing(self))
            return self.consumers[-1]

    cluster = Cluster()
    cluster.create("t")
    cluster.add("t", 0, *(b"%d" % n for n in range(5)))
    task = ConsumerTask(Host(cluster))
    task.add(old)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        batch = await new.take()
        nursery.cancel_scope.cancel()
    assert list(batch.offsets) == [3, 4]
    assert old.next == {0: 0}


async def test_one_that_is_full_rests_and_others_go_on(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    readers = {topic: reader(0, topic) for topic in ("t", "u")}
    for topic in readers:
        cluster.create(topic)
    task = ConsumerTask(Host(cluster))
    async with trio.open_nursery() as nursery:
        for topic_reader in readers.values():
            task.add(topic_reader)
        nursery.start_soon(task.run)
        await trio.sleep(1)
        for n in range(5):
            cluster.add("t", 0, b"%d" % n)
            cluster.add("u", 0, b"%d" % n)
            await trio.sleep(1)
            assert list((await readers["u"].take()).offsets) == [n]
        assert [list((await readers["t"].take()).offsets) for _ in range(3)] == [[0], [1], [2, 3, 4]]
        assert len(cluster.consumers) == 1
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def task_on(broker: Cluster, topic_reader: TopicReader, **client: Any) -> AsyncIterator[None]:
    """Run a task whose consumers read a scripted cluster."""
    async with trio.open_nursery() as nursery:

        class Real(Host):
            async def consumer(self) -> Consumer:
                return await BrokerClientFactory(broker.settings(**client), nursery).consumer()

        task = ConsumerTask(Real(FakeCluster()))
        task.add(topic_reader)
        nursery.start_soon(task.run)
        yield
        nursery.cancel_scope.cancel()


async def test_records_are_with_their_reader_when_the_broker_is_asked_for_more(clock: MockClock) -> None:
    async with cluster_of() as broker:
        [tp] = broker.create("t", 1)
        topic_reader = reader(0)
        async with task_on(broker, topic_reader):
            fetches = broker.nodes[1].fetches
            await broker.until(lambda: bool(fetches))
            for offset in range(3):
                before = len(fetches)
                broker.append(tp)
                await broker.until(lambda before=before: len(fetches) > before)  # type: ignore[misc]
                batch = topic_reader.take_nowait()
                assert batch is not None
                assert list(batch.offsets) == [offset]


async def test_records_gather_while_nobody_is_subscribed(clock: MockClock) -> None:
    """Fetches keep a distance then; behind one that has waited for a record comes the next at once."""
    async with cluster_of() as broker:
        [tp] = broker.create("t", 1)
        topic_reader = reader(0)
        subscribers: set[str] = set()
        topic_reader.has_subscription = lambda: bool(subscribers)
        async with task_on(broker, topic_reader):
            fetches = broker.nodes[1].fetches

            async def from_record_to_fetch() -> float:
                began, before = trio.current_time(), len(fetches)
                broker.append(tp)
                with trio.fail_after(SECONDS):
                    assert len(await topic_reader.take()) == 1
                assert trio.current_time() == began
                await broker.until(lambda: len(fetches) > before)
                assert fetches[-1].wait_ms > 0, "the broker is not asked again for nothing"
                return trio.current_time() - began

            await broker.until(lambda: bool(fetches))
            for who, distance in ((set[str](), 0.005), ({"somebody"}, 0.0), (set[str](), 0.005)):
                subscribers.clear()
                subscribers.update(who)
                await trio.sleep(1)
                assert await from_record_to_fetch() < 0.002
                assert await from_record_to_fetch() == pytest.approx(distance, abs=0.002)
                assert await from_record_to_fetch() == pytest.approx(distance, abs=0.002)


async def test_a_backlog_is_read_without_pauses_though_nobody_is_subscribed(clock: MockClock) -> None:
    async with cluster_of() as broker:
        [tp] = broker.create("t", 1)
        for _ in range(400):
            broker.append(tp)
        topic_reader = reader(0)
        topic_reader.has_subscription = lambda: False
        async with task_on(broker, topic_reader, max_partition_fetch_bytes=200):
            count, began = 0, trio.current_time()
            with trio.fail_after(SECONDS):
                while count < 400:
                    count += len(await topic_reader.take())
            fetches = len(broker.nodes[1].fetches)
            assert fetches > 100, "an answer has little"
            assert trio.current_time() - began < 0.003 * fetches


async def test_what_one_read_does_not_take_comes_with_the_next(clock: MockClock) -> None:
    async with cluster_of() as broker:
        [tp] = broker.create("t", 1)
        broker.append(tp, 7)
        topic_reader = reader(0)
        async with task_on(broker, topic_reader, max_poll_records=2):
            with trio.fail_after(SECONDS):
                got = [list((await topic_reader.take()).offsets) for _ in range(4)]
        assert got == [[0, 1], [2, 3], [4, 5], [6]]


async def test_what_comes_while_a_backlog_is_read_stays_behind_it(clock: MockClock) -> None:
    async with cluster_of() as broker:
        [tp] = broker.create("t", 1)
        topic_reader = reader(0)
        wanted = 0
        got: list[int] = []
        async with task_on(broker, topic_reader, max_poll_records=2):
            with trio.fail_after(SECONDS):
                for size in (7, 1, 5, 2, 9, 3):
                    broker.append(tp, size)
                    wanted += size
                    got += (await topic_reader.take()).offsets
                while len(got) < wanted:
                    got += (await topic_reader.take()).offsets
        assert got == list(range(wanted))


async def test_a_partition_that_is_not_looked_into_yet_is_when_its_consumer_is_given_up(
    autojump_clock: MockClock,
) -> None:
    """Nothing else would: it rests, and there may be nothing else to read."""
    looked_into: list[tuple[TopicReader, int]] = []

    class Noting(Host):
        def on_out_of_range(self, topic_reader: TopicReader, partition: int) -> None:
            looked_into.append((topic_reader, partition))

    class Stuck(FakeConsumer):
        async def seek(self, positions: object) -> None:
            task.rebuild()
            await trio.lowlevel.checkpoint()

    class OfStuck(FakeCluster):
        async def consumer(self, *, live: bool = True) -> FakeConsumer:
            await trio.lowlevel.checkpoint()
            return Stuck(self)

    cluster = OfStuck()
    cluster.create("t")
    cluster.elect("t")
    topic_reader = reader(0)
    topic_reader.lineage.adopt(0, 0, 0)
    task = ConsumerTask(Noting(cluster))
    task.add(topic_reader)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        await trio.sleep(1)
        cluster.elect("t")
        cluster.add("t", 0, b"of a later leader")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert looked_into == [(topic_reader, 0)]


def test_a_partition_that_rests_takes_nothing() -> None:
    """What came of it before has been dropped, so this would be a gap."""
    topic_reader = reader(0)
    topic_reader.suspended.add(0)
    assert topic_reader.accept([FetchedPartition(0, [], 5)]) == 0
    assert topic_reader.next == {0: 0}
