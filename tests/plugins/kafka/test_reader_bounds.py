"""A reader that is busy holds back its brokers, and what rests holds back nothing else."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio
from trio.testing import MockClock

from kiwi_kafka.client import broker_fetcher
from kiwi_kafka.client.connection import BrokerConnection
from kiwi_kafka.client.consumer import FetchingConsumer
from kiwi_kafka.ports import TopicPartition
from tests.plugins.kafka.readers import WAIT_MS, reader_of
from tests.plugins.kafka.scripted_broker import FETCH, SECONDS, Cluster, cluster_of

_AHEAD = 2  # answers that may wait
_BATCH = 5
_SIZE = 1_000


def flood(cluster: Cluster, tp: TopicPartition, batches: int = 200) -> None:
    """Write so much that every answer is full."""
    for _ in range(batches):
        cluster.append(tp, _BATCH, size=_SIZE)


def waiting(consumer: FetchingConsumer, tp: TopicPartition) -> int:
    """How many answers with records of the partition wait."""
    return len(consumer._partitions[tp]._answers)


@pytest.mark.parametrize("version", [4, 11])
async def test_a_reader_that_does_not_read_stops_its_brokers(clock: MockClock, version: int) -> None:
    async with cluster_of(2) as cluster:
        cluster.versions[FETCH] = (0, version)
        tps = cluster.create("t", 1, 1, 2)
        for tp in tps:
            flood(cluster, tp)
        async with reader_of(cluster, max_partition_fetch_bytes=3 * _BATCH * _SIZE) as reader:
            await trio.sleep(SECONDS)
            assert [waiting(reader.consumer, tp) for tp in tps] == [_AHEAD] * 3
            assert cluster.fetches == 2 * _AHEAD
            # One of node 1's is read: its answers are taken, and exactly as many are fetched again.
            fetches = cluster.nodes[1].fetches
            for turn in range(5):
                await reader.read(most=1)
                await trio.sleep(SECONDS)
                assert all(waiting(reader.consumer, tp) <= _AHEAD for tp in tps), turn
            assert cluster.fetches <= 2 * _AHEAD + 5
            before = len(fetches)
            await reader.read_all()
            assert len(fetches) > before
        assert reader.count == 3 * 200 * _BATCH


async def test_while_one_that_is_read_is_full_nothing_of_its_broker_is_fetched(clock: MockClock) -> None:
    """Its reader is busy, and has enough; what comes meanwhile comes with fewer answers."""
    async with cluster_of(2) as cluster:
        full, other, elsewhere = cluster.create("t", 1, 1, 2)
        async with reader_of(cluster) as reader:
            fetches = cluster.nodes[1].fetches
            for end in range(1, _AHEAD + 1):
                cluster.append(full)
                await trio.sleep(1)
                assert waiting(reader.consumer, full) == end
            before, of_the_other = len(fetches), len(cluster.nodes[2].fetches)
            for tp in (other, elsewhere):
                cluster.append(tp)
            await trio.sleep(10)
            assert len(fetches) == before
            assert len(cluster.nodes[2].fetches) > of_the_other + 50
            await reader.read_all()
            assert len(fetches) > before


async def test_a_partition_that_rests_holds_back_no_other_of_its_broker(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        resting, read = cluster.create("t", 1, 1)
        flood(cluster, resting)
        async with reader_of(cluster, max_partition_fetch_bytes=2 * _BATCH * _SIZE) as reader:
            fetches = cluster.nodes[1].fetches
            for n in range(20):
                cluster.append(read)
                with trio.fail_after(1):
                    while reader.next[read] <= n:
                        assert await reader.read([read]) <= {read}
            assert waiting(reader.consumer, resting) == 1
            named = [tp for asked in fetches for tp in asked.named]
            assert named.count(resting) == 1
            # It is read again, and soon fetched again: its broker holds no fetch without it for long.
            assert all(asked.wait_ms <= 50 for asked in fetches[-5:])
            before = trio.current_time()
            seen = len(fetches)
            assert await reader.read([resting]) == {resting}
            await cluster.until(lambda: any(resting in asked.named for asked in fetches[seen:]))
            assert trio.current_time() - before <= 0.05
            await reader.read_all()
        assert reader.count == 200 * _BATCH + 20


async def test_all_rest_but_one_and_each_has_its_turn(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 1, 2, 2)
        for tp in tps:
            flood(cluster, tp, 50)
        async with reader_of(cluster, max_partition_fetch_bytes=2 * _BATCH * _SIZE) as reader:
            for tp in tps:
                with trio.fail_after(SECONDS):
                    while reader.next[tp] < 50 * _BATCH:
                        assert await reader.read([tp]) <= {tp}
        assert reader.count == 4 * 50 * _BATCH


async def test_partitions_take_turns_within_a_read(clock: MockClock) -> None:
    """One that always has something does not keep the others from being read."""
    async with cluster_of() as cluster:
        flooded, quiet = cluster.create("t", 1, 1)
        flood(cluster, flooded)
        cluster.append(quiet)
        async with reader_of(cluster, max_partition_fetch_bytes=2 * _BATCH * _SIZE) as reader:
            await trio.sleep(1)
            for _ in range(2):
                await reader.read(most=2)
            assert reader.next[quiet] == 1


async def test_a_small_answer_is_shared_fairly(clock: MockClock) -> None:
    """A whole answer holds less than what one partition has."""
    async with cluster_of() as cluster:
        tps = cluster.create("t", *[1] * 4)
        for tp in tps:
            flood(cluster, tp, 40)
        async with reader_of(cluster, fetch_max_bytes=2 * _BATCH * _SIZE) as reader:
            for _ in range(30):
                await reader.read()
            counts = [reader.next[tp] for tp in tps]
            assert min(counts) > 0
            assert max(counts) - min(counts) <= 6 * _BATCH
            await reader.read_all()


async def test_a_batch_that_is_larger_than_the_limits_is_read(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        cluster.append(tp, 3, size=50_000)
        cluster.append(tp, 3)
        async with reader_of(cluster, fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000) as reader:
            await reader.read_all()


async def test_what_comes_after_an_answer_with_records_gathers(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        fetches = cluster.nodes[1].fetches
        async with reader_of(cluster) as reader:
            reader.consumer.set_fetch_interval(40)
            await cluster.until(lambda: bool(fetches))
            cluster.append(tp)  # a broker holds the first fetch until it comes
            assert await reader.read() == {tp}
            began = trio.current_time()
            cluster.append(tp)
            cluster.append(tp)
            before = len(fetches)
            assert await reader.read() == {tp}
            assert reader.count == 3
            assert trio.current_time() - began == pytest.approx(0.04, abs=0.01)
            assert [asked.wait_ms for asked in fetches[before:]] == [0]
            # Nothing comes: the broker holds the next fetch but one, and a record is there when it comes.
            assert await reader.read(wait_ms=90) == set()
            assert [asked.wait_ms for asked in fetches[before + 1 :]] == [0, WAIT_MS]
            began = trio.current_time()
            cluster.append(tp)
            assert await reader.read() == {tp}
            assert trio.current_time() == began


async def test_fetches_keep_a_distance_that_grows_with_what_one_costs(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = worked = 0.0

    def thread_time() -> float:
        nonlocal worked
        worked += cost  # it is asked once before a fetch, and once behind it
        return worked

    monkeypatch.setattr(broker_fetcher, "thread_time", thread_time)
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        fetches = cluster.nodes[1].fetches
        async with reader_of(cluster) as reader:
            await cluster.until(lambda: bool(fetches))

            async def from_record_to_fetch() -> float:
                began, before = trio.current_time(), len(fetches)
                cluster.append(tp)
                assert await reader.read() == {tp}
                assert trio.current_time() == began  # what is asked for is not late
                await cluster.until(lambda: len(fetches) > before)
                # Held long, as ever: it gathers on its way and not at the broker.
                assert fetches[-1].wait_ms == WAIT_MS
                return trio.current_time() - began

            for each, distance in ((0.0, 0.0), (0.0001, 0.0004), (0.0004, 0.0016), (0.001, 0.002)):
                cost = each
                await trio.sleep(0.01)
                assert await from_record_to_fetch() == 0  # a lone record
                assert await from_record_to_fetch() == pytest.approx(distance)
                assert await from_record_to_fetch() == pytest.approx(distance)


async def test_what_came_is_given_to_who_waits_before_its_broker_is_asked_on(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = []
    exchange = BrokerConnection.exchange

    async def noted(connection: BrokerConnection, api: int, version: int, body: bytes) -> memoryview:
        happened.append("asked")
        return await exchange(connection, api, version, body)

    monkeypatch.setattr(BrokerConnection, "exchange", noted)
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        fetches = cluster.nodes[1].fetches
        async with reader_of(cluster) as reader:
            await cluster.until(lambda: bool(fetches))
            for number in range(1, 31):  # Trio runs the tasks of a round in either order
                cluster.append(tp)
                assert await reader.read(wait_ms=WAIT_MS - 1) == {tp}
                happened.append("given")
                await cluster.until(lambda number=number: len(fetches) > number)  # type: ignore[misc]
    assert happened == ["asked", *["given", "asked"] * 30]


async def test_once_it_is_closed_no_cycle_holds_what_was_fetched(clock: MockClock) -> None:
    """Garbage of old objects is not looked for."""
    async with cluster_of() as cluster:
        (tp,) = cluster.create("t", 1)
        flood(cluster, tp)
        gc.collect()
        gc.disable()
        try:
            async with reader_of(cluster, max_partition_fetch_bytes=3 * _BATCH * _SIZE) as reader:
                await trio.sleep(SECONDS)
                assert waiting(reader.consumer, tp) == _AHEAD
                fetched = weakref.ref(reader.consumer._partitions[tp]._answers[0])
            del reader
            await trio.sleep(SECONDS)
            assert fetched() is None
        finally:
            gc.enable()
