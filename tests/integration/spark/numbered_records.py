"""Numbered records that are produced all the time, and the rows that queries make of them: every row says
itself which record it comes from, so that what a client was sent can be compared with what there was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from tests.integration.client import Client
from tests.topics import Record, Topics

Row = tuple[int, int, int, Any]
"""Partition and offset of the record, the row's number among those of the record, and what else it says."""

Made = Callable[[int], Sequence[Any]]
"""The rows that a query makes of the record with a number, in their order."""

FILTERED = "SELECT _partition AS p, _offset AS o, a AS x FROM flights WHERE a % 3 <> 0"
EXPLODED = (
    "SELECT _partition AS p, _offset AS o, x FROM flights LATERAL VIEW explode(sequence(1, a % 4 + 1)) t AS x"
    " WHERE a % 5 <> 0"
)
UNITED = (
    "SELECT 'flights' AS t, _partition AS p, _offset AS o, a AS x FROM flights WHERE a % 2 = 0 "
    "UNION ALL SELECT 'others' AS t, _partition AS p, _offset AS o, -a AS x FROM others"
)
JOINED = "SELECT _partition AS p, _offset AS o, name AS x FROM flights JOIN names ON a % 5 = k"
NAMES = "k,name\n0,zero\n1,one\n1,uno\n3,three\n"
TWICE = (
    "SELECT _partition AS p, _offset AS o, a AS x FROM flights "
    "UNION ALL SELECT _partition AS p, _offset AS o, -a AS x FROM flights"
)


def filtered(a: int) -> Sequence[int]:
    return [a] if a % 3 else []


def exploded(a: int) -> Sequence[int]:
    return range(1, a % 4 + 2) if a % 5 else []


def even(a: int) -> Sequence[int]:
    return [] if a % 2 else [a]


def itself(a: int) -> Sequence[int]:
    return [a]


def negative(a: int) -> Sequence[int]:
    return [-a]


def named(a: int) -> Sequence[str]:
    """In whatever order: a test sorts them."""
    return {0: ["zero"], 1: ["one", "uno"], 3: ["three"]}.get(a % 5, [])


@dataclass(slots=True)
class Records:
    """What was produced to a topic: by partition, the numbers of its records in the order of their offsets.
    since: the number from which on a test looks at them. uneven: whether the first
    partition has most of them, and the last one the others."""

    topics: Topics
    topic: str
    numbers: Mapping[int, list[int]]
    next: int = 0
    since: int = 0
    uneven: bool = False

    async def produce(self, count: int) -> None:
        """More records, spread over the partitions."""
        numbers = range(self.next, self.next + count)
        self.next += count
        records = [
            Record(json.dumps({"a": a, "s": f"record {a}"}).encode(), partition=self._partition(a))
            for a in numbers
        ]
        for a, (partition, offset) in zip(
            numbers, await self.topics.produce(self.topic, records), strict=True
        ):
            assert offset == len(self.numbers[partition])
            self.numbers[partition].append(a)

    def _partition(self, a: int) -> int:
        if not self.uneven:
            return a % len(self.numbers)
        return 0 if a % 4 else len(self.numbers) - 1

    def rows(self, made: Made) -> dict[int, list[Row]]:
        """By partition, the rows that a query makes of them."""
        return {
            partition: [
                (partition, offset, row, x)
                for offset, a in enumerate(numbers)
                if a >= self.since
                for row, x in enumerate(made(a))
            ]
            for partition, numbers in self.numbers.items()
        }


async def new_records(topics: Topics, topic: str, partitions: int) -> Records:
    """A new topic."""
    await topics.create(topic, partitions)
    return Records(topics, topic, {partition: [] for partition in range(partitions)})


@asynccontextmanager
async def produced_all_the_time(
    *records: Records, pause: float = 0
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """While the block runs records are produced to all of them, and at its end some more. Yields what ends
    that before. pause: seconds between ten records and the next."""
    over, done = trio.Event(), trio.Event()

    async def produce(one: Records) -> None:
        while not over.is_set():
            await one.produce(10)
            await trio.sleep(pause)
        await one.produce(10)

    async def enough() -> None:
        over.set()
        await done.wait()

    async with trio.open_nursery() as outer:
        outer.start_soon(_run, [partial(produce, one) for one in records], done)
        yield enough
        await enough()


async def _run(works: Sequence[Callable[[], Awaitable[None]]], done: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        for work in works:
            nursery.start_soon(work)
    done.set()


@asynccontextmanager
async def reading(*readers: Client) -> AsyncIterator[None]:
    """While the block runs they read what comes."""
    async with trio.open_nursery() as nursery:
        for one in readers:
            nursery.start_soon(one.read_all)
        yield
        nursery.cancel_scope.cancel()


def placed(results: Sequence[Mapping[str, Any]], partitions: int, of_input: str = "") -> dict[int, list[Row]]:
    """By partition, the rows of a query in real time, as they came. Each says itself where it comes from.
    of_input: which of several inputs they are of."""
    found: dict[int, list[Row]] = {partition: [] for partition in range(partitions)}
    for one in results:
        value = one["value"]
        name = f"{of_input}/{value['p']}" if of_input else value["p"]
        assert (one["partition"], one["offset"], "batch" in one) == (name, value["o"], False)
        found[value["p"]].append((value["p"], one["offset"], one["row"], value["x"]))
    return found


def batched(results: Sequence[Mapping[str, Any]], partitions: int) -> dict[int, list[Row]]:
    """The same of a query in micro-batches, whose rows have other places: these are told by `value` alone.
    Their numbers are in order, without a hole."""
    found: dict[int, list[Row]] = {partition: [] for partition in range(partitions)}
    before = (-1, 0)
    for one in results:
        value, place = one["value"], (one["batch"], one["row"])
        assert "partition" not in one
        assert "offset" not in one
        assert place == (before[0], before[1] + 1) or (place[0] > before[0] and place[1] == 0)
        before = place
        same = found[value["p"]]
        row = same[-1][2] + 1 if same and same[-1][1] == value["o"] else 0
        same.append((value["p"], value["o"], row, value["x"]))
    return found


def count(rows: Mapping[int, Sequence[Row]]) -> int:
    """How many rows there are."""
    return sum(map(len, rows.values()))


def after(positions: dict[str, Any], results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The positions of a client that has had these events, after each of them: of records (of Kafka itself),
    or of rows."""
    here = dict(positions)
    for one in results:
        behind = [one["offset"], one["row"] + 1] if "row" in one else one["offset"] + 1
        here[str(one["partition"])] = behind
        yield dict(here)
