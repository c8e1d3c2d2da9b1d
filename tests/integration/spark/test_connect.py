"""Queries on a real Spark Connect server, whose results come through a real topic."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from aiokafka import AIOKafkaConsumer

from kiwi_demo.broker import Broker
from kiwi_spark.protocol.messages import BatchProgress, QueryEnded, QueryStarted, StartQuery
from kiwi_spark.protocol.query_spec import QuerySpec, SessionSpec, SinkSpec, StreamInput
from tests.integration.client import client
from tests.integration.gateway import gateway
from tests.integration.spark.clusters import ConnectServer, connect_server
from tests.integration.spark.driver_peer import DriverPeer
from tests.integration.spark.late_flights import config, driver_of, flights, late, patience, values
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

STOPPED = "a query of an earlier client is stopped"
_runs = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """The one that all tests share."""
    with connect_server(tmp_path_factory.mktemp("connect")) as running:
        yield running


def peer_of(server: ConnectServer) -> DriverPeer:
    return DriverPeer(SessionSpec(remote=server.remote, python_path=[str(Path(__file__).parent)]))


@pytest.fixture(scope="module")
def driver(server: ConnectServer) -> Iterator[DriverPeer]:
    peer = peer_of(server)
    yield peer
    peer.close()


@pytest.fixture
async def query(broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path) -> QuerySpec:
    """Reads 100 good records with a = 0..99 and a bad one; writes to a topic of one partition."""
    name = await topics.create(new_topic())
    to = await topics.create(f"{name}-out")
    await topics.produce(name, [*(Record(b'{"a":%d}' % one) for one in range(100)), Record(b"{nope")])
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    item = StreamInput(
        source=name, format="json", schema="a INT", start="earliest", kafka={**kafka, "subscribe": name}
    )
    return QuerySpec(
        source=name,
        streams={"flights": item},
        sql="SELECT a, CAST(a AS DECIMAL(5,2)) AS d FROM flights",
        key=["a"],
        checkpoint=str(tmp_path / "state"),
        sink=SinkSpec(topic=to, options=kafka),
    )


def altered(query: QuerySpec, **fields: Any) -> QuerySpec:
    return msgspec.structs.replace(query, **fields)


def start(driver: DriverPeer, query: QuerySpec) -> tuple[int, QueryStarted]:
    run = next(_runs)
    driver.control.say(StartQuery(run=run, query=query))
    while True:
        message = driver.control.next()
        if isinstance(message, QueryStarted) and message.run == run:
            return run, message
        assert not (isinstance(message, QueryEnded) and message.run == run), message


async def written(query: QuerySpec, count: int) -> list[dict[str, Any]]:
    """The values of the sink's topic, once there are so many."""
    assert query.sink is not None
    servers, topic = query.sink.options["kafka.bootstrap.servers"], query.sink.topic

    async def read() -> list[dict[str, Any]]:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
        async with asyncio.timeout(100), consumer:
            return [json.loads((await consumer.getone()).value) for _ in range(count)]

    return await trio.to_thread.run_sync(lambda: asyncio.run(read()))


async def test_a_topic_is_served_while_the_driver_is_killed(
    server: ConnectServer, broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 2)
    to = await topics.create(f"{topic}-late")
    given = config(broker, topic, tmp_path, sink={"topic": to})
    given["spark"] = {"remote": server.remote, "checkpoint_dir": str(tmp_path / "state"), "nice": 0}
    async with gateway(tmp_path, given) as running, client(running.address, "late") as reader:
        with patience(running):
            await reader.subscribe()
            await topics.produce(topic, flights(0, 300))
            await reader.events(len(late(0, 300)))
            os.kill(driver_of(running), signal.SIGKILL)
            # The server goes on without a client; the next driver takes over.
            await topics.produce(topic, flights(300, 300))
            await reader.events(len(late(300, 300)))
            await running.logged("spark driver is ready", count=2)
            while not any(STOPPED in line.get("line", "") for line in running.log):
                await running.logged("driver says", count=1 + said(running.log))
            await topics.produce(topic, flights(600, 300))
            # A batch that comes twice must not count for one that is still to come.
            while len(set(values(reader))) < len(late(0, 900)):
                await reader.events(1)
        found = Counter(values(reader))
        assert sorted(found) == late(0, 900)
        # Only the batch in which it was stopped may be there twice; a second query would double the rest.
        assert {found[n] for n in late(600, 300)} == {1}
        assert reader.results[0]["value"]["delay"] == f"{reader.results[0]['value']['n'] % 60}.00"
        assert reader.results[0]["key"] in ({"carrier": "AA"}, {"carrier": "UA"})
        assert reader.results[0].keys() >= {"partition", "offset"}
        assert not reader.recording.faults
    # Once by the driver that took over, and when the gateway was stopped.
    await trio.to_thread.run_sync(server.process.said, r"Query late \[.*was stopped", 2)


