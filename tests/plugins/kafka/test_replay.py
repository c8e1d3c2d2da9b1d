"""Reading a topic again: everything between two positions, once and in order, whatever happens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock

from kiwi_gw.api import Gap, History, HistoryReader, OffsetRange, SourceChanged, SourceFailed, Unreadable
from kiwi_kafka.history.bounded_topic_reader import BoundedTopicReader
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.ports import (
    CorruptRecordsError,
    FetchedPartition,
    TopicAuthorizationError,
    TopicDescription,
    TopicPartition,
    UnreachableError,
)
from tests.effort import examples
from tests.plugins.kafka.fakes import FakeCluster, Nobody, Row, Run, pool_on, run_on


class Taken:
    """What a reader has read: offsets by partition, gaps, and the positions, which never go back."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self.positions = dict(positions)
        self.offsets: dict[int, list[int]] = {p: [] for p in positions}
        self.gaps: list[Gap] = []

    async def read_to(self, reader: HistoryReader, until: Mapping[int, int], batches: int = 10**6) -> bool:
        """Read until it is there (True) or so many batches came."""
        for _ in range(batches):
            if await self.one(reader, until):
                return True
        return False

    async def one(self, reader: HistoryReader, until: Mapping[int, int]) -> bool:
        batch = await reader.read(until)
        for partition, offset in batch.starts.items():
            assert offset >= self.positions.get(partition, 0)
            self.positions[partition] = offset
        if batch.gap is not None:
            self.gaps.append(batch.gap)
        for partition, offset in zip(batch.partitions, batch.offsets, strict=True):
            assert self.positions[partition] <= offset < until[partition]
            self.offsets.setdefault(partition, []).append(offset)
            self.positions[partition] = offset + 1
        there = all(batch.starts[p] >= offset for p, offset in until.items())
        assert not (there and len(batch))
        return there


def history(run: Run) -> History:
    assert isinstance(run.source, History)
    return run.source


def read_from(run: Run, positions: Mapping[int, int]) -> AbstractAsyncContextManager[HistoryReader]:
    return history(run).read_from(positions)


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % n for n in numbers]


async def test_from_the_first_to_the_end(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(950)))
    cluster.add("t", 1, *values(*range(30)))
    async with run_on(cluster) as run:
        offset_range = await history(run).offset_range()
        assert offset_range == OffsetRange({0: 0, 1: 0}, {0: 950, 1: 30})
        taken = Taken(offset_range.first)
        async with read_from(run, offset_range.first) as reader:
            assert await taken.read_to(reader, offset_range.end)
            assert taken.offsets == {0: list(range(950)), 1: list(range(30))}
            again = await reader.read(offset_range.end)
            assert (len(again), again.starts) == (0, offset_range.end)
        assert [consumer.live for consumer in cluster.reading] == [True]
    assert not run.values  # live reading began at the end, and has nothing of it
    assert not taken.gaps


