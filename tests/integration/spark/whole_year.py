"""All flights of 2013 in two topics: as they are, by scheduled departure, and their arrivals, by the time of
arrival; but a part of them is reported up to 24 days later, and comes then.

At the same fraction of the data the times of the partitions differ by up to 106 hours, as carriers are not
spread evenly over the year. So no record is 30 days behind another that was read before it, if all partitions
are read at the same pace.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

import msgspec
import trio
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from kiwi_demo.flights import Flight, read_flights
from tests.topics import Topics

PARTITIONS = 4

MOST_DAYS_LATE = 24
_DAY = 86_400

FLIGHTS_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP, sched_dep TIMESTAMP"
)
ARRIVALS_SCHEMA = (
    "carrier STRING, flight INT, origin STRING, date DATE, dest STRING, arr_delay INT, arrived TIMESTAMP"
)


class Departure(msgspec.Struct, frozen=True):
    """A record of the flights, as far as the models need it. date: where it left. at: when it should have
    left, in seconds since the epoch. delay: minutes."""

    carrier: str
    flight: int
    origin: str
    date: str
    tailnum: str | None
    delay: int | None
    at: int


class Arrival(msgspec.Struct, frozen=True):
    """A flight that arrived, `at` seconds since the epoch."""

    carrier: str
    flight: int
    origin: str
    date: str
    dest: str
    arr_delay: int | None
    at: int

    @property
    def value(self) -> bytes:
        """Its record."""
        columns = msgspec.structs.asdict(self)
        columns["arrived"] = datetime.fromtimestamp(columns.pop("at"), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return msgspec.json.encode(columns)


@dataclass(frozen=True, slots=True)
class Year:
    """By partition, in the order of their offsets from 0."""

    flights: list[list[Departure]]
    arrivals: list[list[Arrival]]


async def fill(topics: Topics, bootstrap: str, flights: str, arrivals: str, *, months: int) -> Year:
    """Makes the two topics and produces everything of the first months, in the partitions that Kafka's
    clients choose for the carrier of a flight and the destination of an arrival. Of the flights every seventh
    number is reported late, of the arrivals every eleventh."""
    await topics.create(flights, PARTITIONS)
    await topics.create(arrivals, PARTITIONS)
    return await trio.to_thread.run_sync(lambda: asyncio.run(_fill(bootstrap, flights, arrivals, months)))


async def _fill(bootstrap: str, flights: str, arrivals: str, months: int) -> Year:
    year = Year([[] for _ in range(PARTITIONS)], [[] for _ in range(PARTITIONS)])
    landed: list[Arrival] = []
    known = (_known(flight) for flight in read_flights() if _month(flight) <= months)

    def departing() -> Iterator[tuple[int, bytes, bytes]]:
        for departure, flight in _reported(known, every=7):
            number = _partition(departure.carrier)
            year.flights[number].append(departure)
            arrival = _arrival(departure, flight)
            if arrival is not None:
                landed.append(arrival)
            yield number, departure.carrier.encode(), flight.value

    def landing() -> Iterator[tuple[int, bytes, bytes]]:
        landed.sort(key=lambda arrival: arrival.at)
        for arrival, _ in _reported(((one, None) for one in landed), every=11):
            number = _partition(arrival.dest)
            year.arrivals[number].append(arrival)
            yield number, arrival.dest.encode(), arrival.value

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=524_288)
    await producer.start()
    try:
        await _produce(producer, flights, departing())
        await _produce(producer, arrivals, landing())
    finally:
        await producer.stop()
    return year


@cache
def _partition(key: str) -> int:
    numbers = list(range(PARTITIONS))
    chosen: int = DefaultPartitioner()(key.encode(), numbers, numbers)
    return chosen


_Report = TypeVar("_Report", Departure, Arrival)
_With = TypeVar("_With")


def _reported(happened: Iterator[tuple[_Report, _With]], every: int) -> Iterator[tuple[_Report, _With]]:
    """In the order in which it was reported what is given in the order in which it happened."""
    late: list[tuple[int, int, tuple[_Report, _With]]] = []
    for count, one in enumerate(happened):
        report = one[0]
        while late and late[0][0] <= report.at:
            yield heapq.heappop(late)[2]
        if report.flight % every == 0:
            days = report.flight % (MOST_DAYS_LATE + 1)
            heapq.heappush(late, (report.at + days * _DAY, count, one))
        else:
            yield one
    while late:
        yield heapq.heappop(late)[2]


def _month(flight: Flight) -> int:
    month = flight.columns["month"]
    assert isinstance(month, int)
    return month


def _known(flight: Flight) -> tuple[Departure, Flight]:
    of = flight.columns
    assert flight.departure is not None  # every flight of 2013 has a schedule
    date = f"{of['year']}-{of['month']:02}-{of['day']:02}"
    more = {"date": date, "delay": of["dep_delay"], "at": int(flight.departure)}
    return msgspec.convert(of | more, Departure), flight


def _arrival(departure: Departure, flight: Flight) -> Arrival | None:
    """The file has no dates of arrivals: a flight left `dep_delay` after the plan and was in the air for
    `air_time` (both in minutes); one without them did not arrive."""
    late, flown = departure.delay, flight.columns["air_time"]
    if late is None or not isinstance(flown, int):
        return None
    at = departure.at + 60 * (late + flown)
    return msgspec.convert(flight.columns | {"date": departure.date, "at": at}, Arrival)


async def _produce(
    producer: AIOKafkaProducer, topic: str, records: Iterator[tuple[int, bytes, bytes]]
) -> None:
    """records: partition, key and value."""
    batches = {number: producer.create_batch() for number in range(PARTITIONS)}
    sent = []
    for number, key, value in records:
        if batches[number].append(key=key, value=value, timestamp=None) is None:  # it is full
            sent.append(await producer.send_batch(batches[number], topic, partition=number))
            batches[number] = producer.create_batch()
            batches[number].append(key=key, value=value, timestamp=None)
    for number, batch in batches.items():
        sent.append(await producer.send_batch(batch, topic, partition=number))
    for one in sent:
        await one
