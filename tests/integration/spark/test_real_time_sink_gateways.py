"""A query that writes to a topic, in real time and in micro-batches by turns, while its gateway is killed:
its clients go on with the next one and miss nothing, and every row is in the topic once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import client
from tests.integration.gateway import gateway, kafka_config
from tests.integration.spark import numbered_records as made_of
from tests.integration.spark.following import Following
from tests.integration.spark.held_gateway import WITHIN_TESTS, query, spark_section
from tests.integration.spark.late_flights import patience
from tests.integration.spark.numbered_records import Row
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS: Final = 2
KEYED: Final = made_of.EXPLODED.replace("x FROM", "x, a % 7 AS k FROM")
FEW: Final = 1
"""Threads for partitions, with which the query runs in micro-batches."""

NewTopic = Callable[[], str]


def configuration(broker: Broker, topic: str, sink: str, folder: Path, threads: int) -> dict[str, object]:
    """With one query from a topic to another. threads: for partitions in real time."""
    keyed = {"sql": KEYED, "key": ["k"], "trigger": "auto", "sink": {"topic": sink}}
    return kafka_config(
        broker.bootstrap,
        topic,
        **WITHIN_TESTS,
        spark=spark_section(folder, master="local[*]", real_time_partitions=threads),
        window={"events": 1_000_000},  # however slow this machine is: nobody is to fall out of it
        sources=[{"type": "kafka", "topic": topic}, query("s", topic, more=keyed)],
    )


def rows_in(results: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, Any]]:
    """By their values, sorted: rows with different keys come in whatever order."""
    return sorted((one["value"]["p"], one["value"]["o"], one["value"]["x"]) for one in results)


def has(one: Following, events: int) -> bool:
    return one.events >= events


def all_of(rows: Mapping[int, Sequence[Row]]) -> list[tuple[int, int, Any]]:
    return sorted((p, o, x) for own in rows.values() for p, o, _, x in own)


@pytest.mark.parametrize(
    "threads",
    [
        [16, 16],
        pytest.param([16, FEW, 16], marks=pytest.mark.extended),
        pytest.param([FEW, 16, 16, 16, 16], marks=[pytest.mark.extended, pytest.mark.long]),
    ],
)
async def test_clients_go_on_though_the_gateway_is_killed(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path, threads: Sequence[int]
) -> None:
    """Also where the mode changes: rows have places in both."""
    records = await made_of.new_records(topics, new_topic(), PARTITIONS)
    records.uneven = True
    sink = await topics.create(new_topic(), 3)
    following = Following("s")
    rng = Random(str(threads))
    async with made_of.produced_all_the_time(records) as enough:
        for number, free in enumerate(threads):
            last = number == len(threads) - 1
            folder = tmp_path / str(number)
            folder.mkdir()
            given = configuration(broker, records.topic, sink, tmp_path, free)
            async with gateway(folder, given, killed=not last) as running, trio.open_nursery() as nursery:
                with patience(running):
                    await nursery.start(following.run, running.address)
                    if last:
                        await enough()
                        wanted = made_of.count(records.rows(made_of.exploded))
                        await following.until(partial(has, following, wanted))
                        async with client(running.address, "s") as whole:
                            await whole.subscribe(**{"from": "earliest"})
                            await whole.have(wanted)
                        nursery.cancel_scope.cancel()
                    else:
                        enough_now = following.events + rng.randrange(1_000, 4_000)
                        await following.until(partial(has, following, enough_now))
                        notes = [one["note"] for one in running.log if one["event"] == "query starts"]
                        assert ["micro-batches" in one for one in notes] == [True] * (free == FEW)
                        os.kill(running.pid, signal.SIGKILL)
    expected = all_of(records.rows(made_of.exploded))
    assert rows_in(following.results) == expected
    assert rows_in(whole.results) == expected
    assert sum((await topics.end_offsets(sink)).values()) == len(expected)
    assert following.wrong == []


@pytest.mark.extended
async def test_nothing_is_written_twice_though_the_broker_is_killed(
    own_broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """What was on its way to it is sent again: by the same run, or by the next one."""
    topics = Topics(own_broker.bootstrap)
    records = await made_of.new_records(topics, new_topic(), PARTITIONS)
    sink = await topics.create(new_topic(), 3)
    given = configuration(own_broker, records.topic, sink, tmp_path, 16)
    async with gateway(tmp_path, given) as running, client(running.address, "s") as reader:
        with patience(running):
            await reader.subscribe()
            await records.produce(50_000)
            expected = all_of(records.rows(made_of.exploded))
            await reader.events(1_000)
            await own_broker.kill()
            await own_broker.start()
            await reader.have(len(expected))
    assert rows_in(reader.results) == expected
    assert sum((await topics.end_offsets(sink)).values()) == len(expected)


@pytest.mark.extended
async def test_a_gateway_that_begins_too_soon_waits_until_the_other_one_is_gone(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Two that write with one checkpoint would write every row twice."""
    records = await made_of.new_records(topics, new_topic(), PARTITIONS)
    sink = await topics.create(new_topic(), 3)
    given = configuration(broker, records.topic, sink, tmp_path, 16)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(gateway(folders[0], given, killed=True))
        reader = await stack.enter_async_context(client(first.address, "s"))
        with patience(first):
            await reader.subscribe()
        second = await stack.enter_async_context(gateway(folders[1], given))
        with patience(second):
            line = await second.logged("query has ended and is started again")
            assert "another process writes the results of the query" in line["message"]
            await records.produce(1_000)
            await reader.events(100)
            os.kill(first.pid, signal.SIGKILL)
            reader = await stack.enter_async_context(client(second.address, "s"))
            await reader.subscribe(**{"from": "earliest"})
            await records.produce(1_000)
            expected = all_of(records.rows(made_of.exploded))
            await reader.have(len(expected))
    assert rows_in(reader.results) == expected
    assert sum((await topics.end_offsets(sink)).values()) == len(expected)