async def test_the_end_may_be_moved_on_and_nothing_beyond_it_is_read(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.add("t", 0, *values(*range(500)))
    cluster.add("t", 1, *values(*range(500)))
    taken = Taken({0: 100, 1: 0})
    async with run_on(cluster) as run, read_from(run, {0: 100, 1: 0}) as reader:
        for until in ({0: 120, 1: 0}, {0: 120, 1: 250}, {0: 333, 1: 250}, {0: 500, 1: 500}):
            assert await taken.read_to(reader, until)
            assert taken.positions == until
        # One is live; another partition needs another consumer, an end that is moved does not.
        assert len(cluster.consumers) == 3
    assert taken.offsets == {0: list(range(100, 500)), 1: list(range(500))}


async def test_a_partition_that_began_beyond_the_end_is_left_alone(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.add("t", 0, *values(*range(50)))
    cluster.add("t", 1, *values(*range(50)))
    async with run_on(cluster) as run, read_from(run, {0: 40, 1: 0}) as reader:
        taken = Taken({0: 40, 1: 0})
        while not await taken.one(reader, {0: 20, 1: 10} | {0: 40}):
            pass
        assert set(cluster.reading[-1].assigned) == {TopicPartition("t", 1)}
        batch = await reader.read({0: 20, 1: 10})
        assert batch.starts == {0: 40, 1: 10}
    assert taken.offsets == {0: [], 1: list(range(10))}


async def test_holes_are_passed(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    for partition in (0, 1):
        cluster.add("t", partition, *values(*range(20)))
    cluster.compact("t", 0, 0, 1, 5, 6, 7, 18, 19)
    cluster.hole("t", 1, 5)  # markers of transactions
    async with run_on(cluster) as run, read_from(run, {0: 0, 1: 0}) as reader:
        taken = Taken({0: 0, 1: 0})
        began = trio.current_time()
        assert await taken.read_to(reader, {0: 20, 1: 25})
        assert trio.current_time() - began < 0.5
    assert taken.offsets == {0: [2, 3, 4, *range(8, 18)], 1: list(range(20))}
    assert not taken.gaps


async def test_what_compaction_took_from_the_end_of_the_log(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.add("t", 0, *values(*range(20)))
    cluster.compact("t", 0, 18, 19)
    cluster.shows_holes = False
    async with run_on(cluster) as run, read_from(run, {0: 0, 1: 0}) as reader:
        taken = Taken({0: 0, 1: 0})
        with trio.fail_after(3):
            assert await taken.read_to(reader, {0: 20, 1: 0})
    assert taken.offsets[0] == list(range(18))


async def test_by_time(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    for n in range(10):
        cluster.add("t", 0, b"x", timestamp=100 * n)
    async with run_on(cluster) as run:
        assert await history(run).at(250) == {0: 3, 1: 0}
        assert await history(run).at(300) == {0: 3, 1: 0}
        assert await history(run).at(901) == {0: 10, 1: 0}
        assert await history(run).at(-5) == {0: 0, 1: 0}
        assert await history(run).at(2**80) == {0: 10, 1: 0}


async def test_what_was_deleted_is_a_gap(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(300)))
    cluster.add("t", 1, *values(*range(10)))
    async with run_on(cluster) as run:
        taken = Taken({0: 5, 1: 0})
        async with read_from(run, {0: 5, 1: 0}) as reader:
            assert not await taken.read_to(reader, {0: 280, 1: 10}, batches=1)
            read = taken.positions[0]
            assert read < 200
            cluster.forget("t", 0, before=200)
            assert await taken.read_to(reader, {0: 280, 1: 10})
        assert taken.gaps == [Gap({0: (read, 199)}, None)]
        assert taken.offsets == {0: [*range(5, read), *range(200, 280)], 1: list(range(10))}
        # Deleted beyond the end: what lies behind the end is not this reader's loss.
        cluster.forget("t", 0, before=290)
        beyond = Taken({0: 250, 1: 10})
        async with read_from(run, {0: 250, 1: 10}) as reader:
            assert await beyond.read_to(reader, {0: 280, 1: 10})
        assert beyond.gaps == [Gap({0: (250, 279)}, None)]


async def test_a_topic_created_anew(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(500)))
    async with run_on(cluster) as run:
        topic_reader = run.source._topic_reader  # type: ignore[attr-defined]
        assert topic_reader is not None
        cluster.create("t", 2)
        cluster.add("t", 0, *values(*range(700)))
        for ask in (history(run).offset_range, lambda: history(run).at(0)):
            with pytest.raises(SourceChanged, match="created anew"):
                await ask()
        async with read_from(run, {0: 0, 1: 0}) as reader:
            with pytest.raises(SourceChanged, match="created anew"):
                await reader.read({0: 500, 1: 0})


async def test_a_topic_created_anew_while_it_is_read(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(500)))
    async with run_on(cluster) as run, read_from(run, {0: 0, 1: 0}) as reader:
        await reader.read({0: 500, 1: 0})
        cluster.create("t", 2)
        await trio.sleep(2)
        with pytest.raises(SourceChanged, match="created anew"):
            await reader.read({0: 500, 1: 0})


async def test_an_outage_costs_time_only(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(1000)))
    cluster.add("t", 1, *values(*range(1000)))
    until = {0: 1000, 1: 1000}
    async with (
        run_on(cluster, {"client": {"max_poll_records": 50}}) as run,
        read_from(run, {0: 0, 1: 0}) as reader,
    ):
        taken = Taken({0: 0, 1: 0})
        assert not await taken.read_to(reader, until, batches=3)
        cluster.frozen = True
        with trio.move_on_after(600):
            await taken.one(reader, until)
        cluster.frozen = False
        with trio.fail_after(5):
            assert await taken.read_to(reader, until)
        assert [consumer.closed for consumer in cluster.consumers] == [True, True, False, False]
        cluster.frozen = True
        with trio.move_on_after(60) as scope:
            await history(run).offset_range()
        assert scope.cancelled_caught
        cluster.frozen = False
        assert (await history(run).offset_range()).end
    assert taken.offsets == {0: list(range(1000)), 1: list(range(1000))}


async def test_connections_that_break(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(1000)))
    cluster.add("t", 1, *values(*range(1000)))
    until = {0: 1000, 1: 1000}
    async with (
        run_on(cluster, {"client": {"max_poll_records": 100}}) as run,
        read_from(run, {0: 0, 1: 0}) as reader,
    ):
        taken = Taken({0: 0, 1: 0})
        while not await taken.one(reader, until):
            cluster.failing.append(UnreachableError("broken"))
    assert taken.offsets == {0: list(range(1000)), 1: list(range(1000))}
    assert len(cluster.consumers) > 10


