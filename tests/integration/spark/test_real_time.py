"""Queries in real time and in micro-batches, through a whole gateway, while what runs them is killed: every
row comes once, in the order of its partition. With a real Kafka and a real Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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
from tests.integration.spark.held_gateway import (
    READY,
    WITHIN_TESTS,
    HeldGateway,
    failed,
    query,
    spark_section,
)
from tests.integration.spark.numbered_records import Made, Records, Row, batched, placed
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FLIGHTS, OTHERS, TWICE, ENDED = (f"real-time-{name}" for name in ("flights", "others", "twice", "ended"))
PARTITIONS: Final = {FLIGHTS: 2, OTHERS: 1, TWICE: 2, ENDED: 1}

REAL_TIME: Final = {"trigger": {"real_time": True, "checkpoint_interval": "5s"}}
BATCHES: Final = {"trigger": {"processing_time": "200 ms"}}
BY_ITSELF: Final = {"trigger": "auto"}

NAMES: Final = [tuple(line.split(",")) for line in made_of.NAMES.splitlines()[1:]]


@dataclass(frozen=True, slots=True)
class Stage:
    """What the tests of this module share. flights, others: what was produced; twice: for what reads it
    twice."""

    gateway: HeldGateway
    flights: Records
    others: Records
    twice: Records


def configuration(bootstrap: str, folder: Path) -> dict[str, object]:
    (folder / "names.csv").write_text(made_of.NAMES)
    names = {"format": "csv", "path": str(folder / "names.csv"), "schema": "k INT, name STRING"}
    names["options"] = {"header": True}  # type: ignore[assignment]
    others = {"source": OTHERS, "schema": "a INT", "start": "earliest"}
    again = {"source": TWICE, "schema": "a INT", "start": "earliest"}
    queries = [
        query("filtered", FLIGHTS, more={"sql": made_of.FILTERED, **REAL_TIME}),
        query("batches", FLIGHTS, more={"sql": made_of.FILTERED, **BATCHES}),
        query("exploded", FLIGHTS, more={"sql": made_of.EXPLODED, **REAL_TIME}),
        query("united", FLIGHTS, more={"sql": made_of.UNITED, "inputs": {"others": others}, **BY_ITSELF}),
        query("joined", FLIGHTS, more={"sql": made_of.JOINED, "inputs": {"names": names}, **BY_ITSELF}),
        query("twice", TWICE, more={"sql": made_of.TWICE, **BY_ITSELF}),
        query("two-inputs", TWICE, more={"sql": made_of.UNITED, "inputs": {"others": again}, **BY_ITSELF}),
        query("twice-only", TWICE, more={"sql": made_of.TWICE, **REAL_TIME}),
        query("ended", ENDED, more={"sql": made_of.FILTERED, "trigger": "available_now"}),
        {
            "type": "spark",
            "id": "tables",
            "inputs": {"names": names},
            "sql": "SELECT k, name FROM names ORDER BY k, name",
            "trigger": "available_now",
        },
    ]
    return kafka_config(
        bootstrap,
        "",
        **WITHIN_TESTS,
        spark=spark_section(folder, master="local[*]"),  # with room for real time
        window={"events": 1_000_000},  # however slow this machine is: nobody is to fall out of it
        sources=[*({"type": "kafka", "topic": topic} for topic in PARTITIONS), *queries],
    )


@pytest.fixture(scope="module")
def stage(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("real-time")
    topics = Topics(broker.bootstrap)

    async def prepare() -> list[Records]:
        found = [await made_of.new_records(topics, name, count) for name, count in PARTITIONS.items()]
        await found[-1].produce(100)
        return found

    flights, others, twice, _ = trio.run(prepare)
    config = configuration(broker.bootstrap, folder)
    gateway = HeldGateway(folder, config, expected_errors=("source failed",))
    gateway.start()
    try:
        yield Stage(gateway, flights, others, twice)
    finally:
        gateway.stop()


QUERIES: Final[Mapping[str, Made]] = {
    "filtered": made_of.filtered,
    "exploded": made_of.exploded,
    "batches": made_of.filtered,
    "joined": made_of.named,
}
"""Queries over flights alone, and the rows that they make of a record."""


def check(source_id: str, reader: Client, flights: Records) -> None:
    """That a reader has had every row once, in the order of its partition."""
    found = (batched if source_id == "batches" else placed)(reader.results, len(flights.numbers))
    expected = flights.rows(QUERIES[source_id])
    if source_id == "joined":  # two names of one record come in an order of Spark's choice
        assert by_record(found) == by_record(expected)
        found, expected = without_names(found), without_names(expected)
    assert found == expected
    assert (reader.recording.faults, reader.recording.missed) == ([], 0)


def by_record(rows: Mapping[int, Sequence[Row]]) -> list[tuple[int, int, Any]]:
    return sorted((partition, offset, x) for own in rows.values() for partition, offset, _, x in own)


def without_names(rows: Mapping[int, Sequence[Row]]) -> dict[int, list[Row]]:
    return {partition: [(p, o, row, None) for p, o, row, _ in own] for partition, own in rows.items()}


def union_of(flights: Records, others: Records) -> dict[str, dict[int, list[Row]]]:
    """What the union has, by input."""
    return {"flights": flights.rows(made_of.even), "others": others.rows(made_of.negative)}


def check_union(reader: Client, flights: Records, others: Records) -> None:
    """The same of the union: a place is one of either input."""
    for name, expected in union_of(flights, others).items():
        own = [one for one in reader.results if one["value"]["t"] == name]
        assert placed(own, len(expected), name) == expected
    assert (reader.recording.faults, reader.recording.missed) == ([], 0)


@asynccontextmanager
async def subscribed(stage: Stage, *sources: str) -> AsyncIterator[dict[str, Client]]:
    """Readers of sources, from now on."""
    for one in (stage.flights, stage.others, stage.twice):
        one.since = one.next
    address = stage.gateway.address
    async with AsyncExitStack() as stack:
        readers = {one: await stack.enter_async_context(client(address, one)) for one in sources}
        with stage.gateway.patience():
            for reader in readers.values():
                await reader.subscribe()
        yield readers


def both(stage: Stage) -> dict[str, dict[int, list[Row]]]:
    return union_of(stage.flights, stage.others)


async def have_all(stage: Stage, readers: Mapping[str, Client]) -> None:
    """Until each of them has as many rows as there are."""
    with stage.gateway.patience():
        for name, reader in readers.items():
            rows = [stage.flights.rows(QUERIES[name])] if name in QUERIES else [*both(stage).values()]
            await reader.have(sum(map(made_of.count, rows)))


@pytest.mark.parametrize("who", [pytest.param("java", marks=pytest.mark.extended), "driver"])
async def test_every_row_comes_once_though_spark_is_killed(stage: Stage, who: str) -> None:
    """At a random moment; `test_kills.py` does it again and again."""
    gateway, moment = stage.gateway, Random(who).randrange(500, 1_500)
    async with subscribed(stage, *QUERIES, "united") as readers:
        leading, *others = readers.values()
        async with made_of.produced_all_the_time(stage.flights, stage.others), made_of.reading(*others):
            with gateway.patience():
                await leading.events(moment)
                ready = len(gateway.lines(READY))
                os.kill(gateway.driver() if who == "driver" else gateway.java(), signal.SIGKILL)
                await gateway.logged(READY, count=ready + 1)
                await leading.events(1_000)
        await have_all(stage, readers)
    for name in QUERIES:
        check(name, readers[name], stage.flights)
    check_union(readers["united"], stage.flights, stage.others)
    for reader in readers.values():
        assert (reader.troubles[0], reader.troubles[-1]) == ("Spark is started again", "")


@pytest.mark.parametrize("source_id", ["exploded", "united"])
async def test_a_client_goes_on_behind_any_event(stage: Stage, source_id: str) -> None:
    """Also within a record, and among several topics: what comes next is what had come next."""
    async with subscribed(stage, source_id) as readers:
        reader = readers[source_id]
        await stage.flights.produce(60)
        await stage.others.produce(10)
        await have_all(stage, readers)
    if source_id == "united":
        check_union(reader, stage.flights, stage.others)
        assert set(reader.opened["positions"]) == {"flights/0", "flights/1", "others/0"}
    else:
        check(source_id, reader, stage.flights)
    for had, positions in enumerate(made_of.after(reader.opened["positions"], reader.results), start=1):
        begin: dict[str, Any] = {"from": {"positions": positions}}
        async with client(stage.gateway.address, source_id) as again:
            with stage.gateway.patience():
                opened = await again.subscribe(**begin)
                await again.have(len(reader.results) - had)
        assert opened["positions"] == positions
        assert again.results == reader.results[had:]


async def test_what_ends_by_itself_ends(stage: Stage) -> None:
    """Neither tables alone nor `available_now` have anything of real time."""
    for source_id, expected in (
        ("tables", [{"k": int(k), "name": name} for k, name in sorted(NAMES)]),
        ("ended", [a for a in range(100) if a % 3]),
    ):
        async with client(stage.gateway.address, source_id) as reader:
            with stage.gateway.patience():
                await reader.subscribe(**{"from": "earliest"})
                closed = await reader.until_closed()
        assert closed["reason"] == "ended"
        found = [one["value"] for one in reader.results]
        assert (found if source_id == "tables" else [value["x"] for value in found]) == expected
        assert [(one["batch"], one["row"]) for one in reader.results] == [(0, n) for n in range(len(found))]
        assert all("partition" not in one for one in reader.results)


async def test_a_query_that_reads_an_input_twice_runs_in_batches_and_says_why(stage: Stage) -> None:
    """Rows of both branches would have the same place."""
    line = await stage.gateway.logged("query starts", source="twice")
    assert line["note"] == "it runs in micro-batches: it reads an input twice"
    await failed(stage.gateway, "twice-only", "the query cannot run in real time: it reads an input twice")
    async with subscribed(stage, "twice") as readers:
        reader = readers["twice"]
        assert set(reader.opened["positions"]) == {"batch", "row"}
        await stage.twice.produce(100)
        rows = [stage.twice.rows(made) for made in (made_of.itself, made_of.negative)]
        with stage.gateway.patience():
            await reader.have(sum(map(made_of.count, rows)))
    found = [(one["value"]["p"], one["value"]["o"], one["value"]["x"]) for one in reader.results]
    assert sorted(found) == sorted(place for one in rows for place in by_record(one))
    assert all("batch" in one and not {"partition", "offset"} & set(one) for one in reader.results)


async def test_two_inputs_of_one_topic_are_two(stage: Stage) -> None:
    async with subscribed(stage, "two-inputs") as readers:
        reader = readers["two-inputs"]
        await stage.twice.produce(100)
        with stage.gateway.patience():
            await reader.have(sum(map(made_of.count, union_of(stage.twice, stage.twice).values())))
    check_union(reader, stage.twice, stage.twice)
    assert set(reader.opened["positions"]) == {"flights/0", "flights/1", "others/0", "others/1"}
