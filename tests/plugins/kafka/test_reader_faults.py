"""Brokers that hang, break, hand over or make no sense: reading goes on, and asks nobody all the time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.client.fetch_session import FetchSession
from kiwi_kafka.ports import (
    CorruptRecordsError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    UnreachableError,
)
from tests.plugins.kafka.batches import spoiled
from tests.plugins.kafka.readers import reader_of
from tests.plugins.kafka.scripted_broker import METADATA, NOT_LEADER, cluster_of

# --- hanging ---


async def test_a_broker_that_hangs_is_given_up_and_comes_back(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 2)
        hung, well = cluster.nodes.values()
        async with reader_of(cluster, request_timeout_ms=1_000) as reader:
            for tp in tps:
                cluster.append(tp)
            await reader.read_all()
            hung.awake = trio.Event()
            asked = well.asked[METADATA]
            before = trio.current_time()
            for n in range(100):
                cluster.append(tps[0])
                cluster.append(tps[1])
                with trio.fail_after(1.5):
                    while reader.next[tps[1]] < n + 2:
                        await reader.read()
                await trio.sleep(0.05)
            assert trio.current_time() - before > 4.9
            assert reader.next[tps[0]] <= 2  # what was on its way when it began to hang
            # It was given up, and asked again a few times a second at most; the other one knows the leaders.
            assert 3 <= hung.accepted <= 60
            assert 1 <= well.asked[METADATA] - asked <= 60
            hung.awake.set()
            await reader.read_all()
        assert reader.count == 202


async def test_a_fetch_without_an_answer_has_a_deadline_and_waiting_for_records_has_none(
    clock: MockClock,
) -> None:
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        node = cluster.nodes[1]
        async with reader_of(cluster, fetch_max_wait_ms=900, request_timeout_ms=1_000) as reader:
            await trio.sleep(30)  # nothing comes, and the broker says so each time
            assert node.accepted == 2
            node.awake = trio.Event()
            await trio.sleep(2.5)
            assert node.accepted > 2
            node.awake.set()
            cluster.append(tp)
            await reader.read_all()
            await cluster.until(lambda: node.open == 2)  # those that were given up are closed


async def test_one_bootstrap_server_that_hangs_is_passed_over(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        [tp] = cluster.create("t", 2)
        cluster.append(tp)
        cluster.nodes[1].awake = trio.Event()
        async with reader_of(cluster, request_timeout_ms=1_000) as reader:
            await reader.read_all()


# --- handing over ---


async def test_a_partition_moves_to_its_new_leader(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        cluster.may_name_again = True
        tps = cluster.create("t", 1, 1)
        async with reader_of(cluster) as reader:
            for turn in range(6):
                cluster.append(tps[0], 3)
                cluster.append(tps[1], 2)
                await reader.read_all()
                await trio.sleep(1.1)  # or the pauses grow
                before = trio.current_time()
                node = 2 if turn % 2 == 0 else 1
                cluster.move(tps[0], node)
                fetches = cluster.nodes[node].fetches
                seen = len(fetches)
                await cluster.until(lambda: any(tps[0] in asked.named for asked in fetches[seen:]))  # noqa: B023
                # The pause before an attempt, and the answer to a fetch of that node that waits.
                assert trio.current_time() - before < 0.1 + 0.1 + 0.01


async def test_without_a_leader_it_is_looked_for_with_growing_pauses(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        node = cluster.nodes[1]
        async with reader_of(cluster) as reader:
            await reader.read()
            cluster.move(tps[0], -1)
            before, asked = len(node.fetches), node.asked[METADATA]
            for n in range(10):
                cluster.append(tps[1])
                with trio.fail_after(1):
                    while reader.next[tps[1]] <= n:
                        await reader.read()
                await trio.sleep(1)
            assert node.asked[METADATA] - asked <= 20
            assert len(node.fetches) - before <= 150  # one in 0.1 s that waits for records
            cluster.append(tps[0])
            cluster.move(tps[0], 1)
            with trio.fail_after(1.5):
                await reader.read_all()


async def test_the_nearest_replica_is_read_and_left_when_it_does_not_have_it(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        cluster.may_name_again = True
        [tp] = cluster.create("t", 1)
        log = cluster.logs[tp]
        log.nearer = 2
        leader, near = cluster.nodes.values()
        async with reader_of(cluster, client_rack="here") as reader:
            cluster.append(tp, 3)
            await reader.read_all()
            assert len(leader.fetches) == 1
            cluster.append(tp, 3)
            await reader.read_all()
            assert len(leader.fetches) == 1
            # It lags behind; the leader has it all, and says so.
            log.replica_from = 10**9
            await cluster.until(lambda: len(leader.fetches) > 1)
            log.nearer = -1
            cluster.append(tp, 3)
            await reader.read_all()
            assert reader.count == 9
        assert len(near.fetches) >= 2


async def test_a_nearer_replica_that_is_not_known_is_asked_for_now_and_then(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        cluster.may_name_again = True
        [tp] = cluster.create("t", 1)
        cluster.logs[tp].nearer = 7
        async with reader_of(cluster, client_rack="here") as reader:
            await trio.sleep(10)
            assert cluster.requests < 500
            cluster.logs[tp].nearer = -1
            cluster.append(tp)
            await reader.read_all()


# --- refusals ---


async def test_offsets_out_of_range_are_told_once_and_sought(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        tps = cluster.create("t", 1, 1)
        for tp in tps:
            cluster.append(tp, 3)
        async with reader_of(cluster, {tps[0]: 99}) as reader:
            with pytest.raises(OffsetOutOfRangeError) as raised:
                await reader.read_on()
            assert raised.value.tps == {tps[0]: 99}
            before = len(cluster.nodes[1].fetches)
            await reader.read_all([tps[1]])
            for _ in range(5):
                await reader.read()  # it is not told twice
            assert not any(tps[0] in asked.named for asked in cluster.nodes[1].fetches[before:])
            await reader.seek(tps[0], 1)
            await reader.read_all()
        assert reader.count == 5


async def test_a_topic_that_may_not_be_read(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        [other] = cluster.create("u", 1)
        async with reader_of(cluster) as reader:
            await reader.read()
            cluster.denied.add("t")
            cluster.notify()
            with pytest.raises(TopicAuthorizationError, match="'t'"):
                await reader.read_on()
            cluster.append(other)
            await reader.read_all([other])
            cluster.denied.clear()
            await reader.seek(tp, 0)
            cluster.append(tp)
            await reader.read_all()


async def test_a_topic_that_may_not_be_read_from_the_beginning(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        cluster.create("t", 1)
        cluster.denied.add("t")
        async with reader_of(cluster) as reader:
            with pytest.raises(TopicAuthorizationError, match="'t'"):
                await reader.read_on()


async def test_a_topic_that_is_gone_ends_the_consumer(clock: MockClock) -> None:
    """Its name may come back with another topic, and brokers are asked by name."""
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        async with reader_of(cluster) as reader:
            await reader.read()
            del cluster.logs[tp]
            cluster.notify()
            for _ in range(2):
                with pytest.raises(UnreachableError, match="'t' is not there"):
                    await reader.read_on()


async def test_a_damaged_batch_is_told_behind_what_is_sound(clock: MockClock) -> None:
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        for _ in range(3):
            cluster.append(tp, 3)
        log = cluster.logs[tp]
        first, end, data = log.batches[1]
        log.batches[1] = first, end, spoiled(data, len(data) - 1)
        async with reader_of(cluster) as reader:
            assert await reader.read(most=3) == {tp}
            with pytest.raises(CorruptRecordsError, match="CRC"):
                await reader.read()
            for _ in range(5):
                assert await reader.read() == set()
            await reader.seek(tp, 6)
            await reader.read_all()


async def test_a_broker_that_refuses_what_it_leads_is_not_asked_all_the_time(clock: MockClock) -> None:
    """It says that it does not lead the partition, and all say that it does."""
    async with cluster_of() as cluster:
        cluster.may_name_again = True
        [tp] = cluster.create("t", 1)
        async with reader_of(cluster) as reader:
            await trio.sleep(1)
            cluster.logs[tp].code = NOT_LEADER
            cluster.append(tp)
            before = cluster.requests
            with trio.move_on_after(10):
                while cluster.requests - before < 1_000:
                    await reader.read()
            assert cluster.requests - before < 500
            cluster.logs[tp].code = 0
            cluster.notify()
            await reader.read_all()


# --- a defect of our own ---


async def test_an_exception_in_a_fetcher_is_raised_by_the_next_read_and_ends_only_its_consumer(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 2)
        bad: set[FetchSession] = set()
        answer = FetchSession.answer

        def failing(session: FetchSession, data: memoryview) -> object:
            if session in bad:
                raise ZeroDivisionError("injected")
            return answer(session, data)

        monkeypatch.setattr(FetchSession, "answer", failing)
        async with reader_of(cluster) as other:
            made: list[FetchSession] = []
            begin = FetchSession.__init__

            def noted(session: FetchSession, *args: object) -> None:
                begin(session, *args)  # type: ignore[arg-type]
                made.append(session)

            await other.read()
            monkeypatch.setattr(FetchSession, "__init__", noted)
            opened = cluster.open
            async with reader_of(cluster) as reader:
                await cluster.until(lambda: len(made) == 2)
                bad.update(made[:1])
                for tp in tps:
                    cluster.append(tp)
                for _ in range(2):
                    with pytest.RaisesGroup(
                        pytest.RaisesExc(ZeroDivisionError, match="injected"), flatten_subgroups=True
                    ):
                        await reader.read_on()
            await cluster.until(lambda: cluster.open == opened)
            await other.read_all()


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_closed_consumer_leaves_no_task_and_no_connection(clock: MockClock, hangs: bool) -> None:
    async with cluster_of(2) as cluster, trio.open_nursery() as nursery:
        tps = cluster.create("t", 1, 2)
        for _ in range(3):
            consumer = await BrokerClientFactory(cluster.settings(), nursery).consumer()
            await consumer.assign(dict.fromkeys(tps, 0))
            await consumer.read((), 100)
            assert sum(cluster.open) == 3
            if hangs:
                cluster.nodes[1].awake = trio.Event()
            await consumer.close()
            await cluster.until(lambda: not nursery.child_tasks)
            cluster.nodes[1].awake.set()
            await cluster.until(lambda: not sum(cluster.open))


async def test_a_consumer_that_is_cancelled_leaves_no_connection_of_its_fetches(clock: MockClock) -> None:
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 2)
        async with trio.open_nursery() as nursery:
            consumer = await BrokerClientFactory(cluster.settings(), nursery).consumer()
            await consumer.assign(dict.fromkeys(tps, 0))
            await consumer.read((), 100)
            nursery.cancel_scope.cancel()
        await consumer.close()
        await cluster.until(lambda: not sum(cluster.open))
