"""What a consumer reads is what was written: nothing is lost, doubled or out of order, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from kiwi_kafka.client.broker_fetcher import BrokerFetcher
from kiwi_kafka.client.consumer import FetchingConsumer
from kiwi_kafka.client.fetch_session import FetchAnswer, FetchLimits
from kiwi_kafka.ports import FetchedPartition, TopicPartition
from tests.effort import examples
from tests.plugins.kafka.batches import batch
from tests.plugins.kafka.faulty_answers import cut_once, trickled
from tests.plugins.kafka.readers import WAIT_MS, Reader, reader_of
from tests.plugins.kafka.scripted_broker import FETCH, METADATA, Cluster, cluster_of

_THRESHOLD = 0.005
Fetched = dict[str, list[FetchedPartition]]


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("version", [4, 5, 7, 9, 11])
async def test_all_records_of_all_nodes_in_order(clock: MockClock, version: int, live: bool) -> None:
    async with cluster_of(2) as cluster:
        cluster.versions[FETCH] = (0, version)
        tps = cluster.create("a", 1, 2, 1) + cluster.create("b", 2)
        for tp in tps:
            cluster.append(tp, 3, removed=[1])
            cluster.append(tp, 2)
        async with reader_of(cluster, live=live) as reader:
            await reader.read_all()
            assert reader.count == 16
            cluster.append(tps[0], 7)
            await reader.read_all()
        assert reader.count == 23


# --- at every checkpoint ---


@coroutine
def stopped(
    read: Coroutine[Any, Any, Fetched], at: int, before: bool, cancel: Callable[[], None]
) -> Generator[Any, Any, tuple[int, Fetched]]:
    """Run `read` and cancel its scope at its checkpoint `at`: as it begins to wait there, or when what it
    waits for has come and it has not run yet. Returns how many checkpoints there were."""
    value, steps = None, 0
    while True:
        try:
            trap = read.send(value)
        except StopIteration as end:
            return steps, end.value
        steps += 1
        if steps == at and before:
            cancel()
        value = yield trap
        if steps == at and not before:
            cancel()


async def stopped_read(reader: Reader, at: int, before: bool, most: int | None) -> int:
    """Read once, and cancel it. Returns how many checkpoints there were; `at` if it was cancelled."""
    with trio.CancelScope() as scope:
        read = reader.consumer.read((), WAIT_MS, most)
        steps, fetched = await stopped(read, at, before, scope.cancel)
        reader.check(fetched)
        return steps
    return at


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("before", [True, False])
async def test_a_read_that_is_cancelled_at_any_checkpoint_loses_nothing(
    clock: MockClock, before: bool, is_there: bool
) -> None:
    """is_there: what it reads has come before it begins."""
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 2)
        async with reader_of(cluster) as reader:
            for at in range(1, 10):
                for tp in tps:
                    cluster.append(tp, 3)
                if is_there:
                    await trio.sleep(1)
                if await stopped_read(reader, at, before, 2) < at:  # all its checkpoints had their turn
                    break
                await reader.read_all()
            assert 1 < at < 9
            await reader.read_all()


async def test_what_comes_for_a_partition_that_was_paused_meanwhile_is_not_read(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster) as reader:
            await cluster.until(lambda: len(cluster.nodes[1].fetches) > 0)
            await reader.pause(tps[0])
            for tp in tps:
                cluster.append(tp)  # the fetch that waits brings both
            assert await reader.read() == {tps[1]}
            await reader.resume(tps[0])
            await reader.read_all()


async def test_what_waits_of_a_paused_partition_is_fetched_again_when_it_is_resumed(
    clock: MockClock,
) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        for tp in tps:
            cluster.append(tp, 3)
        async with reader_of(cluster) as reader:
            await trio.sleep(1)
            await reader.pause(tps[0])
            assert await reader.read() == {tps[1]}
            assert await reader.read() == set()
            await reader.resume(tps[0])
            await reader.read_all()


async def test_what_is_not_assigned_is_left_alone(clock: MockClock) -> None:
    """A reader that has come meanwhile is not in this consumer yet, and it has another soon."""
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        cluster.append(tp, 3)
        async with reader_of(cluster) as reader:
            other = TopicPartition("u", 0)
            await reader.consumer.seek({other: 5})
            await reader.consumer.pause([other])
            await reader.consumer.resume({other: 5})
            await reader.read_all()


@pytest.mark.parametrize("offset", [0, 1, 5])
async def test_after_a_seek_nothing_is_read_that_was_fetched_before(clock: MockClock, offset: int) -> None:
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        for _ in range(2):
            cluster.append(tp, 3)
        async with reader_of(cluster) as reader:
            assert await reader.read(most=2) == {tp}
            await reader.seek(tp, offset)
            await reader.read_all()
            assert reader.count == 2 + 6 - offset


def test_an_answer_to_an_earlier_question_is_not_taken() -> None:
    """Two brokers may have been asked for the same, one after the other."""
    partition = TopicPartition("t", 0)
    limits = FetchLimits(100, 1, 1 << 20, 1 << 20)
    brokers: Any = None
    consumer = FetchingConsumer(brokers, limits, timeout=1, most=9, retry=1, refresh=1)
    fetcher = BrokerFetcher(1, consumer, brokers, limits, 1)

    async def run() -> None:
        await consumer.assign({partition: 0})
        answer = FetchAnswer(partition, 0, 0, -1, [], memoryview(batch(0, [b"v"] * 3)))
        for _ in range(2):
            consumer.accept(fetcher, answer)
        fetched = await consumer.read((), 0)
        assert [record.offset for record in fetched["t"][0].records] == [0, 1, 2]
        assert await consumer.read((), 0) == {}

    trio.run(run)


# --- anything in any order ---


@dataclass(frozen=True)
class Append:
    tp: int
    count: int
    hole: bool


@dataclass(frozen=True)
class Read:
    most: int
    only: frozenset[int]


@dataclass(frozen=True)
class CancelledRead:
    at: int
    before: bool


@dataclass(frozen=True)
class Seek:
    tp: int
    share: float


@dataclass(frozen=True)
class Pause:
    tps: frozenset[int]


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class Move:
    tp: int
    node: int


@dataclass(frozen=True)
class Forget:
    node: int
    code: int


@dataclass(frozen=True)
class Break:
    node: int
    at: int


_tps, _nodes, _some = st.integers(0, 3), st.integers(1, 2), st.frozensets(st.integers(0, 3), max_size=3)
steps = st.one_of(
    st.builds(Append, _tps, st.integers(1, 9), st.booleans()),
    st.builds(Append, _tps, st.integers(1, 9), st.booleans()),
    st.builds(Read, st.integers(1, 12), _some),
    st.builds(Read, st.integers(1, 12), st.just(frozenset[int]())),
    st.builds(CancelledRead, st.integers(1, 3), st.booleans()),
    st.builds(Seek, _tps, st.floats(0, 1)),
    st.builds(Pause, _some),
    st.builds(Resume),
    st.builds(Move, _tps, _nodes),
    st.builds(Forget, _nodes, st.sampled_from([70, 71])),
    st.builds(Break, _nodes, st.integers(0, 200)),
)


async def do(step: Any, cluster: Cluster, reader: Reader, tps: list[TopicPartition]) -> None:
    match step:
        case Append():
            cluster.append(tps[step.tp], step.count, removed=[1] if step.hole and step.count > 1 else ())
        case Read():
            await reader.read([tps[n] for n in step.only], WAIT_MS, step.most)
        case CancelledRead():
            await stopped_read(reader, step.at, step.before, None)
        case Seek():
            await reader.seek(tps[step.tp], int(step.share * cluster.logs[tps[step.tp]].end))
        case Pause():
            await reader.pause(*(tps[n] for n in step.tps))
        case Resume():
            await reader.resume(*reader.paused)
        case Move():
            cluster.move(tps[step.tp], step.node)
        case Forget():
            cluster.nodes[step.node].forget = step.code
        case Break():
            node = cluster.nodes[step.node]
            node.send = cut_once(node, FETCH, step.at)


@settings(max_examples=examples(100))
@given(todo=st.lists(steps, min_size=1, max_size=30), version=st.sampled_from([4, 7, 11]), live=st.booleans())
def test_whatever_is_done_in_whatever_order(todo: list[Any], version: int, live: bool) -> None:
    async def run() -> None:
        async with cluster_of(2) as cluster:
            cluster.versions[FETCH] = (0, version)
            cluster.may_name_again = True
            tps = cluster.create("a", 1, 2, 1) + cluster.create("b", 2)
            async with reader_of(cluster, live=live, max_partition_fetch_bytes=200) as reader:
                for step in todo:
                    await do(step, cluster, reader, tps)
                await reader.resume(*reader.paused)
                await reader.read_all()

    trio.run(run, clock=MockClock(autojump_threshold=_THRESHOLD))


# --- connections that break ---


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 11])
async def test_a_connection_that_breaks_at_any_byte_loses_nothing(clock: MockClock, version: int) -> None:
    async with cluster_of() as cluster:
        cluster.versions[FETCH] = (0, version)
        [tp] = cluster.create("t", 1)
        node = cluster.nodes[1]
        sizes = []

        async def measured(stream: trio.SocketStream, api: int, answer: bytes) -> None:
            sizes.append(len(answer))
            await stream.send_all(answer)

        async with reader_of(cluster) as reader:
            node.send = measured
            cluster.append(tp, 2)
            await reader.read_all()
            for at in range(max(sizes)):
                node.send = cut_once(node, FETCH, at)
                cluster.append(tp, 2)
                await reader.read_all()
        assert reader.count == 2 * (1 + max(sizes))
        assert node.accepted >= max(sizes)


async def test_answers_that_come_byte_by_byte(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 2)
        for tp in tps:
            cluster.append(tp, 20)
        cluster.nodes[1].send = trickled(METADATA)
        cluster.nodes[2].send = trickled(FETCH)
        async with reader_of(cluster) as reader:
            await reader.read_all()
        assert reader.count == 40