def said(log: list[Any]) -> int:
    return sum(line["event"] == "driver says" for line in log)


async def test_rows_progress_and_where_it_goes_on(
    driver: DriverPeer, query: QuerySpec, topics: Topics
) -> None:
    run, started = start(driver, query)
    assert started.next_batch == 0
    progress = driver.control.expect(BatchProgress, run=run)
    assert (progress.batch, progress.input_rows, progress.bad) == (0, 101, 1)
    assert "offset 100" in progress.bad_sample
    assert driver.stop(run).error_kind is None
    run, again = start(driver, query)
    assert (again.query, again.next_batch) == (started.query, 1)
    assert query.streams["flights"].kafka is not None
    await topics.produce(query.source, [Record(b'{"a":100}')])
    found = await written(query, 101)
    assert [one["a"] for one in found] == list(range(101))
    assert found[7] == {"a": 7, "d": "7.00"}
    assert driver.stop(run).error_kind is None

    refused = driver.fail(next(_runs), altered(query, sql="SELECT a, 1 AS d FROM flights"))
    assert refused.error_kind == "checkpoint"
    assert "sql differ(s)" in refused.message
    counted = altered(
        query, sql="SELECT count(*) AS a FROM flights", key=[], output_mode="complete", fresh=True
    )
    run, fresh = start(driver, counted)
    assert fresh.next_batch == 0
    assert "begins afresh" in fresh.notes[0]
    assert driver.stop(run).error_kind is None


async def test_a_query_that_ends_by_itself(driver: DriverPeer, query: QuerySpec) -> None:
    run, _ = start(driver, altered(query, trigger=""))
    assert driver.ended(run) == QueryEnded(run=run)
    assert len(await written(query, 100)) == 100


@pytest.mark.parametrize(
    ("fields", "trouble", "words"),
    [
        ({"sql": "SELECT a, nope FROM flights"}, "query", "nope"),
        ({"sql": "SELECT a, count(*) FROM flights GROUP BY a"}, "query", "output mode"),
        ({"sql": "", "transform": "pipelines_of_tests:failing"}, "user", "ValueError: it is 50"),
        ({"sql": "SELECT 1 / (a - 5) AS a FROM flights"}, "user", "DIVIDE_BY_ZERO"),
    ],
)
async def test_a_query_that_is_wrong(
    driver: DriverPeer, query: QuerySpec, fields: dict[str, Any], trouble: str, words: str
) -> None:
    ended = driver.fail(next(_runs), altered(query, **fields))
    assert ended.error_kind == trouble, ended
    assert words in ended.message


async def test_a_bad_record_ends_the_query_if_it_must(driver: DriverPeer, query: QuerySpec) -> None:
    item = msgspec.structs.replace(query.streams["flights"], on_bad_record="fail")
    ended = driver.fail(next(_runs), altered(query, streams={"flights": item}))
    assert ended.error_kind == "bad_record"
    assert "input flights, partition 0 offset 100" in ended.message


async def test_what_check_and_explain_say(driver: DriverPeer, query: QuerySpec) -> None:
    wrong = driver.analyse(altered(query, sql="SELECT a,\n  nope\nFROM flights"))
    assert "nope" in wrong.error
    assert "Project" not in wrong.error
    assert wrong.line == 2
    item = msgspec.structs.replace(query.streams["flights"], schema="")
    right = driver.analyse(altered(query, streams={"flights": item}), explain=True)
    assert right.columns == [("a", "bigint"), ("d", "decimal(5,2)")]
    assert right.schemas == {"flights": "`a` bigint"}
    assert "== Analyzed Logical Plan ==" in right.plan
    assert "StreamingRelation" in right.plan
    assert right.notes == []
    grouped = driver.analyse(altered(query, sql="SELECT a, count(*) AS n FROM flights GROUP BY a"))
    assert "output mode" in grouped.error
    kept = altered(query, sql="SELECT a, count(*) AS n FROM flights GROUP BY a", output_mode="update")
    assert "state grows for ever" in driver.analyse(kept).notes[0]


async def test_a_server_that_was_away(server: ConnectServer, query: QuerySpec, topics: Topics) -> None:
    """Comes last: it restarts the server of the others."""
    peer = peer_of(server)
    try:
        run, first = start(peer, query)
        assert len(await written(query, 100)) == 100
        peer.control.expect(BatchProgress, run=run)
        server.process.end()
        ended = peer.ended(run)
        assert (ended.error_kind, "Spark Connect server" in ended.message) == ("unreachable", True), ended
        ended = peer.fail(next(_runs), query)
        assert (ended.error_kind, "Spark Connect server" in ended.message) == ("unreachable", True), ended
        server.restart()
        run, again = start(peer, query)
        assert again.query == first.query
        await topics.produce(query.source, [Record(b'{"a":100}')])
        assert (await written(query, 101))[-1]["a"] == 100
        assert peer.stop(run).error_kind is None
    finally:
        peer.close()
