"""History that is gone, and history that cannot be read: announced exactly, and on it goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kiwi_demo.broker import Broker
from kiwi_gw.api import Gap, Unreadable
from tests.integration.kafka.support import Offsets, delete_records, kafka_on, running
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]


async def test_records_deleted_before_they_were_read(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 3)
    await topics.fill(name, 300, 3)
    await delete_records(broker.bootstrap, name, {0: 40, 1: 100})
    start = {0: 10, 1: 0, 2: 50}
    async with kafka_on(broker.bootstrap) as kafka, running(kafka, name, start=start) as source:
        with trio.fail_after(10):
            await source.out.wait_until(lambda: source.out.count == 110 and len(source.out.gaps) == 2)
        await topics.fill(name, 3, 3)
        with trio.fail_after(10):
            await source.out.wait_for(113)
    assert sorted(source.out.gaps, key=str) == [Gap({0: (10, 39)}, None), Gap({1: (0, 99)}, None)]
    assert source.out.offsets == {0: list(range(40, 101)), 1: [100], 2: list(range(50, 101))}


async def test_deleted_while_the_reader_was_held_up(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 1)
    out = Offsets()
    async with (
        kafka_on(
            broker.bootstrap, client={"max_poll_records": 10, "max_partition_fetch_bytes": 4096}
        ) as kafka,
        running(kafka, name, out=out) as source,
    ):
        out.gate = trio.Event()
        for _ in range(100):
            await topics.fill(name, 10, 1, size=1000)  # batches that do not fit one fetch
        await delete_records(broker.bootstrap, name, {0: 900})
        out.gate.set()
        with trio.fail_after(10):
            await out.wait_until(lambda: out.positions == {0: 1000})
        assert not source.ended.is_set()
    (gap,) = out.gaps
    (first, last) = gap.ranges[0]
    assert out.offsets == {0: [*range(first), *range(900, 1000)]}
    assert last == 899
    assert 0 < first < 900


async def test_a_batch_that_cannot_be_decoded(own_broker: Broker, new_topic: NewTopic) -> None:
    topics = Topics(own_broker.bootstrap)
    name = await topics.create(new_topic(), 2)
    produced = [[b"good-%d" % n for n in range(20)], [b"BROKEN-%d" % n for n in range(7)], [b"after"] * 5]
    for values in produced:
        await topics.produce(name, [Record(value, partition=0) for value in values])
    await topics.produce(name, [Record(b"other", partition=1)] * 10)
    (segment,) = (own_broker.folder / "data" / f"{name}-0").glob("*.log")
    await trio.to_thread.run_sync(spoil, segment, b"BROKEN-3")
    with capture_logs() as logs:
        async with (
            kafka_on(own_broker.bootstrap) as kafka,
            running(kafka, name, start={0: 0, 1: 0}) as source,
        ):
            with trio.fail_after(15):
                await source.out.wait_until(lambda: source.out.count == 35 and bool(source.out.gaps))
    assert source.out.gaps == [Gap({0: (20, 26)}, None, Unreadable.DAMAGED)]
    assert source.out.offsets == {0: [*range(20), *range(27, 32)], 1: list(range(10))}
    (told,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (told["partition"], told["first"], told["last"]) == (0, 20, 26)


def spoil(file: Path, text: bytes) -> None:
    data = bytearray(file.read_bytes())
    at = data.index(text)
    data[at] ^= 0xFF
    with file.open("r+b") as written:  # in place: the broker has it open
        written.seek(at)
        written.write(data[at : at + 1])


async def test_a_record_larger_than_every_limit(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 1)
    values = [b"small", b"x" * 900_000, b"small"]
    async with (
        kafka_on(
            broker.bootstrap, client={"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 1000}
        ) as kafka,
        running(kafka, name) as source,
    ):
        for value in values:
            await topics.produce(name, [Record(value)])
        with trio.fail_after(10):
            await source.out.wait_for(3)
    assert source.out.offsets == {0: [0, 1, 2]}
