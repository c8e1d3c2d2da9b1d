"""Sources whose records name schemas of a registry: a cluster in memory, a registry over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import kiwi_kafka
from kiwi_gw.api import Backoff, Batch, PluginContext, PluginError, SourceContext
from kiwi_gw.model import SCHEMA_COLUMNS
from kiwi_gw.query.decode import decoded_column
from kiwi_gw.query.values import UNDECODABLE
from kiwi_gw.testing import MemoryPublisher
from kiwi_kafka import KAFKA, Kafka, KafkaSettings, KafkaSource, KafkaSourceSettings, open_kafka
from kiwi_kafka.degradation import Degradation
from kiwi_kafka.diagnostics import check_registry
from kiwi_kafka.registry.client import RegistryClient
from kiwi_kafka.registry.schema_registry import AWAY, SchemaRegistry
from kiwi_kafka.settings import RegistrySettings
from tests.plugins.kafka.fakes import FakeCluster, Run
from tests.plugins.kafka.registry_server import V1, V2, RegistryServer, registered, registry_server

BY_REGISTRY = {"value": "avro", "registry": True}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.add(1, V1)
        server.add(2, V2)
        server.add(3, '"string"')
        yield server


@asynccontextmanager
async def kafka_on(cluster: FakeCluster, server: RegistryServer) -> AsyncIterator[Kafka]:
    settings = KafkaSettings(bootstrap_servers="fake:9092")
    registry = SchemaRegistry(RegistryClient(RegistrySettings(url=server.url), 10.0), Backoff(0.001, 0.01))
    async with trio.open_nursery() as nursery:
        kafka = Kafka(settings, cluster, nursery, registry)
        kafka.start()
        yield kafka
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(cluster: FakeCluster, server: RegistryServer, decode: Any) -> AsyncIterator[Run]:
    """A source that is ready."""
    async with kafka_on(cluster, server) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", decode=decode)
        nursery.start_soon(run)
        await until(lambda: run.out.ready_at is not None)
        yield run
        nursery.cancel_scope.cancel()


def one(n: int) -> bytes:
    return registered(1, V1, {"carrier": "AA", "delay": n})


def two(n: int) -> bytes:
    return registered(2, V2, {"carrier": "UA", "delay": n, "gate": "B1"})


def read_by(run: Run, settings: Any, part: str = "value") -> list[object]:
    """What queries see of all that was handed over."""
    section = KafkaSourceSettings(type="kafka", topic="t", decode=settings)
    decode = KAFKA.description_of(section).decode
    return [value for batch in run.out.batches for value in decoded_column(decode, part, batch.columns)]


def source_of(run: Run) -> KafkaSource:
    assert isinstance(run.source, KafkaSource)
    return run.source


async def until(done: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not done():  # noqa: ASYNC110  (the server answers in threads)
            await trio.sleep(0.005)


async def test_two_versions_and_what_cannot_be_read(server: RegistryServer) -> None:
    cluster = FakeCluster()
    cluster.create("t", 1)
    async with running(cluster, server, BY_REGISTRY) as run:
        damaged = [one(1)[:-1], one(1) + b"\0", b"", b"\0\0\0", b'{"no": "Avro"}', b"\1" + one(1)[1:]]
        no_text = b"\0\0\0\0\3\x02\xff"
        unknown = [b"\0\0\0\0\x63x", b"\0\xff\xff\xff\xffx"]
        cluster.add("t", 0, one(1), two(2), None, *damaged, no_text, *unknown, one(3))
        with trio.fail_after(10):
            await run.out.wait_events(13)
    assert read_by(run, BY_REGISTRY) == [
        {"carrier": "AA", "delay": 1},
        {"carrier": "UA", "delay": 2, "gate": "B1"},
        None,
        *[UNDECODABLE] * 9,
        {"carrier": "AA", "delay": 3},
    ]
    assert sorted(server.requests) == [f"/schemas/ids/{n}" for n in (1, 2, 3, 99)]
    (batch,) = run.out.batches
    assert set(batch.columns) == {"key", "value", "timestamp", SCHEMA_COLUMNS["value"]}
    assert batch.cost > sum(len(value) for value in run.values if isinstance(value, bytes))


async def test_keys_too(server: RegistryServer) -> None:
    cluster = FakeCluster()
    cluster.create("t", 1)
    both = {"key": "avro", "value": "avro", "registry": True}
    async with running(cluster, server, both) as run:
        topic = cluster.topics["t"]
        cluster.add("t", 0, one(1), None, two(2), two(3))
        for row, key in zip(topic.rows[0], (b"\0\0\0\0\3\x02a", b"\0\0\0\0\3\x02b", None, b"x"), strict=True):
            row.key = key
        with trio.fail_after(10):
            await run.out.wait_events(4)
    assert read_by(run, both, "key") == ["a", "b", None, UNDECODABLE]
    delays = [value["delay"] if isinstance(value, dict) else value for value in read_by(run, both)]
    assert delays == [1, None, 2, 3]


async def test_nothing_is_lost_and_nobody_else_waits_while_the_registry_is_away(
    server: RegistryServer,
) -> None:
    cluster = FakeCluster()
    for topic in ("t", "known", "plain"):
        cluster.create(topic, 1)
    async with kafka_on(cluster, server) as kafka, trio.open_nursery() as nursery:
        run, known = (Run(kafka, topic, decode=BY_REGISTRY) for topic in ("t", "known"))
        plain = Run(kafka, "plain")
        for each in (run, known, plain):
            nursery.start_soon(each)
        await until(lambda: all(each.out.ready_at is not None for each in (run, known, plain)))
        cluster.add("known", 0, one(0))
        with trio.fail_after(10):
            await known.out.wait_events(1)
        server.down()
        for n in range(20):
            cluster.add("t", 0, two(n))
        await until(lambda: run.out.troubles == [AWAY])
        assert not source_of(run).statistics().reachable
        cluster.add("plain", 0, b"x")
        cluster.add("known", 0, one(1))  # its schema was fetched before
        with trio.fail_after(10):
            await plain.out.wait_events(1)
            await known.out.wait_events(2)
        assert not run.out.events
        assert known.out.troubles == plain.out.troubles == []
        server.up()
        with trio.fail_after(10):
            await run.out.wait_events(20)
        assert run.out.troubles == [AWAY, ""]
        assert source_of(run).statistics().reachable
        nursery.cancel_scope.cancel()
    assert [value["delay"] for value in read_by(run, BY_REGISTRY)] == [*range(20)]  # type: ignore[index]


async def test_history_waits_for_schemas_too_and_a_cancelled_read_has_read_nothing(
    server: RegistryServer,
) -> None:
    cluster = FakeCluster()
    cluster.create("t", 1)
    cluster.add("t", 0, *[one(n) for n in range(5)], b"\0\0\0\0\x63", two(6))
    async with kafka_on(cluster, server) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", decode=BY_REGISTRY)
        nursery.start_soon(run)
        await until(lambda: run.out.ready_at is not None)
        server.down()
        taken: list[Batch] = []
        async with source_of(run).read_from({0: 0}) as reader:
            with trio.CancelScope() as scope:

                @nursery.start_soon
                async def give_up() -> None:
                    await until(lambda: run.out.troubles[-1:] == [AWAY])
                    scope.cancel()

                taken.append(await reader.read({0: 7}))
            assert scope.cancelled_caught
            await until(lambda: run.out.troubles[-2:] == [AWAY, ""])
            server.up()
            with trio.fail_after(10):
                while not taken or taken[-1].starts != {0: 7}:
                    taken.append(await reader.read({0: 7}))
        nursery.cancel_scope.cancel()
    assert [offset for batch in taken for offset in batch.offsets] == [*range(7)]
    decode = KAFKA.description_of(KafkaSourceSettings(type="kafka", topic="t", decode=BY_REGISTRY)).decode
    values = [value for batch in taken for value in decoded_column(decode, "value", batch.columns)]
    assert values[5] is UNDECODABLE
    assert [value["delay"] for value in values if isinstance(value, dict)] == [0, 1, 2, 3, 4, 6]


async def test_a_batch_stays_as_it_was_handed_over_and_history_has_what_is_known_by_then(
    server: RegistryServer,
) -> None:
    cluster = FakeCluster()
    cluster.create("t", 1)
    late = registered(9, V1, {"carrier": "DL", "delay": 9})
    async with kafka_on(cluster, server) as kafka, trio.open_nursery() as nursery:
        run = Run(kafka, "t", decode=BY_REGISTRY)
        nursery.start_soon(run)
        await until(lambda: run.out.ready_at is not None)
        cluster.add("t", 0, late)
        with trio.fail_after(10):
            await run.out.wait_events(1)
        assert read_by(run, BY_REGISTRY) == [UNDECODABLE]
        server.add(9, V1)
        registry = kafka._registry
        assert registry is not None
        registry.cache._refusals.clear()  # as time does
        async with source_of(run).read_from({0: 0}) as reader:
            with trio.fail_after(10):
                again = await reader.read({0: 1})
        nursery.cancel_scope.cancel()
    assert read_by(run, BY_REGISTRY) == [UNDECODABLE]
    decode = KAFKA.description_of(KafkaSourceSettings(type="kafka", topic="t", decode=BY_REGISTRY)).decode
    assert decoded_column(decode, "value", again.columns) == [{"carrier": "DL", "delay": 9}]


async def test_a_source_that_is_stopped_while_it_waits_does_not_say_that_all_is_well(
    server: RegistryServer,
) -> None:
    cluster = FakeCluster()
    cluster.create("t", 1)
    server.down()
    async with running(cluster, server, BY_REGISTRY) as run:
        cluster.add("t", 0, one(1))
        await until(lambda: run.out.troubles == [AWAY])
    assert run.out.troubles == [AWAY]


# --- configuration ----------------------------------------------------------------------------


def test_a_source_needs_a_registry() -> None:
    source = KafkaSourceSettings(type="kafka", topic="t", decode=BY_REGISTRY)
    kafka = KafkaSettings(bootstrap_servers="fake:1")
    with pytest.raises(PluginError, match=r"source 's': .*kafka\.registry\.url"):
        kiwi_kafka.configure(PluginContext({"kafka": kafka}, sources={"s": source}))
    named = kafka.model_copy(update={"registry": RegistrySettings(url="http://r:8081")})
    kiwi_kafka.configure(PluginContext({"kafka": named}, sources={"s": source}))
    plain = KafkaSourceSettings(type="kafka", topic="t")
    kiwi_kafka.configure(PluginContext({"kafka": kafka}, sources={"s": plain}))


async def test_without_one_it_is_not_built() -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        kafka = Kafka(KafkaSettings(bootstrap_servers="fake:1"), cluster, nursery)
        section = KafkaSourceSettings(type="kafka", topic="t", decode=BY_REGISTRY)
        with pytest.raises(PluginError, match=r"kafka\.registry\.url"):
            KAFKA.build(section, SourceContext("t", PluginContext({}), {"kafka": kafka}))


async def test_an_authority_that_cannot_be_used(tmp_path: Any) -> None:
    registry = {"url": "https://r:8081", "ca": tmp_path / "none.pem"}
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", registry=RegistrySettings(**registry))
    with pytest.raises(PluginError, match=r"kafka\.registry\.ca: "):
        async with open_kafka(PluginContext({"kafka": settings})):
            pass
    found = await check_registry(settings.registry)
    assert (found.level, found.message[:17]) == ("error", "ca cannot be used")


async def test_check_asks_the_registry(server: RegistryServer) -> None:
    settings = RegistrySettings(url=server.url)
    subject = f"kafka schema registry {server.url}"
    found = await check_registry(settings)
    assert (found.level, found.subject, found.message) == ("ok", subject, "answers")
    server.user = "ada", "secret"
    found = await check_registry(settings)
    assert (found.level, found.message) == ("error", "it refuses user and password (HTTP status 401)")
    server.down()
    found = await check_registry(settings)
    assert found.level == "error"
    assert "refused" in found.message
    assert (await check_registry(None)).level == "error"


# --- what is said of a source -----------------------------------------------------------------


def test_troubles_of_several_are_one_message() -> None:
    degradation, said = Degradation(), list[str]()
    degradation.say("a", "before anybody listened")
    with degradation.reported_to(said.append):
        degradation.say("b", "no registry")
        degradation.say("c", "no registry")
        degradation.say("a", "")
        degradation.say("b", "")
        assert degradation
        degradation.say("c", "")
        degradation.say("c", "")
        assert not degradation
    degradation.say("a", "when nobody listens any more")
    both = "before anybody listened; no registry"
    assert said == ["before anybody listened", both, "no registry", ""]


def test_a_publisher_that_is_gone_is_told_nothing() -> None:
    degradation = Degradation()
    out = MemoryPublisher(KAFKA.common_description.schema)
    with degradation.reported_to(out.report_degraded):
        degradation.say("a", "x")
    degradation.say("a", "")
    assert out.troubles == ["x"]
