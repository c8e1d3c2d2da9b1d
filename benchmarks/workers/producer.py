"""The producer. Settings: bootstrap, topics, partitions, warm and total (records of the warm-up, and with
those of the run, of each topic), first (the number of the first record of the warm-up), steady (so many of
the warm-up come at the rate), size, batch_bytes (of one Kafka batch), rate (records per second of each topic;
0: as fast as the broker takes them).

As fast as possible: all batches are made before the clock starts, so that it costs the run little. At a rate:
every record says when it was made, which is right before it is given to the client, and what is due is made
every few milliseconds; how late that was is reported.

Says `ready`. On a word it sends the warm-up and says `sent`. On the next word it sends the run, and says
`started` (the time before the first record) and `sent` when all are acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

from aiokafka import AIOKafkaProducer

from benchmarks import records
from benchmarks.latency import Delays
from benchmarks.workers import child

_TICK = 0.002
_LARGE_TICK = 0.005
"""Seconds between two looks at what is due; the large one from so many records per second on: (below)"""
_LARGE_RATE = 2_000

Place = tuple[str, int]
"""Topic and partition."""


async def main() -> None:
    settings = child.settings()
    producer = AIOKafkaProducer(
        bootstrap_servers=settings["bootstrap"], max_batch_size=settings["batch_bytes"], acks=1
    )
    await producer.start()
    try:
        first, warm, total = settings["first"], settings["warm"], settings["total"]
        steady = warm - settings["steady"]
        made = _batches(producer, settings, first, steady)
        run = {} if settings["rate"] else _batches(producer, settings, warm, total)
        child.say(ready=True)
        await asyncio.to_thread(child.wait_word)
        await _send(producer, made)
        if steady < warm:
            await _send_at_a_rate(producer, settings, steady, warm)
        child.say(sent=child.now())
        await asyncio.to_thread(child.wait_word)
        child.say(started=child.now())
        late: dict[str, float] = {}
        if settings["rate"]:
            late = await _send_at_a_rate(producer, settings, warm, total)
        else:
            await _send(producer, run)
        child.say(sent=child.now(), late=late)
        await asyncio.to_thread(child.wait_word)
    finally:
        await producer.stop()


def _batches(
    producer: AIOKafkaProducer, settings: dict[str, Any], first: int, stop: int
) -> dict[Place, list[Any]]:
    partitions, size = settings["partitions"], settings["size"]
    found: dict[Place, list[Any]] = {}
    for topic in settings["topics"]:
        for partition in range(partitions):
            key = records.key(partition)
            mine = found[topic, partition] = []
            batch = producer.create_batch()
            for number in records.numbers(partition, partitions, first, stop):
                value = records.value(number, size)
                if batch.append(key=key, value=value, timestamp=None) is None:
                    mine.append(batch)
                    batch = producer.create_batch()
                    batch.append(key=key, value=value, timestamp=None)
            if batch.record_count():
                mine.append(batch)
    return found


async def _send(producer: AIOKafkaProducer, batches: dict[Place, list[Any]]) -> None:
    async def one(place: Place) -> None:
        # The client takes a partition's next batch when the one before it is on its way.
        topic, partition = place
        sent = [await producer.send_batch(batch, topic, partition=partition) for batch in batches[place]]
        await asyncio.gather(*sent)

    await asyncio.gather(*map(one, batches))


async def _send_at_a_rate(
    producer: AIOKafkaProducer, settings: dict[str, Any], first: int, stop: int
) -> dict[str, float]:
    """Return how late records were made, as percentiles in ms. Raises what the broker refused."""
    topics, partitions, size = settings["topics"], settings["partitions"], settings["size"]
    rate = settings["rate"] * len(topics)
    tick = _LARGE_TICK if rate >= _LARGE_RATE else _TICK
    late, on_their_way = Delays(), set[asyncio.Future[Any]]()
    failed: list[BaseException] = []

    def landed(future: asyncio.Future[Any]) -> None:
        on_their_way.discard(future)
        error = future.exception()
        if error is not None:
            failed.append(error)

    begun = time.monotonic_ns()
    sent, count = 0, (stop - first) * len(topics)
    while sent < count and not failed:
        now = time.monotonic_ns()
        due = min(count, int((now - begun) * rate / 1e9) + 1)
        late.add(now, (begun + int(index * 1e9 / rate) for index in range(sent, due)))
        batches: dict[Place, list[Any]] = defaultdict(lambda: [producer.create_batch()])
        for index in range(sent, due):
            number = first + index // len(topics)
            partition = number % partitions
            value = records.value(number, size, time.monotonic_ns())
            place = topics[index % len(topics)], partition
            key = records.key(partition)
            if batches[place][-1].append(key=key, value=value, timestamp=None) is None:
                batches[place].append(producer.create_batch())  # it is late: more is due than fits into one
                batches[place][-1].append(key=key, value=value, timestamp=None)
        sent = due
        for (topic, partition), made in batches.items():
            for batch in made:
                future = await producer.send_batch(batch, topic, partition=partition)
                on_their_way.add(future)
                future.add_done_callback(landed)
        next_due = begun / 1e9 + sent / rate
        await asyncio.sleep(max(next_due, now / 1e9 + tick) - time.monotonic())
    await asyncio.gather(*on_their_way)
    if failed:
        raise failed[0]
    return late.said()


if __name__ == "__main__":
    asyncio.run(main())
