"""Everything that is in a topic comes, once and in order, whatever it is packed in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.testing import MemoryPublisher, check_source
from kiwi_kafka import KAFKA
from tests.integration.kafka.support import Offsets, context_of, kafka_on, running, start_source
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]


async def test_200_000_records_of_four_partitions(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 4)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        assert source.out.ready_at == dict.fromkeys(range(4), 0)
        await topics.fill(name, 200_000, 4)
        with trio.fail_after(60):
            await source.out.wait_for(200_000)
    assert source.out.offsets == {p: list(range(50_000)) for p in range(4)}
    assert not source.out.gaps


async def test_it_begins_at_the_end(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)
    await topics.fill(name, 100, 2)
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        assert source.out.ready_at == {0: 50, 1: 50}
        await topics.produce(name, [Record(b"new", partition=1)])
        with trio.fail_after(10):
            await source.out.wait_for(1)
    assert source.out.offsets == {1: [50]}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_codecs(broker: Broker, topics: Topics, new_topic: NewTopic, codec: str | None) -> None:
    name = await topics.create(new_topic())
    out = MemoryPublisher()
    async with kafka_on(broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        start_source(nursery, kafka, name, out, {0: 0})
        values = [b"%d" % n + b"x" * 500 for n in range(300)]
        await topics.produce(name, [Record(value) for value in values], codec=codec)
        with trio.fail_after(10):
            await out.wait_events(300)
        nursery.cancel_scope.cancel()
    assert [record["value"] for record in out.records] == values


async def test_what_a_record_holds(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic())
    out = MemoryPublisher()
    async with kafka_on(broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        start_source(nursery, kafka, name, out, {0: 0}, fields=["key", "value", "headers", "timestamp"])
        await topics.produce(
            name,
            [
                Record(b"v", key=b"k", timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", b"\xff")]),
                Record(None, key=b"tombstone", timestamp=5),
                Record(b"", key=None, timestamp=6),
            ],
        )
        with trio.fail_after(10):
            await out.wait_events(3)
        nursery.cancel_scope.cancel()
    wanted = ("key", "value", "timestamp", "headers", "partition", "offset")
    assert [tuple(record[name] for name in wanted) for record in out.records] == [
        (b"k", b"v", 1_700_000_000_123, (("a", b"1"), ("a", b"\xff")), 0, 0),
        (b"tombstone", None, 5, (), 0, 1),
        (None, b"", 6, (), 0, 2),
    ]


async def test_only_committed_records(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic())
    out = MemoryPublisher()
    async with kafka_on(broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        start_source(nursery, kafka, name, out, {0: 0})
        produce = partial(topics.produce, name)
        placed = await produce([Record(b"1"), Record(b"2")], transactional_id=f"{name}-a")
        await produce([Record(b"never")] * 5, transactional_id=f"{name}-b", abort=True)
        placed += await produce([Record(b"3")], transactional_id=f"{name}-c")
        placed += await produce([Record(b"4")])
        with trio.fail_after(20):
            await out.wait_events(4)
        nursery.cancel_scope.cancel()
    # Five aborted records and the markers, which come at a moment of the broker's choice, have offsets too.
    assert [(record["partition"], record["offset"]) for record in out.records] == placed
    assert [record["value"] for record in out.records] == [b"1", b"2", b"3", b"4"]
    assert placed[-1][1] >= 9


async def test_a_restart_goes_on_behind_what_was_taken(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 4)
    await topics.fill(name, 40_000, 4)
    positions = dict.fromkeys(range(4), 0)
    offsets: dict[int, list[int]] = {p: [] for p in range(4)}
    async with kafka_on(broker.bootstrap) as kafka:
        for wanted in (1, 5_000, 12_000, 20_000, 10**9):
            out = Offsets()
            async with running(kafka, name, out=out, start=positions):
                left = 40_000 - sum(map(len, offsets.values()))
                with trio.fail_after(20):
                    await out.wait_for(min(wanted, left))
            for p, more in out.offsets.items():
                offsets[p] += more
            positions = out.positions
    assert offsets == {p: list(range(10_000)) for p in range(4)}


async def test_it_keeps_the_contract(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 2)

    async def feed() -> None:
        while True:
            await topics.fill(name, 20, 2)

    async with kafka_on(broker.bootstrap) as kafka, trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        await check_source(
            KAFKA,
            {"type": "kafka", "topic": name},
            sections=dict(context_of(broker.bootstrap).sections),
            services={"kafka": kafka},
            events=100,
            repeatable=True,
            timeout_seconds=20,
        )
        nursery.cancel_scope.cancel()


async def test_markers_of_transactions_are_passed_without_another_record(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    """The end of the topic lies behind them: who reads up to it waits for that."""
    name = await topics.create(new_topic())
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name) as source:
        for count, abort in ((2, False), (5, True)):
            records = [Record(b"x")] * count
            await topics.produce(name, records, transactional_id=f"{name}-{abort}", abort=abort)
        with trio.fail_after(20):
            await source.out.wait_until(lambda: source.out.positions == {0: 2 + 1 + 5 + 1})
        assert source.out.count == 2
        assert (await source.source.offset_range()).end == {0: 9}
