"""What is written to a real broker, and committed there: in order, once, and where Java would put it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from aiokafka import AIOKafkaConsumer, TopicPartition

from kiwi_demo.broker import Broker
from kiwi_gw.api import CommitRefused, Outgoing, Published, Unpublished
from tests.integration.kafka.support import kafka_on, running
from tests.stalls import within
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

NewTopic = Callable[[], str]

Records = dict[tuple[int, int], bytes | None]
Pairs = dict[tuple[int, int], tuple[bytes | None, bytes | None]]


async def read_all(bootstrap: str, topic: str, **options: object) -> Records:
    """Every record of the topic, as aiokafka's consumer reads it: values by partition and offset."""
    return {place: value for place, (_, value) in (await read_pairs(bootstrap, topic, **options)).items()}


async def read_pairs(bootstrap: str, topic: str, **options: object) -> Pairs:
    """Do the same with keys and values."""

    async def read() -> Pairs:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **options)
        await consumer.start()
        try:
            tps = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
            tps = tps or [TopicPartition(topic, p) for p in sorted(await partitions(consumer, topic))]
            consumer.assign(tps)
            await consumer.seek_to_beginning(*tps)
            ends = await consumer.end_offsets(tps)
            found: Pairs = {}
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    found |= {(tp.partition, each.offset): (each.key, each.value) for each in records}
            return found
        finally:
            await consumer.stop()

    return await trio.to_thread.run_sync(lambda: asyncio.run(read()))


async def partitions(consumer: Any, topic: str) -> set[int]:
    await consumer._client.force_metadata_update()
    metadata = await consumer._client.fetch_all_metadata()
    return set(metadata.partitions_for_topic(topic))


async def as_group(bootstrap: str, group: str, topic: str, partition: int) -> int | None:
    """What aiokafka finds committed."""

    async def ask() -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, partition)])
            committed: int | None = await consumer.committed(TopicPartition(topic, partition))
            return committed
        finally:
            await consumer.stop()

    return await trio.to_thread.run_sync(lambda: asyncio.run(ask()))


def numbered(first: int, size: int, **options: Any) -> list[Outgoing]:
    return [Outgoing(None, b"%d" % number, **options) for number in range(first, first + size)]


def places(results: Sequence[Published | Unpublished]) -> list[tuple[int, int]]:
    assert all(isinstance(result, Published) for result in results), results
    return [(result.partition, result.offset) for result in results if isinstance(result, Published)]


