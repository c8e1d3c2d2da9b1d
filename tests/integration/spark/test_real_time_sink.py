"""Queries in real time that write to a topic, while what runs them is killed: every row is there once, for
clients of the gateway and for others. With a real Kafka and a real Spark."""

from __future__ import annotations

import base64
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import Client, client
from tests.integration.gateway import kafka_config
from tests.integration.spark import numbered_records as made_of
from tests.integration.spark.held_gateway import WITHIN_TESTS, HeldGateway, failed, query, spark_section
from tests.integration.spark.numbered_records import Made, Records
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FLIGHTS, OTHERS = "real-time-sink-flights", "real-time-sink-others"
REAL_TIME: Final = {"trigger": {"real_time": True, "checkpoint_interval": "5s"}}
KEYED: Final = made_of.FILTERED.replace("a AS x", "a AS x, a % 7 AS k")
SINKS: Final = {"keyed": 3, "exploded": 3, "united": 2, "too-large": 1, "nowhere": 0}
"""Sources with a sink, and how many partitions their topics have."""


def sink_of(source_id: str) -> str:
    return f"real-time-sink-{source_id}"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the tests of this module share. flights, others: what was produced."""

    gateway: HeldGateway
    topics: Topics
    flights: Records
    others: Records


def configuration(bootstrap: str, folder: Path) -> dict[str, object]:
    others = {"source": OTHERS, "schema": "a INT", "start": "earliest"}
    queries: dict[str, dict[str, Any]] = {
        "keyed": {"sql": KEYED, "key": ["k"]},
        "exploded": {"sql": made_of.EXPLODED},
        "united": {"sql": made_of.UNITED, "inputs": {"others": others}},
        "too-large": {"sql": "SELECT repeat('x', 2000000) AS x FROM flights"},
        "nowhere": {"sql": made_of.FILTERED},
    }
    return kafka_config(
        bootstrap,
        "",
        **WITHIN_TESTS,
        spark=spark_section(folder, master="local[*]"),  # with room for real time
        window={"events": 1_000_000},  # however slow this machine is: nobody is to fall out of it
        sources=[
            *({"type": "kafka", "topic": topic} for topic in (FLIGHTS, OTHERS)),
            {
                "type": "kafka",
                "id": "others-see",
                "topic": sink_of("exploded"),
                "fields": ["partition", "offset", "headers"],
            },
            *(
                query(name, FLIGHTS, more={**given, **REAL_TIME, "sink": {"topic": sink_of(name)}})
                for name, given in queries.items()
            ),
        ],
    )


@pytest.fixture(scope="module")
def stage(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("real-time-sink")
    topics = Topics(broker.bootstrap)

    async def prepare() -> list[Records]:
        for name, partitions in SINKS.items():
            if partitions:
                await topics.create(sink_of(name), partitions)
        return [await made_of.new_records(topics, name, count) for name, count in ((FLIGHTS, 2), (OTHERS, 1))]

    flights, others = trio.run(prepare)
    flights.uneven = True
    config = configuration(broker.bootstrap, folder)
    gateway = HeldGateway(folder, config, expected_errors=("source failed",))
    gateway.start()
    try:
        yield Stage(gateway, topics, flights, others)
    finally:
        gateway.stop()


QUERIES: Final[Mapping[str, Made]] = {
    "keyed": made_of.filtered,
    "exploded": made_of.exploded,
    "nowhere": made_of.filtered,
}
"""Queries over flights alone, and the rows that they make of a record."""


def expected(stage: Stage, source_id: str) -> dict[str, list[tuple[int, int, Any]]]:
    """What a source has, by the partition of the input: partition and offset of the record, and `x`."""
    if source_id == "united":
        parts = {"flights": stage.flights.rows(made_of.even), "others": stage.others.rows(made_of.negative)}
    else:
        parts = {"": stage.flights.rows(QUERIES[source_id])}
    return {
        f"{name}{partition}": [(p, o, x) for p, o, _, x in rows]
        for name, own in parts.items()
        for partition, rows in own.items()
    }


def found(results: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, int, Any]]]:
    """The same of events, in the order in which they came."""
    rows: dict[str, list[tuple[int, int, Any]]] = {}
    for one in results:
        value = one["value"]
        rows.setdefault(f"{value.get('t', '')}{value['p']}", []).append((value["p"], value["o"], value["x"]))
    return rows


def check(stage: Stage, source_id: str, reader: Client) -> None:
    """That a reader has had every row once, in the order of its partition: of the topic, where rows have
    keys, and of the input, where they have none."""
    assert (reader.recording.faults, reader.recording.missed) == ([], 0)
    wanted, there = expected(stage, source_id), found(reader.results)
    if source_id != "keyed":
        assert there == wanted
        return
    assert {name: sorted(rows) for name, rows in there.items()} == wanted
    for partition in range(SINKS["keyed"]):
        own = found([one for one in reader.results if one["partition"] == partition])
        assert own == {name: sorted(rows) for name, rows in own.items()}
    assert all(one["key"] == {"k": one["value"]["k"]} for one in reader.results)


async def have_all(stage: Stage, readers: Mapping[str, Client]) -> None:
    """Until each of them has as many rows as there are."""
    with stage.gateway.patience():
        for name, reader in readers.items():
            await reader.have(sum(map(len, expected(stage, name).values())))


async def have_proved_themselves(stage: Stage, sources: Iterable[str]) -> None:
    """Until each of them has done a batch since. Drivers that die before it count against a query, those of
    the test before, too: after a few it would be given up."""

    async def batch(name: str) -> int:
        return int((await stage.gateway.source(name))["details"].get("batch", -1))

    with stage.gateway.patience():
        for name, before in [(name, await batch(name)) for name in sources]:
            while await batch(name) == before:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def subscribed(stage: Stage, *sources: str) -> AsyncIterator[dict[str, Client]]:
    """Readers of sources, from now on."""
    for one in (stage.flights, stage.others):
        one.since = one.next
    async with AsyncExitStack() as stack:
        readers = {
            one: await stack.enter_async_context(client(stage.gateway.address, one)) for one in sources
        }
        with stage.gateway.patience():
            for reader in readers.values():
                await reader.subscribe()
        yield readers


def place_in(headers: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """What the only header says: input, partition, offset, row."""
    ((key, value),) = ((one["key"], one["value"]) for one in headers)
    assert key == "kiwi-place"
    return tuple(base64.b64decode(value).decode().split(":")[1:])


async def test_rows_say_what_they_come_from(stage: Stage) -> None:
    """In a header, which who else reads the topic sees."""
    async with subscribed(stage, "exploded", "others-see", "keyed", "united") as readers:
        await stage.flights.produce(100)
        for name in ("exploded", "others-see"):
            with stage.gateway.patience():
                await readers[name].have(made_of.count(stage.flights.rows(made_of.exploded)))
        check(stage, "exploded", readers["exploded"])
        # Or their rows would come to those who subscribe next.
        await have_all(stage, {name: readers[name] for name in ("keyed", "united")})
    said = Counter(place_in(one["headers"]) for one in readers["others-see"].results)
    rows = (row for own in stage.flights.rows(made_of.exploded).values() for row in own)
    assert said == Counter(("flights", str(p), str(o), str(number)) for p, o, number, _ in rows)


@pytest.mark.parametrize(
    ("who", "times"),
    [
        ("java", 2),
        pytest.param("driver", 1, marks=pytest.mark.extended),
        pytest.param("java", 3, marks=[pytest.mark.extended, pytest.mark.long]),
        pytest.param("driver", 3, marks=[pytest.mark.extended, pytest.mark.long]),
    ],
)
async def test_every_row_is_there_once_though_spark_is_killed(stage: Stage, who: str, times: int) -> None:
    """At random moments: before a first checkpoint, between two of them, and while queries start."""
    gateway, rng = stage.gateway, Random(f"{who} {times}")
    # Two in a row that die at the start make every query a suspect; more would have one given up.
    moments = [0 if number % 3 == 1 else rng.randrange(500, 1_500) for number in range(times)]
    async with subscribed(stage, "keyed", "exploded", "united") as readers:
        leading, *others = readers.values()
        async with made_of.produced_all_the_time(stage.flights, stage.others), made_of.reading(*others):
            await have_proved_themselves(stage, readers)
            for moment in moments:
                with gateway.patience():
                    await leading.events(moment)
                    ready = len(gateway.lines("spark driver is ready"))
                    os.kill(gateway.driver() if who == "driver" else gateway.java(), signal.SIGKILL)
                    await gateway.logged("spark driver is ready", count=ready + 1)
            with gateway.patience():
                await leading.events(1_000)
        await have_all(stage, readers)
    for name, reader in readers.items():
        check(stage, name, reader)
        assert reader.troubles[0] == "Spark is started again"
        assert reader.troubles[-1] == ""


async def test_a_row_that_kafka_does_not_take_ends_its_query_for_good(stage: Stage) -> None:
    """With its size, and at once: not with the next row or checkpoint."""
    await stage.flights.produce(1)
    await failed(stage.gateway, "too-large", "RecordTooLargeException: The message is 2000")


@pytest.mark.extended
async def test_a_topic_that_is_not_there_is_waited_for(stage: Stage) -> None:
    """And has every row then, once. It takes a minute until Kafka's client says that there is none."""
    await stage.flights.produce(2)
    again = "query has ended and is started again"
    line = await stage.gateway.logged(again, source="nowhere", trouble="unreachable")
    assert "UnknownTopicOrPartition" in line["message"]
    await stage.topics.create(sink_of("nowhere"), 2)
    stage.flights.since = 0
    async with client(stage.gateway.address, "nowhere") as reader:
        with stage.gateway.patience():
            await reader.subscribe(**{"from": "earliest"})
            await stage.flights.produce(10)
            await reader.have(sum(map(len, expected(stage, "nowhere").values())))
    check(stage, "nowhere", reader)
