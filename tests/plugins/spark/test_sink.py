"""A topic as the source of a query's rows, on a cluster in memory and a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.api import (
    PluginContext,
    Section,
    SourceChanged,
    SourceContext,
    SourceDescription,
    SourceFailed,
    SourceType,
)
from kiwi_gw.runtime.plugin_faults import fault
from kiwi_gw.testing import MemoryPublisher, check_source
from kiwi_kafka import Kafka
from kiwi_spark.gateway.sink import (
    SERVICE,
    SINK_SCHEMA,
    RunQuery,
    SinkSource,
    sink_source,
    too_many_workers,
    writes_here,
)
from tests.plugins.kafka.fakes import FakeCluster, pool_on

AWAY = "the Kafka cluster does not answer"


class Settings(Section):
    type: Literal["rows"]
    id: str = "r"


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create("t", 2)
    return made


def source_on(kafka: Kafka, query: RunQuery | None = None) -> SinkSource:
    return sink_source("t", SourceContext("r", PluginContext({}), {SERVICE: kafka}), query)


async def test_the_contract(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        begun()
        while True:
            await trio.sleep(0.01)
            cluster.add("t", 0, b'{"n":1}')
            cluster.add("t", 1, b"2")

    kind = SourceType(
        "rows",
        Settings,
        lambda settings, context: sink_source("t", context, query),
        SourceDescription(SINK_SCHEMA, services=(SERVICE,), replayable=True),
    )
    async with pool_on(cluster) as kafka:
        report = await check_source(kind, {"type": "rows"}, services={SERVICE: kafka}, repeatable=True)
    assert not report.finite


async def test_a_query_ends_with_its_source(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    ran: list[str] = []

    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        begun()
        ran.append("began")
        try:
            await trio.sleep_forever()
        finally:
            ran.append("ended")

    async with pool_on(cluster) as kafka:
        out = MemoryPublisher(SINK_SCHEMA)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source_on(kafka, query).run, out, None)
            await wait_all_tasks_blocked()
            assert (ran, out.ready_at) == (["began"], {0: 0, 1: 0})
            nursery.cancel_scope.cancel()
        assert ran == ["began", "ended"]


async def test_the_topic_is_read_on_when_the_query_is_over(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        begun()
        await trio.sleep(1)

    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        out = MemoryPublisher(SINK_SCHEMA)
        nursery.start_soon(source_on(kafka, query).run, out, None)
        await trio.sleep(10)
        cluster.add("t", 0, b"{}")
        await out.wait_events(1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [SourceFailed("no such column"), ValueError("odd")])
async def test_what_the_query_raises_is_the_sources(
    error: Exception, autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        begun()
        await trio.sleep(1)
        raise error

    async with pool_on(cluster) as kafka:
        with pytest.raises(ExceptionGroup) as raised:
            await source_on(kafka, query).run(MemoryPublisher(SINK_SCHEMA), None)
    assert fault(raised.value) is error  # as the gateway looks at it


async def test_a_topic_that_is_another_one_now_ends_the_query_too(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        begun()
        await trio.sleep(1)
        cluster.create("t", 2)
        await trio.sleep_forever()

    async with pool_on(cluster) as kafka:
        with pytest.raises(ExceptionGroup) as raised:
            await source_on(kafka, query).run(MemoryPublisher(SINK_SCHEMA), None)
    assert isinstance(fault(raised.value), SourceChanged)


async def test_the_troubles_of_both_are_told_until_both_are_over(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    tells: list[Callable[[str], None]] = []

    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        begun()
        tells.append(tell)
        tell("Spark is started")
        await trio.sleep_forever()

    out = MemoryPublisher(SINK_SCHEMA)
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        nursery.start_soon(source_on(kafka, query).run, out, None)
        await wait_all_tasks_blocked()
        assert out.ready_at is not None
        # Becoming ready has ended what was said before it; this trouble goes on.
        assert out.troubles == ["Spark is started"] * 2
        del out.troubles[:]
        cluster.frozen = True
        await trio.sleep(10)
        tells[0]("")
        tells[0]("Spark is started again")
        cluster.frozen = False
        await trio.sleep(10)
        tells[0]("")
        assert out.troubles == [
            f"{AWAY}; Spark is started",
            AWAY,
            f"{AWAY}; Spark is started again",
            "Spark is started again",
            "",
        ]
        nursery.cancel_scope.cancel()


async def test_it_is_ready_when_the_query_has_begun(autojump_clock: MockClock, cluster: FakeCluster) -> None:
    """Or subscribers would miss what is produced before, and not be told."""

    async def query(tell: Callable[[str], None], begun: Callable[[], None]) -> None:
        await trio.sleep(20)
        begun()
        await trio.sleep_forever()

    out = MemoryPublisher(SINK_SCHEMA)
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        nursery.start_soon(source_on(kafka, query).run, out, None)
        await trio.sleep(19)
        assert out.ready_at is None
        await trio.sleep(2)
        assert out.ready_at == {0: 0, 1: 0}
        nursery.cancel_scope.cancel()


def test_one_worker_runs_the_query() -> None:
    contexts = [PluginContext({}, worker=number, workers=3) for number in range(3)]
    assert [writes_here(True, context) for context in contexts] == [True, False, False]
    assert not any(writes_here(False, context) for context in contexts)


def test_several_workers_need_sinks() -> None:
    assert too_many_workers(PluginContext({}), ["a", "b"]) is None
    assert too_many_workers(PluginContext({}, workers=2), []) is None
    both = too_many_workers(PluginContext({}, workers=2), ["a", "b"])
    assert "would run the queries of 'a', 'b' for itself: give them a sink" in (both or "")
    assert too_many_workers(PluginContext({}, workers=2), ["a"]) == (
        "server.workers is 2, and every worker would run the query of 'a' for itself: give it a sink "
        "(sink: {topic: ...}), or set server.workers to 1"
    )