async def test_keys_go_where_java_puts_them(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    """The hashes are those of `UtilsTest.testMurmur2` of Apache Kafka."""
    hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    name = await topics.create(new_topic(), 7)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        results = await source.source.produce([Outgoing(key, b"v") for key in hashes], 4)
    assert [partition for partition, _ in places(results)] == [
        (number & 0x7FFFFFFF) % 7 for number in hashes.values()
    ]


async def test_each_record_is_judged_by_itself(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        results = await source.source.produce(
            [
                Outgoing(b"k", None, (("h", b"1"), ("null", None)), 1_700_000_000_000, 1),
                Outgoing(None, b"x" * 2_000_000, partition=1),
                Outgoing(None, b"v", partition=2),
                Outgoing(None, b"v", partition=1, timestamp=-5),
                Outgoing(None, b"v", partition=1),
            ],
            4,
        )
    first, large, nowhere, never, last = results
    assert (first, last) == (Published(1, 0), Published(1, 1))
    assert large == Unpublished("not written: too large", retriable=False, known=True)
    assert nowhere == Unpublished("not written: there is no partition 2", retriable=False, known=True)
    assert isinstance(never, Unpublished)
    assert never.known
    assert await read_all(broker.bootstrap, name) == {(1, 0): None, (1, 1): b"v"}


async def test_a_topic_that_is_not_there_is_not_made(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = new_topic()
    async with kafka_on(broker.bootstrap) as kafka:
        producer = kafka.producer(name)
        (result,) = await producer.produce([Outgoing(None, b"v")], 4)
        producer.close()
        assert result == Unpublished("not written: there is no such topic", retriable=False, known=True)
        assert name not in await kafka.lookup.cluster_monitor.ask(lambda admin: known_topics(admin, name))


async def known_topics(admin: Any, name: str) -> list[str]:
    found = await admin.describe_topics([name])
    return [topic for topic, info in found.items() if hasattr(info, "leaders")]


async def grown(said: Sequence[object], by: int) -> None:
    """Until so many more have been said."""
    wanted = len(said) + by
    with trio.fail_after(30):
        while len(said) < wanted:  # noqa: ASYNC110  (who says it tells nobody)
            await trio.sleep(0.01)


async def test_a_broker_that_is_killed_costs_no_order_and_doubles_nothing(
    own_broker: Broker, new_topic: NewTopic
) -> None:
    name = await Topics(own_broker.bootstrap).create(new_topic(), 3)
    said: list[tuple[Outgoing, Published | Unpublished]] = []
    going = True
    async with kafka_on(own_broker.bootstrap) as kafka, running(kafka, name) as source:

        async def write() -> None:
            number = 0
            while going:
                records = [Outgoing(None, b"%d" % n, partition=n % 3) for n in range(number, number + 600)]
                number += 600
                said.extend(zip(records, await source.source.produce(records, 4), strict=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(3):
                await grown(said, 6_000)
                await own_broker.kill()
                await trio.sleep(0.3)
                await own_broker.start()
            await grown(said, 6_000)
            going = False
    there = await read_all(own_broker.bootstrap, name)
    values = list(there.values())
    published = [(record, result) for record, result in said if isinstance(result, Published)]
    assert len(published) > 20_000
    for record, result in published:
        assert there[result.partition, result.offset] == record.value
    assert len(values) == len(set(values)), "a record is there twice"
    unwritten = {r.value for r, result in said if isinstance(result, Unpublished) and result.known}
    assert unwritten.isdisjoint(values)
    for partition in range(3):
        numbers = [int(value or b"") for (p, _), value in sorted(there.items()) if p == partition]
        assert numbers == sorted(numbers)


async def test_a_broker_that_is_away_is_answered_for(own_broker: Broker, new_topic: NewTopic) -> None:
    name = await Topics(own_broker.bootstrap).create(new_topic(), 1)
    async with kafka_on(own_broker.bootstrap) as kafka, running(kafka, name) as source:
        assert places(await source.source.produce(numbered(0, 1), 4)) == [(0, 0)]
        own_broker.freeze()
        for known in (False, True):  # the first one was sent; of the next one nothing was
            with within(2.2):
                (result,) = await source.source.produce(numbered(1, 1), 2)
            assert isinstance(result, Unpublished)
            assert (result.known, result.retriable) == (known, True)
        own_broker.thaw()
        with trio.fail_after(15):
            while not isinstance((await source.source.produce(numbered(9, 1), 2))[0], Published):
                pass


async def test_after_a_doubt_later_records_are_written(own_broker: Broker, new_topic: NewTopic) -> None:
    name = await Topics(own_broker.bootstrap).create(new_topic(), 1)
    async with kafka_on(own_broker.bootstrap) as kafka, running(kafka, name) as source:
        places(await source.source.produce(numbered(0, 5), 4))
        own_broker.freeze()
        (doubt, *_) = await source.source.produce(numbered(5, 5), 1)
        assert isinstance(doubt, Unpublished)
        assert not doubt.known
        own_broker.thaw()
        with trio.fail_after(15):
            while isinstance((await source.source.produce(numbered(10, 5), 3))[0], Unpublished):
                pass
        places(await source.source.produce(numbered(15, 5), 4))


async def test_commits_are_where_kafkas_own_clients_look(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 2)
    group = f"group-{name}"
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        kafka_source = source.source
        places(await kafka_source.produce(numbered(0, 10, partition=1), 4))
        assert await kafka_source.committed(group) == {}
        await kafka_source.commit(group, {1: (7, "so far")})
        assert await kafka_source.committed(group) == {1: (7, "so far")}
        assert await as_group(broker.bootstrap, group, name, 1) == 7
        async with trio.open_nursery() as nursery:
            for offset in range(1, 10):
                nursery.start_soon(kafka_source.commit, group, {1: (offset, "")})
        assert (await kafka_source.committed(group))[1][0] in range(1, 10)
        await kafka_source.commit(group, {1: (2, ""), 0: (0, "")})  # backwards, too
        assert await kafka_source.committed(group) == {0: (0, ""), 1: (2, "")}
        for positions, why in (
            ({1: (11, ""), 0: (0, "")}, "partition 1 ends at 10, before 11"),
            ({2: (0, "")}, "there is no partition 2"),
            ({1: (3, "x" * 5000)}, "what is noted beside an offset is too long"),
        ):
            with pytest.raises(CommitRefused, match=why):
                await kafka_source.commit(group, positions)
        assert await kafka_source.committed(group) == {0: (0, ""), 1: (2, "")}


@pytest.mark.parametrize("length", [249, 3060, 8192])
async def test_names_of_groups_of_any_length(
    broker: Broker, topics: Topics, new_topic: NewTopic, length: int
) -> None:
    """A client's name of 255 characters has 3,060 bytes when it is percent-encoded."""
    name = await topics.create(new_topic(), 1)
    group = f"{name}.{'%F0%9F%98%80' * 1000}"[:length]
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        places(await source.source.produce(numbered(0, 10), 4))
        await source.source.commit(group, {0: (7, "so far")})
        assert await source.source.committed(group) == {0: (7, "so far")}
        assert await as_group(broker.bootstrap, group, name, 0) == 7


async def test_a_group_with_members_is_left_to_them(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 1)
    group = f"group-{name}"
    joined, enough = trio.Event(), asyncio.Event()
    token = trio.lowlevel.current_trio_token()
    loops: list[asyncio.AbstractEventLoop] = []

    async def be_member() -> None:
        loops.append(asyncio.get_running_loop())
        consumer = AIOKafkaConsumer(
            name, bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=50)
            trio.from_thread.run_sync(joined.set, trio_token=token)
            await enough.wait()
        finally:
            await consumer.stop()

    async with (
        kafka_on(broker.bootstrap) as kafka,
        running(kafka, name) as source,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(trio.to_thread.run_sync, lambda: asyncio.run(be_member()))
        with trio.fail_after(20):
            await joined.wait()
        try:
            with pytest.raises(CommitRefused, match="the group has members"):
                await source.source.commit(group, {0: (0, "")})
            assert await source.source.committed(group) == {}
        finally:
            loops[0].call_soon_threadsafe(enough.set)
