"""Fetch sessions (KIP-227), as brokers see them. That each request fits its session the cluster checks."""

from __future__ import annotations

import struct

import pytest
from trio.testing import MockClock

from kiwi_kafka.client.fetch_session import FetchLimits, FetchSession
from kiwi_kafka.ports import TopicPartition, UnreachableError
from tests.plugins.kafka.readers import Reader, reader_of
from tests.plugins.kafka.scripted_broker import FETCH, Cluster, Fetched, cluster_of


async def next_fetch(cluster: Cluster, node: int = 1) -> Fetched:
    """Wait for the next request of the node, and return it."""
    fetches = cluster.nodes[node].fetches
    seen = len(fetches)
    await cluster.until(lambda: len(fetches) > seen)
    return fetches[seen]


async def after(reader: Reader, tp: TopicPartition, count: int = 1) -> Fetched:
    """Append, and read it; return the request that follows the answer with it."""
    fetches = reader.cluster.nodes[1].fetches
    seen = len(fetches)
    reader.cluster.append(tp, count)
    await reader.cluster.until(lambda: len(fetches) > seen)
    await reader.read()
    return fetches[seen]


@pytest.mark.parametrize("version", [7, 8, 9, 10, 11])
async def test_only_what_has_changed_is_named(clock: MockClock, version: int) -> None:
    async with cluster_of() as cluster:
        cluster.versions[FETCH] = (0, version)
        tps = cluster.create("t", *[1] * 20) + cluster.create("u", 1)
        async with reader_of(cluster) as reader:
            first = await next_fetch(cluster)
            assert (first.version, first.session, first.epoch) == (version, 0, 0)
            assert first.named == dict.fromkeys(tps, 0)
            second = await next_fetch(cluster)
            assert (second.session, second.epoch, second.named, second.forgotten) == (1, 1, {}, set())
            third = await after(reader, tps[4], 3)
            assert (third.session, third.epoch, third.named) == (1, 2, {tps[4]: 3})
            assert (await next_fetch(cluster)).named == {}
            assert (await after(reader, tps[20])).named == {tps[20]: 1}
        assert cluster.sessions == 1
        assert cluster.nodes[1].accepted == 2  # for metadata, and for fetches


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_brokers_without_sessions_are_asked_for_everything(clock: MockClock, version: int) -> None:
    async with cluster_of() as cluster:
        cluster.versions[FETCH] = (0, version)
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster) as reader:
            assert (await next_fetch(cluster)).named == {tps[0]: 0, tps[1]: 0}
            # What had its turn comes last: brokers fill an answer in this order.
            assert list((await after(reader, tps[0])).named.items()) == [(tps[1], 0), (tps[0], 1)]
            await reader.pause(tps[1])
            await after(reader, tps[0])
            assert (await next_fetch(cluster)).named == {tps[0]: 2}


async def test_without_room_for_a_session_everything_is_named_each_time(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        node = cluster.nodes[1]
        node.has_room = False
        async with reader_of(cluster) as reader:
            for offset in range(3):
                asked = await after(reader, tps[0]) if offset else await next_fetch(cluster)
                assert (asked.session, asked.epoch, asked.named) == (0, 0, {tps[0]: offset, tps[1]: 0})
            node.has_room = True
            await next_fetch(cluster)
            asked = await next_fetch(cluster)
            assert (asked.session, asked.epoch, asked.named) == (1, 1, {})


async def test_a_consumer_of_history_begins_no_session(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster, live=False) as reader:
            for offset in range(3):
                asked = await after(reader, tps[0]) if offset else await next_fetch(cluster)
                assert (asked.session, asked.epoch, asked.named) == (0, -1, {tps[0]: offset, tps[1]: 0})
                await reader.read_all()
        assert cluster.sessions == 0


@pytest.mark.parametrize("code", [70, 71])
async def test_a_session_that_the_broker_forgot_is_begun_anew(clock: MockClock, code: int) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster) as reader:
            await next_fetch(cluster)
            cluster.append(tps[0], 2)
            await reader.read_all()
            cluster.nodes[1].forget = code
            await cluster.until(lambda: cluster.sessions == 2)
            asked = cluster.nodes[1].fetches[-1]
            assert (asked.session, asked.epoch, asked.named) == (0, 0, {tps[0]: 2, tps[1]: 0})
            cluster.append(tps[1], 2)
            await reader.read_all()
        assert cluster.nodes[1].accepted == 2  # on the same connection
        assert reader.count == 4


async def test_what_is_paused_is_forgotten_and_comes_back(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1, 1)
        async with reader_of(cluster) as reader:
            await next_fetch(cluster)
            await reader.pause(tps[0], tps[1])
            await next_fetch(cluster)
            asked = cluster.nodes[1].fetches[-1]
            assert (asked.named, asked.forgotten) == ({}, {tps[0], tps[1]})
            cluster.append(tps[0], 5)
            asked = await after(reader, tps[2])
            assert (asked.named, asked.forgotten) == ({tps[2]: 1}, set())
            await reader.resume(tps[0])
            asked = await after(reader, tps[2])
            assert (asked.named, asked.forgotten) == ({tps[0]: 0, tps[2]: 2}, set())
            await reader.read_all([tps[0]])


async def test_what_is_full_is_forgotten_and_comes_back_where_it_was(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster) as reader:
            await reader.read([tps[1]])
            fetches = cluster.nodes[1].fetches
            # An answer waits while only the other partition is read.
            cluster.append(tps[0])
            await cluster.until(lambda: fetches[-1].forgotten == {tps[0]})
            assert fetches[-1].named == {}
            cluster.append(tps[0])
            assert await reader.read([tps[0]]) == {tps[0]}
            await cluster.until(lambda: fetches[-1].named == {tps[0]: 1})
            await reader.read_all()


async def test_what_is_paused_before_it_was_ever_named_is_not_forgotten(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster) as reader:
            await reader.pause(tps[0])
            assert (await next_fetch(cluster)).named == {tps[1]: 0}
            await reader.resume(tps[0])
            await reader.pause(tps[0])
            await next_fetch(cluster)
            assert (await next_fetch(cluster)).forgotten == set()


@pytest.mark.parametrize("size", [-1, -6, -32_768])
def test_a_name_of_less_than_nothing_is_no_answer(size: int) -> None:
    """It would lead back, again and again."""
    session = FetchSession(11, FetchLimits(100, 1, 1_000, 1_000))
    session.request(100)
    with pytest.raises(UnreachableError, match="no name"):
        session.answer(memoryview(struct.pack(">ihiih", 0, 0, 1, 2**31 - 1, size) + bytes(100)))


async def test_a_broker_of_another_age_is_not_read(clock: MockClock) -> None:
    """Its versions of Fetch are all too new. Another attempt is made now and then, and it may be mended."""
    async with cluster_of() as cluster:
        cluster.create("t", 1)
        cluster.versions[FETCH] = (12, 17)
        async with reader_of(cluster) as reader:
            for _ in range(20):
                assert await reader.read() == set()
            assert cluster.nodes[1].fetches == []
            assert cluster.nodes[1].accepted < 40  # 2 s, with a pause of 0.1 s after each
            cluster.versions[FETCH] = (4, 17)
            cluster.append(TopicPartition("t", 0))
            await reader.read_all()
