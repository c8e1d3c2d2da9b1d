"""What goes wrong with queries, Spark and Kafka, and what then: real ones, through the whole gateway.

One gateway with many sources, a Kafka of its own that may be stopped, one Spark.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.integration.client import Client, client
from tests.integration.gateway import kafka_config
from tests.integration.held_broker import HeldBroker
from tests.integration.spark.held_gateway import (
    WITHIN_TESTS,
    HeldGateway,
    exactly,
    failed,
    in_group,
    numbers,
    query,
    spark_section,
    values,
)
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

MAX_RESTARTS = 2

WRONG = {
    "unparsable": ({"sql": "SELEC a FROM flights"}, "Syntax error"),
    "no-column": ({"sql": "SELECT nope FROM flights"}, "`nope` cannot be resolved"),
    "no-table": ({"sql": "SELECT a FROM trains"}, "`trains` cannot be found"),
    "no-function": ({"sql": "SELECT nope(a) AS a FROM flights"}, "`nope`"),
    "no-mode": ({"sql": "SELECT a, count(*) FROM flights GROUP BY a"}, "output mode"),
    "no-input": ({"transform": "pipelines_of_tests:unwise"}, "KeyError: 'trains'"),
}
"""Queries that can never work, by source id, and words of what is said about them."""

BAD = [*numbers(0, 10), Record(b"{nope"), Record(b'{"a":"no number"}'), *numbers(10, 10)]

GONE = ("trimmed", "recreated")
"""How records vanish that a query in micro-batches has not read. In real time it has: its next fetch waits in
the broker, which answers it at once."""

MODES: Mapping[str, Any] = {
    "": {},
    "-at-once": {"trigger": {"real_time": True, "checkpoint_interval": "5s"}},
}
"""What the ids of sources end with that run in micro-batches, and in real time."""

TOPICS = (
    "plain",
    "bad",
    "sometimes",
    "always",
    "memory",
    "emptied",
    *GONE,
    *(f"divided{one}" for one in MODES),
)

FINE = "SELECT a, CAST(a AS DECIMAL(8, 2)) / 100 AS part FROM flights WHERE a IS NOT NULL"

DIVIDING = "SELECT a, 100 / (a - 50) AS x FROM flights"

RAISING = "pipelines_of_tests:raising"

FAR_TOO_MUCH = 1_500_000_000
"""Bytes: more than the memory of the driver."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all tests here share. folder: where a test may put files."""

    gateway: HeldGateway
    held: HeldBroker
    topics: Topics
    folder: Path


def in_mode(mode: str, trigger: Mapping[str, object]) -> list[Any]:
    """Queries that run both in micro-batches and in real time."""
    return [
        query(f"fine{mode}", "plain", more={"sql": FINE, "key": ["a"], **trigger}),
        query(f"divides{mode}", f"divided{mode}", more={"sql": DIVIDING, **trigger}),
        *(
            query(f"bad-{how}{mode}", "bad", more=trigger, on_bad_record=how)
            for how in ("drop", "null", "fail")
        ),
    ]


def configuration(bootstrap: str, folder: Path) -> dict[str, object]:
    factor = {"format": "csv", "path": str(folder / "factor.csv"), "schema": "factor INT"}
    hungry = "SELECT a, length(repeat(s, factor)) AS size FROM flights CROSS JOIN factor"
    queries = [
        *(query(name, "plain", more=words) for name, (words, _) in WRONG.items()),
        *(query(f"raises-{how}", how, more={"transform": RAISING}) for how in ("sometimes", "always")),
        *(one for mode, trigger in MODES.items() for one in in_mode(mode, trigger)),
        *(
            query(f"{how}-{which}", how, fail_on_data_loss=which == "strict")
            for how in GONE
            for which in ("strict", "lenient")
        ),
        query("emptied-at-once", "emptied", more=MODES["-at-once"]),
        query("hungry", "memory", more={"sql": hungry, "inputs": {"factor": factor}}),
    ]
    return kafka_config(
        bootstrap,
        "",
        **WITHIN_TESTS,
        spark=spark_section(folder, master="local[*]", max_restarts=MAX_RESTARTS),
        sources=[*({"type": "kafka", "topic": topic} for topic in TOPICS), *queries],
    )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "factor.csv").write_text(f"{FAR_TOO_MUCH}\n")
    held = HeldBroker(folder / "broker", java_options=("-XX:TieredStopAtLevel=1",))
    held.start()
    try:
        topics = Topics(held.broker.bootstrap)

        async def prepare() -> None:
            for topic in TOPICS:
                await topics.create(topic)
            await topics.produce("plain", numbers(0, 100))
            await topics.produce("bad", BAD)

        trio.run(prepare)
        config = configuration(held.broker.bootstrap, folder)
        gateway = HeldGateway(folder, config, expected_errors=("source failed",))
        gateway.start()
        try:
            yield Setup(gateway, held, topics, folder)
        finally:
            driver = gateway.driver()
            gateway.stop()
        assert in_group(driver) == [], "no JVM outlives its gateway"
    finally:
        held.stop()


