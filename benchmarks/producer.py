"""The producer: all batches are made before the clock starts, so that it costs the run little.

Settings: bootstrap, topic, partitions, warm, total (records of the warm-up, and with those of the run), size,
batch_bytes (of one Kafka batch). Says `ready`; then sends the warm-up when told, says `sent`, and the run
when told again: `started` (the time before the first record), and `sent` when all are acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer

from benchmarks import child, records

Batches = list[list[Any]]
"""By partition."""


async def main() -> None:
    settings = child.settings()
    producer = AIOKafkaProducer(
        bootstrap_servers=settings["bootstrap"], max_batch_size=settings["batch_bytes"], acks=1
    )
    await producer.start()
    try:
        warm = _batches(producer, settings, 0, settings["warm"])
        run = _batches(producer, settings, settings["warm"], settings["total"])
        child.say(ready=True)
        await asyncio.to_thread(child.wait_word)
        await _send(producer, settings["topic"], warm)
        child.say(sent=child.now())
        await asyncio.to_thread(child.wait_word)
        child.say(started=child.now())
        await _send(producer, settings["topic"], run)
        child.say(sent=child.now())
        await asyncio.to_thread(child.wait_word)
    finally:
        await producer.stop()


def _batches(producer: AIOKafkaProducer, settings: dict[str, Any], first: int, stop: int) -> Batches:
    partitions, size = settings["partitions"], settings["size"]
    found: Batches = []
    for partition in range(partitions):
        key, mine = records.key(partition), []
        batch = producer.create_batch()
        for number in records.numbers(partition, partitions, first, stop):
            value = records.value(number, size)
            if batch.append(key=key, value=value, timestamp=None) is None:
                mine.append(batch)
                batch = producer.create_batch()
                batch.append(key=key, value=value, timestamp=None)
        if batch.record_count():
            mine.append(batch)
        found.append(mine)
    return found


async def _send(producer: AIOKafkaProducer, topic: str, batches: Batches) -> None:
    async def one(partition: int) -> None:
        # The client takes a partition's next batch when the one before it is on its way.
        sent = [await producer.send_batch(batch, topic, partition=partition) for batch in batches[partition]]
        await asyncio.gather(*sent)

    await asyncio.gather(*map(one, range(len(batches))))


if __name__ == "__main__":
    asyncio.run(main())
