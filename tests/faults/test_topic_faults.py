"""What happens to a topic under its readers: deleted, made anew, cut off, grown, and records that are bad.

The gateway is kept from the broker while the topic is changed, where the moment matters: what it has not read
by then it can only read afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from aiokafka import AIOKafkaProducer

from tests.faults.brokers import FaultyBroker
from tests.faults.checker import Closed, Facts, Lag, Verdict, judge, produced
from tests.faults.experiment import BEAT, Scene, scene, span
from tests.faults.offsets import Offsets, Places
from tests.faults.proxy import BLACKHOLE, Proxy
from tests.faults.stages import configuration, faulted_gateway, wishes
from tests.faults.watcher import Watcher
from tests.integration.kafka.support import delete_records
from tests.integration.kafka.test_history import spoil
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

MIB = 2**20
GROWN_WITHIN = 30.0
_PATIENCE = 20.0


@dataclass(frozen=True)
class Afflicted:
    """Hold the scene, and the way between gateway and broker."""

    stage: Scene
    between: Proxy
    topic: str
    topics: Topics

    async def unreachable(self) -> None:
        """Cut the gateway off from the broker, until it knows: nothing is under way to it any more."""
        lines = sum(line["event"] == "kafka broker away" for line in self.stage.gateway.log)
        self.between.apply(BLACKHOLE)
        await self.stage.gateway.logged("kafka broker away", count=lines + 1)

    def reachable(self) -> None:
        self.between.heal()

    async def arrived(self, ends: Mapping[int, int]) -> None:
        """Wait until every watcher has come so far."""
        with trio.fail_after(_PATIENCE):
            for one in self.stage.watchers:
                await one.until(lambda one=one: one.next == ends)  # type: ignore[misc]

    def others_did_not_notice(self) -> None:
        for one in self.stage.others:
            assert judge(one.history, span(one.history)) == Verdict(), one.name
            assert one.lost == 0
            assert one.complaints == []

    def judged(self, everything: Places, facts: Facts) -> None:
        """Assert that nothing is wrong with what any watcher got, and that all got the same notices."""
        for one in self.stage.watchers:
            assert judge(one.history, everything, facts) == Verdict(), one.name
            assert (one.lost, one.complaints) == (0, []), one.name
        self.others_did_not_notice()


@pytest.fixture
def afflicted(
    faulty_broker: FaultyBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., Any]:
    """Open the scene on a new topic of so many partitions."""

    @asynccontextmanager
    async def opened(
        partitions: int, config: Mapping[str, str] | None = None, **source: object
    ) -> AsyncIterator[Afflicted]:
        topics = Topics(faulty_broker.bootstrap)
        topic = await topics.create(request.node.name.replace("[", "-").strip("]"), partitions, config)
        sources = [BEAT, {"type": "kafka", "topic": topic, **source}]
        kafka = {"bootstrap_servers": faulty_broker.proxied}
        async with (
            faulty_broker.between() as between,
            faulted_gateway(
                tmp_path,
                configuration(sources, kafka=kafka),
                expected_errors={"kafka batch cannot be decoded, skipped"},
            ) as running,
            scene(running, topic, None, wishes(topic, 2), value=lambda event: event["value"]) as stage,
        ):
            yield Afflicted(stage, between, topic, topics)

    return opened


def facts_of(placed: list[tuple[int, int]], values: list[str | None]) -> Facts:
    return Facts(values=dict(zip(placed, values, strict=True)))


def notices(one: Watcher) -> list[Lag]:
    return [item for item in one.history if isinstance(item, Lag)]


@pytest.mark.parametrize("anew", [False, True])
async def test_deleted(anew: bool, afflicted: Callable[..., Any]) -> None:
    async with afflicted(1) as it:
        placed = await it.topics.produce(it.topic, [Record(b"old %d" % n) for n in range(5)])
        await it.arrived({0: 5})
        await it.topics.delete(it.topic)
        if anew:
            await it.topics.create(it.topic, 1)
            # More than the old one had: nothing but the topic's id tells them apart.
            await it.topics.produce(it.topic, [Record(b"new %d" % n) for n in range(20)])
        with trio.fail_after(_PATIENCE):
            for one in it.stage.watchers:
                await one.until(lambda one=one: one.closed is not None)
        for one in it.stage.watchers:
            assert one.closed == Closed("changed", 0, {0: 5})
        it.judged(produced({0: 5}), facts_of(placed, [f"old {n}" for n in range(5)]))


async def test_offsets_deleted_under_a_reader(
    afflicted: Callable[..., Any], faulty_broker: FaultyBroker
) -> None:
    async with afflicted(2) as it:
        await it.topics.fill(it.topic, 40, 2)
        await it.arrived({0: 20, 1: 20})
        await it.unreachable()
        await it.topics.fill(it.topic, 200, 2)
        await delete_records(faulty_broker.bootstrap, it.topic, {0: 70, 1: 120})
        it.reachable()
        await it.arrived({0: 120, 1: 120})
        await it.topics.fill(it.topic, 10, 2)
        await it.arrived({0: 125, 1: 125})
        for one in it.stage.watchers:
            told = [(p, *ends) for lag in notices(one) for p, ends in lag.ranges.items()]
            assert sorted(told) == [(0, 20, 69), (1, 20, 119)], "exactly the offsets that were deleted"
            assert {lag.dropped for lag in notices(one)} == {None}, "how many records those held nobody knows"
        it.judged(produced({0: 125, 1: 125}), Facts())


async def test_grown_and_closed(afflicted: Callable[..., Any]) -> None:
    async with afflicted(2) as it:
        await it.topics.fill(it.topic, 20, 2)
        await it.arrived({0: 10, 1: 10})
        began = trio.current_time()
        await it.topics.grow(it.topic, 3)
        with trio.fail_after(GROWN_WITHIN):
            for one in it.stage.watchers:
                await one.until(lambda one=one: one.closed is not None)
        assert trio.current_time() - began < GROWN_WITHIN
        for one in it.stage.watchers:
            assert one.closed == Closed("changed", 0, {0: 10, 1: 10})
        it.judged(produced({0: 10, 1: 10}), Facts())


async def test_grown_and_continued(afflicted: Callable[..., Any]) -> None:
    async with afflicted(2, on_partition_change="continue") as it:
        await it.topics.fill(it.topic, 20, 2)
        await it.arrived({0: 10, 1: 10})
        await it.topics.grow(it.topic, 3)
        await it.topics.fill(it.topic, 30, 3)
        with trio.fail_after(GROWN_WITHIN):
            await it.arrived({0: 20, 1: 20, 2: 10})
        it.judged(produced({0: 20, 1: 20, 2: 10}), Facts())


async def test_a_batch_that_is_damaged_in_the_log(
    afflicted: Callable[..., Any], faulty_broker: FaultyBroker
) -> None:
    async with afflicted(1) as it:
        await it.unreachable()
        for values in ([b"good"] * 3, [b"BROKEN-%d" % n for n in range(4)], [b"after"] * 2):
            await it.topics.produce(it.topic, [Record(value) for value in values])
        (segment,) = (faulty_broker.folder / "data" / f"{it.topic}-0").glob("*.log")
        await trio.to_thread.run_sync(spoil, segment, b"BROKEN-2")
        it.reachable()
        await it.arrived({0: 9})
        for one in it.stage.watchers:
            assert [lag.ranges for lag in notices(one)] == [{0: (3, 6)}]
        it.judged(produced({0: 9}), Facts({(0, 0): "good", (0, 7): "after"}))
        told = [line for line in it.stage.gateway.log if line["event"].startswith("kafka batch cannot")]
        assert len(told) == 1


async def test_transactions_and_tombstones(afflicted: Callable[..., Any]) -> None:
    async with afflicted(1) as it:
        await it.unreachable()  # so that the markers are among what is read, not at its end
        send, topic = it.topics.produce, it.topic
        placed = await send(topic, [Record(b"1")], transactional_id=f"{topic}-a")
        await send(topic, [Record(b"never")] * 5, transactional_id=f"{topic}-b", abort=True)
        placed += await send(topic, [Record(b"2"), Record(None, key=b"k")], transactional_id=f"{topic}-c")
        placed += await send(topic, [Record(b"3")])
        it.reachable()
        await it.arrived({0: placed[-1][1] + 1})
        there = {0: Offsets([(offset, offset) for _, offset in placed])}
        it.judged(there, facts_of(placed, ["1", "2", None, "3"]))
        for one in it.stage.watchers:
            assert notices(one) == [], "what was aborted is no loss"


async def test_ten_megabytes(afflicted: Callable[..., Any], faulty_broker: FaultyBroker) -> None:
    async with afflicted(1, {"max.message.bytes": str(16 * MIB)}) as it:
        values = [b"before", b"x" * 3 * MIB, b"x" * 10 * MIB, b"behind"]
        for value in values:
            await send_large(faulty_broker.bootstrap, it.topic, value)
        await it.arrived({0: 4})
        for one in it.stage.watchers:
            # The largest event that is sent on is `window.event_bytes` (8 MiB).
            assert [(lag.ranges, lag.dropped) for lag in notices(one)] == [({0: (2, 2)}, 1)]
        values_there = {(0, n): values[n].decode() for n in (0, 1, 3)}
        it.judged(produced({0: 4}), Facts(values_there))


async def send_large(bootstrap: str, topic: str, value: bytes) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=16 * MIB)
        await producer.start()
        try:
            await producer.send_and_wait(topic, value)
        finally:
            await producer.stop()

    await trio.to_thread.run_sync(lambda: asyncio.run(send()))