@pytest.mark.parametrize("source_id", WRONG)
async def test_a_query_that_is_wrong_fails(stage: Setup, source_id: str) -> None:
    await failed(stage.gateway, source_id, WRONG[source_id][1])


@pytest.mark.parametrize("mode", MODES)
async def test_the_others_run(stage: Setup, mode: str) -> None:
    async with client(stage.gateway.address, f"fine{mode}") as reader:
        with stage.gateway.patience():
            await reader.subscribe(**{"from": "earliest"})
            await reader.have(100)
    assert exactly(values(reader), range(100))
    assert (await stage.gateway.source(f"fine{mode}"))["state"] == "running"
    assert ("batch" in reader.results[0]) is (mode == "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("how", "nulls"), [("drop", 0), ("null", 2)])
async def test_bad_records_are_dropped_or_null_and_counted(
    stage: Setup, how: str, nulls: int, mode: str
) -> None:
    source_id = f"bad-{how}{mode}"
    async with client(stage.gateway.address, source_id) as reader:
        with stage.gateway.patience():
            await reader.subscribe(**{"from": "earliest"})
            await reader.have(20 + nulls)
    assert sorted(value for value in values(reader) if value is not None) == list(range(20))
    assert values(reader).count(None) == nulls
    line = await stage.gateway.logged("records could not be decoded", source=source_id)
    assert (line["count"], line["total"]) == (2, 2)
    assert line["sample"] == "input flights, partition 0 offset 10: {nope"


@pytest.mark.parametrize("mode", MODES)
async def test_bad_records_end_the_query_if_they_must(stage: Setup, mode: str) -> None:
    await failed(stage.gateway, f"bad-fail{mode}", "bad record: input flights, partition 0 offset 10")


async def test_a_function_that_raises_is_tried_again_from_the_checkpoint(stage: Setup) -> None:
    gateway, path = stage.gateway, stage.folder / "in-the-way"
    async with client(gateway.address, "raises-sometimes") as reader:
        with gateway.patience():
            await reader.subscribe()
            await stage.topics.produce("sometimes", numbers(0, 10))
            await reader.have(10)
            path.touch()
            await stage.topics.produce("sometimes", numbers(10, 10, str(path)))
            line = await gateway.logged("query has ended and is started again", source="raises-sometimes")
            path.unlink()
            await reader.have(20)
            await stage.topics.produce("sometimes", numbers(20, 10, str(path)))
            await reader.have(30)
    assert (line["trouble"], line["message"]) == ("user", f"ValueError: {path} is there")
    assert exactly(values(reader), range(30))
    assert reader.troubles == ["the query has failed and is started again", ""]
    assert (await gateway.source("raises-sometimes"))["state"] == "running"


async def test_a_function_that_always_raises_fails_the_source(stage: Setup) -> None:
    gateway, path = stage.gateway, stage.folder / "always-there"
    path.touch()
    async with client(gateway.address, "raises-always") as reader:
        with gateway.patience():
            await reader.subscribe()
            await stage.topics.produce("always", numbers(0, 10))
            await reader.have(10)
            await stage.topics.produce("always", numbers(10, 1, str(path)))
            closed = await reader.until_closed()
    why = f"the query failed {MAX_RESTARTS + 1} times in a row: ValueError: {path} is there"
    assert (closed["reason"], closed["message"]) == ("failed", why)
    assert exactly(values(reader), range(10)), "nothing of the checkpoint's past came again"
    tries = gateway.lines("query has ended and is started again", source="raises-always")
    # The first of them had brought a batch before it failed; the last was not tried again.
    assert [line["in_vain"] for line in tries] == [*range(MAX_RESTARTS + 1)]
    await failed(gateway, "raises-always", why)


@pytest.mark.parametrize("mode", MODES)
async def test_a_record_that_cannot_be_computed_fails_the_source(stage: Setup, mode: str) -> None:
    """Though others come before it each time, in real time: to subscribers they come once."""
    gateway, source_id, topic = stage.gateway, f"divides{mode}", f"divided{mode}"
    before = 10 if mode else 0
    async with client(gateway.address, source_id) as reader:
        with gateway.patience():
            await reader.subscribe()
            await stage.topics.produce(topic, numbers(0, 10))
            await reader.have(10)
            while "batch" not in (await gateway.source(source_id))["details"]:
                await trio.lowlevel.checkpoint()  # rows are there before their batch, or epoch, is over
            await stage.topics.produce(topic, [*numbers(10, before), *numbers(50, 1)])
            closed = await reader.until_closed()
    assert closed["reason"] == "failed"
    assert f"failed {MAX_RESTARTS + 1} times in a row: " in closed["message"]
    assert "DIVIDE_BY_ZERO" in closed["message"]
    assert values(reader) == list(range(10 + before))
    tries = gateway.lines("query has ended and is started again", source=source_id)
    assert [(line["trouble"], line["in_vain"]) for line in tries] == [
        ("user", number) for number in range(MAX_RESTARTS + 1)
    ]
    await failed(gateway, source_id, "DIVIDE_BY_ZERO")


def newest(log: Path) -> str:
    """The newest entry of a log in a checkpoint."""
    return max(log.glob("[0-9]*"), key=lambda one: int(one.name)).read_text()


@pytest.mark.parametrize("how", GONE)
async def test_offsets_that_are_gone(stage: Setup, how: str) -> None:
    gateway = stage.gateway
    strict_id, lenient_id = f"{how}-strict", f"{how}-lenient"
    async with (
        client(gateway.address, strict_id) as strict,
        client(gateway.address, lenient_id) as lenient,
    ):
        with gateway.patience():
            for reader in (strict, lenient):
                await reader.subscribe()
            await stage.topics.produce(how, numbers(0, 20))
            for reader in (strict, lenient):
                await reader.have(20)
            with gateway.frozen():  # so that Spark has not read what will be gone
                if how == "trimmed":
                    await stage.topics.produce(how, numbers(20, 20))
                    await stage.topics.trim(how, {0: 30})
                else:
                    await recreate(stage, how)
            closed = await strict.until_closed()
            if how == "recreated":  # what it finds there when it notices is behind its new start
                log = stage.folder / "state" / lenient_id / "0" / "offsets"
                while '{"0":5}' not in newest(log):  # noqa: ASYNC110  Spark tells nobody
                    await trio.sleep(0.05)
                await stage.topics.produce(how, numbers(30, 10))
            await lenient.have(30)
    assert closed["reason"] == "failed"
    assert "may have been" in closed["message"], "lost or missed"
    assert "fail_on_data_loss: false" in closed["message"], "how to go on without them"
    await failed(gateway, strict_id, "fail_on_data_loss: false")
    assert exactly(values(strict), range(20))
    assert exactly(values(lenient), range(20), range(30, 40))


async def test_a_topic_that_is_created_anew_fails_a_query_in_real_time(stage: Setup) -> None:
    gateway, source_id, topic = stage.gateway, "emptied-at-once", "emptied"
    async with client(gateway.address, source_id) as reader:
        with gateway.patience():
            await reader.subscribe()
            await stage.topics.produce(topic, numbers(0, 20))
            await reader.have(20)
            with gateway.frozen():
                await recreate(stage, topic)
            closed = await reader.until_closed()
    assert closed["reason"] == "failed"
    assert "fail_on_data_loss: false" in closed["message"], "how to go on without them"
    assert exactly(values(reader), range(20))


async def recreate(stage: Setup, topic: str) -> None:
    """Delete a topic, and create it anew with five records."""
    await stage.topics.delete(topic)
    await stage.topics.create(topic)
    await stage.topics.produce(topic, numbers(20, 5))


@asynccontextmanager
async def fine(stage: Setup) -> AsyncIterator[list[Client]]:
    """Who has subscribed to what runs in micro-batches, and in real time."""
    async with AsyncExitStack() as stack:
        address = stage.gateway.address
        readers = [await stack.enter_async_context(client(address, f"fine{mode}")) for mode in MODES]
        with stage.gateway.patience():
            for reader in readers:
                await reader.subscribe()
        yield readers


async def have(stage: Setup, readers: Sequence[Client], first: int, count: int, before: int) -> None:
    """Produce numbers, and wait until every reader has them. before: how many it has had."""
    await stage.topics.produce("plain", numbers(first, count))
    for reader in readers:
        await reader.have(before + count)


@pytest.mark.parametrize("who", ["driver", "java"])
async def test_who_is_killed_is_started_again_and_subscriptions_stay(stage: Setup, who: str) -> None:
    gateway, first = stage.gateway, {"driver": 1000, "java": 2000}[who]
    async with fine(stage) as readers:
        with gateway.patience():
            await have(stage, readers, first, 100, 0)
            driver = gateway.driver()
            assert in_group(driver)
            os.kill(driver if who == "driver" else gateway.java(), signal.SIGKILL)
            await have(stage, readers, first + 100, 100, 100)
    assert gateway.driver() != driver
    assert in_group(driver) == []
    for reader in readers:
        assert values(reader) == list(range(first, first + 200))
        event = reader.results[0]
        assert (event["sourceType"], event["key"]) == ("spark", {"a": event["value"]["a"]})
        assert event["value"]["part"].startswith(
            f"{event['value']['a'] // 100}.{event['value']['a'] % 100:02}"
        )
        assert reader.troubles == ["Spark is started again", ""]
        assert not reader.recording.faults


async def test_out_of_memory(stage: Setup) -> None:
    """The JVM ends, and is started again; once there is room, the batch that had none comes through."""
    gateway = stage.gateway
    async with client(gateway.address, "hungry") as reader, fine(stage) as others:
        with gateway.patience():
            await reader.subscribe()
            driver = gateway.driver()
            deaths = len(gateway.lines("spark driver is gone; it is started again"))
            await stage.topics.produce("memory", numbers(0, 1, "x"))
            await gateway.logged("spark driver is gone; it is started again", count=deaths + 1)
            (stage.folder / "factor.csv").write_text("3\n")
            await reader.have(1)
            await have(stage, others, 3000, 10, 0)
    said = [line["line"] for line in gateway.lines("driver says", pid=driver)]
    assert any("java.lang.OutOfMemoryError" in line for line in said), said[-20:]
    assert [result["value"]["size"] for result in reader.results] == [3]
    for other in others:  # all of them, or the next test has what is left
        assert exactly(values(other), range(3000, 3010))
        assert other.troubles == ["Spark is started again", ""]


async def test_kafka_away(stage: Setup) -> None:
    gateway = stage.gateway
    async with fine(stage) as readers:
        with gateway.patience():
            await have(stage, readers, 4000, 100, 0)
            await stage.held.do(stage.held.broker.stop)
            for mode in MODES:
                event: dict[str, Any] = {"source": f"fine{mode}", "trouble": "unreachable"}
                await gateway.logged("query has ended and is started again", **event)
            await stage.held.do(stage.held.broker.start)
            await have(stage, readers, 4100, 100, 100)
    for mode, reader in zip(MODES, readers, strict=True):
        assert values(reader) == list(range(4000, 4200))
        assert reader.troubles == ["the Kafka cluster does not answer", ""]
        assert not reader.recording.faults
        assert (await gateway.source(f"fine{mode}"))["state"] == "running"