async def test_a_consumer_that_stands_still_is_replaced_and_one_that_nobody_asks_is_not(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.add("t", 0, *values(*range(500)))
    async with run_on(cluster) as run, read_from(run, {0: 0, 1: 0}) as reader:
        taken = Taken({0: 0, 1: 0})
        assert not await taken.read_to(reader, {0: 500, 1: 0}, batches=1)
        with capture_logs() as logs:
            await trio.sleep(60)
            assert not logs
            assert len(cluster.consumers) == 2
            cluster.deaf = True
            with trio.move_on_after(8):
                await taken.one(reader, {0: 500, 1: 0})
            assert len(cluster.consumers) == 3
            cluster.deaf = False
            assert await taken.read_to(reader, {0: 500, 1: 0})
    assert taken.offsets[0] == list(range(500))


async def test_a_batch_that_cannot_be_decoded(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(20)))
    cluster.add("t", 0, *values(*range(7)), spoiled=True)
    cluster.add("t", 0, *values(*range(20)))
    cluster.add("t", 1, *values(*range(5)))
    async with run_on(cluster) as run:
        for until, lost in ((47, (20, 26)), (24, (20, 23)), (20, None)):
            taken = Taken({0: 0, 1: 0})
            async with read_from(run, {0: 0, 1: 0}) as reader:
                assert await taken.read_to(reader, {0: until, 1: 5})
            assert taken.gaps == ([Gap({0: lost}, None, Unreadable.DAMAGED)] if lost else [])
            assert taken.offsets == {0: [*range(20), *range(27, until)], 1: list(range(5))}


