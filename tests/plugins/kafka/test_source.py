"""What the plugin decides, on a cluster in memory and a clock that jumps."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.api import Batch, Gap, HasStatistics, SourceChanged, SourceFailed, SourceStatistics, Unreadable
from kiwi_gw.testing import MemoryPublisher, check_source
from kiwi_kafka import KAFKA, KafkaSettings
from kiwi_kafka.ports import (
    CorruptRecordsError,
    TopicAuthorizationError,
    TopicPartition,
    UnreachableError,
)
from kiwi_kafka.settings import KafkaSourceSettings
from tests.plugins.kafka.fakes import FakeAdminClient, FakeCluster, Run, pool_on, run_on


async def test_events_after_the_end(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, b"old")
    async with run_on(cluster) as run:
        assert run.out.ready_at == {0: 1, 1: 0}
        cluster.add("t", 1, b"a", b"b")
        await run.out.wait_events(2)
    assert run.values == [b"a", b"b"]


async def test_the_contract(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async def feed() -> None:
        while True:
            await trio.sleep(0.01)
            cluster.add("t", 0, b"x")
            cluster.add("t", 1, b"y")

    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        report = await check_source(
            KAFKA,
            {"type": "kafka", "topic": "t"},
            sections={"kafka": KafkaSettings(bootstrap_servers="fake:1")},
            services={"kafka": kafka},
            repeatable=True,
        )
        nursery.cancel_scope.cancel()
    assert not report.finite


async def test_a_missing_topic_is_waited_for(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "later")
        nursery.start_soon(run)
        with capture_logs() as logs:
            await trio.sleep(600)
        assert run.out.ready_at is None
        assert [entry["event"] for entry in logs] == ["waiting for kafka topic"]
        assert run.out.troubles == ["the Kafka topic does not exist"]
        cluster.create("later", 1)
        await trio.sleep(6)
        assert run.out.ready_at == {0: 0}
        assert run.out.troubles == ["the Kafka topic does not exist", ""]
        nursery.cancel_scope.cancel()


async def test_an_outage_is_noticed_said_once_and_loses_nothing(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        cluster.add("t", 0, b"1")
        await run.out.wait_events(1)
        with capture_logs() as logs:
            cluster.frozen = True
            await trio.sleep(5)
            assert not kafka.up
            assert not cluster.reading
            assert run.out.troubles == ["the Kafka cluster does not answer"]
            late = Run(kafka, "t")
            nursery.start_soon(late)
            await trio.sleep(600)
            assert late.out.troubles == ["the Kafka cluster does not answer"]
            cluster.frozen = False
            cluster.add("t", 0, b"2")
            with trio.fail_after(5):
                await run.out.wait_events(2)
            assert run.out.troubles == late.out.troubles == ["the Kafka cluster does not answer", ""]
        assert [entry["event"] for entry in logs] == ["kafka broker away", "kafka broker back"]
        assert not run.ended.is_set()
        nursery.cancel_scope.cancel()
    assert run.values == [b"1", b"2"]


async def test_a_consumer_that_stands_still_is_replaced(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with run_on(cluster) as run:
        (first,) = cluster.reading
        await trio.sleep(60)
        assert cluster.reading == [first]  # nothing to read is no reason
        cluster.deaf = True
        cluster.add("t", 0, b"1")
        await trio.sleep(8)
        assert first.closed
        cluster.deaf = False
        cluster.wake()
        await run.out.wait_events(1)


async def test_markers_at_the_end_are_no_standstill(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with run_on(cluster) as run:
        cluster.add("t", 0, b"1")
        await run.out.wait_events(1)
        cluster.hole("t", 0, 3)
        (consumer,) = cluster.reading
        await trio.sleep(60)
        assert cluster.reading == [consumer]


async def test_markers_at_the_end_are_passed_in_so_many_words(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    """Who reads up to the end of the topic is not to wait for the next record."""
    async with run_on(cluster) as run:
        cluster.add("t", 0, b"1")
        cluster.hole("t", 0, 1)
        await run.out.wait_events(1)
        await trio.sleep(1)
        assert [(dict(batch.starts), len(batch)) for batch in run.out.batches][1:] == [({0: 2, 1: 0}, 0)]
        cluster.hole("t", 1, 3)
        cluster.wake()
        await trio.sleep(1)
        assert [(dict(batch.starts), len(batch)) for batch in run.out.batches][2:] == [({0: 2, 1: 3}, 0)]
        cluster.add("t", 0, b"2")
        await run.out.wait_events(2)
        await trio.sleep(60)
        assert len(run.out.batches) == 4, "it is said once, and not of records"


async def test_lost_history_is_announced_exactly(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *[b"%d" % n for n in range(10)])
    cluster.add("t", 1, *[b"other"] * 3)
    cluster.forget("t", 0, before=6)
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", out=MemoryPublisher(start={0: 2, 1: 0}))
        nursery.start_soon(run, {0: 2, 1: 0})
        await run.out.wait_events(7)
        nursery.cancel_scope.cancel()
    assert [batch.gap for batch in run.out.batches if batch.gap] == [Gap({0: (2, 5)}, None)]
    assert [r["offset"] for r in run.out.records if r["partition"] == 0] == [6, 7, 8, 9]


async def test_a_topic_cut_off_behind_the_reader(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, b"1", b"2", b"3")
    async with run_on(cluster) as run:
        cluster.topics["t"].ends[0] = 1
        cluster.wake()
        await run.ended.wait()
    assert isinstance(run.error, SourceChanged)
    assert "ends at offset 1, before 3" in str(run.error)


async def test_a_deleted_topic(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        cluster.add("t", 0, b"last")
        await run.out.wait_events(1)
        del cluster.topics["t"]
        with trio.fail_after(5):
            await run.ended.wait()
        assert str(run.error) == "topic 't' has been deleted"
        assert not kafka.consumers  # nobody fetches what is not there
        again = Run(kafka, "t")
        nursery.start_soon(again)
        await trio.sleep(60)
        cluster.create("t", 1)
        await trio.sleep(6)
        assert again.out.ready_at == {0: 0}
        nursery.cancel_scope.cancel()


async def test_a_topic_that_is_missing_for_a_moment(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with run_on(cluster) as run:
        topic = cluster.topics.pop("t")
        await trio.sleep(1)
        cluster.topics["t"] = topic
        await trio.sleep(60)
        assert not run.ended.is_set()


async def test_a_topic_created_anew_has_another_id(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        cluster.create("t", 2)
        await trio.sleep(2)
        assert isinstance(run.error, SourceChanged)
        assert "created anew" in str(run.error)
        # A run that was not told of it, and goes on from old positions, is refused too.
        late = Run(kafka, "t", out=MemoryPublisher(start={0: 0, 1: 0}))
        await late({0: 0, 1: 0})
        assert isinstance(late.error, SourceChanged)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("follow", [False, True])
async def test_growth(autojump_clock: MockClock, cluster: FakeCluster, follow: bool) -> None:
    async with run_on(cluster, on_partition_change="continue" if follow else "close") as run:
        cluster.add("t", 0, b"before")
        cluster.grow("t", 3)
        cluster.add("t", 2, b"new")
        await trio.sleep(5)
        if follow:
            assert run.values == [b"before", b"new"]
            assert run.out.batches[-1].starts == {0: 1, 1: 0, 2: 0}
        else:
            assert run.values == [b"before"]
            assert str(run.error) == "topic 't' has grown from 2 to 3 partitions"


async def test_a_partition_that_is_added_to_an_idle_topic_is_known_at_once(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with run_on(cluster, on_partition_change="continue") as run:
        cluster.grow("t", 3)
        await trio.sleep(5)
        assert [(batch.starts, len(batch)) for batch in run.out.batches] == [({0: 0, 1: 0, 2: 0}, 0)]


async def test_growth_is_found_within_the_interval_however_many_topics(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    for n in range(300):
        cluster.create(f"n{n}", 1)
    async with (
        pool_on(cluster, partition_discovery_interval_ms=5_000) as kafka,
        trio.open_nursery() as nursery,
    ):
        runs = [Run(kafka, f"n{n}", on_partition_change="continue") for n in range(300)]
        for run in runs:
            nursery.start_soon(run)
        await trio.sleep(10)
        for n in range(300):
            cluster.grow(f"n{n}", 2)
        await trio.sleep(6)
        assert sum(kafka.consumers) == 600
        nursery.cancel_scope.cancel()


async def test_a_batch_that_cannot_be_decoded(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, b"good", b"too")
    cluster.add("t", 0, b"x", b"x", b"x", spoiled=True)
    cluster.add("t", 0, b"after")
    cluster.add("t", 1, b"other")
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", out=MemoryPublisher(start={0: 0, 1: 0}))
        nursery.start_soon(run, {0: 0, 1: 0})
        await run.out.wait_events(4)
        nursery.cancel_scope.cancel()
    assert [batch.gap for batch in run.out.batches if batch.gap] == [
        Gap({0: (2, 4)}, None, Unreadable.DAMAGED)
    ]
    assert [r["value"] for r in run.out.records if r["partition"] == 0] == [b"good", b"too", b"after"]


async def test_a_record_damaged_on_its_way_is_read_again(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with run_on(cluster) as run:
        (first,) = cluster.reading
        cluster.failing.append(CorruptRecordsError(TopicPartition("t", 0), "Invalid CRC"))
        cluster.add("t", 0, b"1")
        await run.out.wait_events(1)
        assert first.closed
    assert run.values == [b"1"]


async def test_a_damaged_batch_without_an_end_fails_the_source(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    class Lost(FakeAdminClient):
        async def find_corrupt_batch(self, info: object, tp: TopicPartition, offset: int) -> tuple[int, int]:
            await trio.lowlevel.checkpoint()
            return offset, offset

    class Damaged(FakeCluster):
        async def admin(self) -> FakeAdminClient:
            await trio.lowlevel.checkpoint()
            return Lost(self)

    damaged = Damaged(topics=cluster.topics)
    async with run_on(damaged) as run:
        damaged.add("t", 0, b"x", spoiled=True)
        await run.ended.wait()
    assert isinstance(run.error, SourceFailed)


async def test_rights_that_are_taken_away_end_only_that_run(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.create("u", 1)
    async with pool_on(cluster, client={"max_consumers": 1}) as kafka, trio.open_nursery() as nursery:
        run, other = Run(kafka, "t"), Run(kafka, "u")
        nursery.start_soon(run)
        nursery.start_soon(other)
        await trio.sleep(1)
        cluster.failing.append(TopicAuthorizationError("t"))
        cluster.add("u", 0, b"1")
        await run.ended.wait()
        await other.out.wait_events(1)
        assert isinstance(run.error, PermissionError)  # neither failed nor changed: it is tried again
        nursery.cancel_scope.cancel()


async def test_a_connection_that_breaks_is_replaced(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        for n in range(20):
            await trio.sleep(0.5)
            if n % 3 == 0:
                cluster.failing.append(UnreachableError("broken"))
            cluster.add("t", n % 2, b"%d" % n)
        await run.out.wait_events(20)
        nursery.cancel_scope.cancel()
    assert [r["value"] for r in run.out.records if r["partition"] == 0] == [
        b"%d" % n for n in range(0, 20, 2)
    ]
    assert len(cluster.consumers) > 5


async def test_a_fault_of_the_plugin_reaches_its_sources_and_spares_the_pool(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        cluster.failing.append(ZeroDivisionError("a fault"))
        cluster.wake()
        await run.ended.wait()
        assert isinstance(run.error, ZeroDivisionError)
        again = Run(kafka, "t", out=MemoryPublisher(start={0: 0, 1: 0}))
        nursery.start_soon(again, {0: 0, 1: 0})
        cluster.add("t", 0, b"1")
        await again.out.wait_events(1)
        nursery.cancel_scope.cancel()


class Slow(MemoryPublisher):
    async def publish(self, batch: object) -> None:
        await trio.sleep(60)
        await super().publish(batch)  # type: ignore[arg-type]


async def test_a_slow_source_holds_up_nobody_and_piles_up_nothing(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.create("u", 1)
    async with pool_on(cluster, client={"max_consumers": 1}) as kafka, trio.open_nursery() as nursery:
        slow, quick = Run(kafka, "t", out=Slow()), Run(kafka, "u")
        nursery.start_soon(slow)
        nursery.start_soon(quick)
        await trio.sleep(1)
        for n in range(50):
            cluster.add("t", 0, b"%d" % n)
            cluster.add("u", 0, b"%d" % n)
            await trio.sleep(0.1)
        assert len(quick.values) == 50
        assert not slow.values
        (consumer,) = cluster.reading
        assert consumer.assigned[TopicPartition("t", 0)] <= 3  # one is being published, two wait
        await slow.out.wait_events(50)
        nursery.cancel_scope.cancel()
    assert slow.values == [b"%d" % n for n in range(50)]


async def test_few_consumers_for_many_sources(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    for n in range(100):
        cluster.create(f"n{n}", 4)
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        runs = [Run(kafka, f"n{n}") for n in range(100)]
        for run in runs:
            nursery.start_soon(run)
        await trio.sleep(2)
        assert sorted(kafka.consumers) == [100] * 4
        assert len(cluster.reading) == 4
        for run in runs:
            run.scope.cancel()
        await trio.sleep(1)
        assert not kafka.consumers
        assert not cluster.reading
        nursery.cancel_scope.cancel()


async def test_readers_of_many_partitions_let_records_gather(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.create("wide", 400)
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        nursery.start_soon(Run(kafka, "t"))
        await trio.sleep(1)
        (narrow,) = cluster.reading
        assert narrow.fetch_interval_ms == 0
        nursery.start_soon(Run(kafka, "wide"))
        await trio.sleep(3)
        assert all(0 < consumer.fetch_interval_ms <= 80 for consumer in cluster.reading)
        nursery.cancel_scope.cancel()


async def test_two_sources_of_one_topic_have_a_consumer_each(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with pool_on(cluster, client={"max_consumers": 1}) as kafka, trio.open_nursery() as nursery:
        runs = [Run(kafka, "t", id=name) for name in "ab"]
        for run in runs:
            nursery.start_soon(run)
        await trio.sleep(1)
        cluster.add("t", 0, b"1")
        for run in runs:
            await run.out.wait_events(1)
        assert len(kafka.consumers) == 2
        nursery.cancel_scope.cancel()


class _SlowOut(MemoryPublisher):
    """Takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__(KAFKA.description_of(KafkaSourceSettings(type="kafka", topic="t")).schema)
        self.may = trio.Event()

    async def publish(self, batch: Batch) -> None:
        await self.may.wait()
        await super().publish(batch)


async def test_it_says_how_far_it_is_behind(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    out = _SlowOut()
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", out)
        source = run.source
        assert isinstance(source, HasStatistics)
        assert source.statistics().behind == {}, "nothing is known before it runs"
        nursery.start_soon(run)
        await trio.sleep(2)
        assert source.statistics() == SourceStatistics({0: 0, 1: 0})
        cluster.add("t", 0, b"a", b"b", b"c")
        await trio.sleep(2)  # the source has taken these, and waits
        cluster.add("t", 0, b"d")
        cluster.add("t", 1, b"e", b"f")
        await trio.sleep(2)
        behind = source.statistics().behind
        assert sum(behind.values()) == 3
        out.may.set()
        await out.wait_events(6)
        assert source.statistics() == SourceStatistics({0: 0, 1: 0})
        nursery.cancel_scope.cancel()


async def test_it_says_that_the_brokers_are_away(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        await trio.sleep(2)
        assert isinstance(run.source, HasStatistics)
        assert run.source.statistics().reachable
        cluster.frozen = True
        await trio.sleep(10)
        assert not run.source.statistics().reachable
        nursery.cancel_scope.cancel()