async def test_a_record_damaged_on_its_way_is_read_again(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.add("t", 0, *values(*range(20)))
    async with run_on(cluster) as run, read_from(run, {0: 0, 1: 0}) as reader:
        taken = Taken({0: 0, 1: 0})
        cluster.failing.append(CorruptRecordsError(TopicPartition("t", 0), "Invalid CRC"))
        assert await taken.read_to(reader, {0: 20, 1: 0})
    assert taken.offsets[0] == list(range(20))
    assert not taken.gaps


async def test_rights_that_are_taken_away(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    cluster.add("t", 0, *values(*range(20)))
    async with run_on(cluster) as run, read_from(run, {0: 0, 1: 0}) as reader:
        cluster.failing.append(TopicAuthorizationError("t"))
        with pytest.raises(PermissionError):
            await reader.read({0: 20, 1: 0})


@given(
    rows=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    begin=st.integers(0, 20),
    ends=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    steps=st.lists(st.integers(0, 25), max_size=12),
)
@settings(max_examples=examples(60), deadline=None)
def test_cancelled_anywhere_nothing_is_lost_or_doubled(
    rows: list[int], begin: int, ends: list[int], steps: list[int]
) -> None:
    """rows: how many offsets without a record precede each; steps: when reads are cancelled."""
    cluster = FakeCluster()
    cluster.create("t", 2)
    for n, before in enumerate(rows):
        cluster.hole("t", n % 2, before)
        cluster.add("t", n % 2, b"%d" % n)
    last = cluster.topics["t"].ends
    start = {p: min(begin, last[p]) for p in (0, 1)}
    targets = sorted(ends)
    cuts = list(steps)

    async def main() -> None:
        async with run_on(cluster) as run, read_from(run, start) as reader:
            taken = Taken(start)
            until = start
            for target in targets:
                until = {p: max(until[p], min(target, last[p])) for p in (0, 1)}
                there = False
                while not there:
                    with trio.CancelScope() as scope:
                        instrument = _CancelAt(cuts.pop(0) if cuts else 10**9, scope)
                        trio.lowlevel.add_instrument(instrument)
                        try:
                            there = await taken.one(reader, until)
                        finally:
                            trio.lowlevel.remove_instrument(instrument)
            assert taken.offsets == {
                p: [row.offset for row in cluster.topics["t"].rows[p] if start[p] <= row.offset < until[p]]
                for p in (0, 1)
            }
            assert not taken.gaps

    trio.run(main, clock=MockClock(autojump_threshold=0))


class _CancelAt(trio.abc.Instrument):
    """Cancels a scope at the nth step of the task that is in it."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left = step
        self._scope = scope
        self._task = trio.lowlevel.current_task()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left < 0:
                self._scope.cancel()


async def test_so_many_at_a_time_and_by_turns(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    for partition in (0, 1):
        cluster.add("t", partition, *values(*range(2_000)))
    until = {0: 2_000, 1: 2_000}
    most = 0
    times: list[list[float]] = [[] for _ in range(5)]

    async def one(run: Run, number: int) -> None:
        nonlocal most
        taken = Taken({0: 0, 1: 0})
        async with read_from(run, {0: 0, 1: 0}) as reader:
            there = False
            while not there:
                there = await taken.one(reader, until)
                times[number].append(trio.current_time())
                most = max(most, len(cluster.reading))
                await trio.sleep(0.15)
        assert taken.offsets == {0: list(range(2_000)), 1: list(range(2_000))}

    limits = {"max_history_consumers": 2, "max_poll_records": 100}
    async with run_on(cluster, {"client": limits}) as run, trio.open_nursery() as nursery:
        began = trio.current_time()
        for number in range(5):
            nursery.start_soon(one, run, number)
    assert most == 3  # one is live
    assert all(moments[0] - began < 5 for moments in times), "everybody gets on"
    assert all(len(moments) > 30 for moments in times)
    longest = max(b - a for moments in times for a, b in pairwise(moments))
    assert longest < 5


async def test_one_that_reads_nothing_leaves_its_turn_to_others(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.add("t", 0, *values(*range(500)))
    until = {0: 500, 1: 0}
    async with (
        run_on(cluster, {"client": {"max_history_consumers": 1}}) as run,
        read_from(run, {0: 0, 1: 0}) as first,
        read_from(run, {0: 0, 1: 0}) as second,
        read_from(run, {0: 0, 1: 0}) as third,
    ):
        taken, other = Taken({0: 0, 1: 0}), Taken({0: 0, 1: 0})
        assert not await taken.read_to(first, until, batches=1)
        with trio.move_on_after(0.5) as scope:  # given up while it waits for its turn
            await third.read(until)
        assert scope.cancelled_caught
        with trio.fail_after(3):
            assert await other.read_to(second, until)
        assert len(cluster.reading) == 2
        with trio.fail_after(3):
            assert await taken.read_to(first, until)
    assert taken.offsets[0] == other.offsets[0] == list(range(500))
    assert len(cluster.reading) == 0


async def test_it_waits_for_the_source_to_begin(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    del cluster.topics["t"]
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t")
        nursery.start_soon(run)
        extents: list[OffsetRange] = []

        async def ask() -> None:
            extents.append(await history(run).offset_range())

        nursery.start_soon(ask)
        await trio.sleep(60)
        assert not extents
        cluster.create("t", 1)
        await trio.sleep(10)
        assert extents == [OffsetRange({0: 0}, {0: 0})]
        nursery.cancel_scope.cancel()


def stretch(positions: Mapping[int, int]) -> BoundedTopicReader:
    lineage = TopicLineage(Nobody(), "t", b"1" * 16)
    info = TopicDescription("t", b"1" * 16, {})
    live = TopicReader(info, positions, headers=False, follow_new_partitions=True, lineage=lineage)
    return BoundedTopicReader(live, positions)


def test_turns_follow_the_size_of_records() -> None:
    part = stretch({0: 0})
    assert part.turn_of(1000, 50) == 50
    part.read_until({0: 100})
    part.accept([FetchedPartition(0, [Row(n, b"x" * 1_000_000) for n in range(4)], 4)])
    assert part.turn_of(1024 * 1024, 1000) == 1
    part.accept([FetchedPartition(0, [Row(4 + n, b"x" * 1_000) for n in range(4)], 8)])
    assert 800 < part.turn_of(1024 * 1024, 1000) < 1000


def test_a_partition_that_joined_is_read_from_its_first_offset() -> None:
    part = stretch({0: 5})
    part.read_until({0: 5, 1: 3})
    assert part.fetch_positions() == {TopicPartition("t", 1): 0}
    part.advance(1, 10)
    batch = part.next_batch()
    assert batch is not None
    assert batch.starts == {0: 5, 1: 3}


def test_what_waits_comes_before_the_end() -> None:
    part = stretch({0: 0})
    part.read_until({0: 5})
    part.accept([FetchedPartition(0, [Row(0, b"x")], 1)])
    part.end(SourceFailed("it broke"))
    batch = part.next_batch()
    assert batch is not None
    assert list(batch.offsets) == [0]
    with pytest.raises(SourceFailed):
        part.next_batch()
