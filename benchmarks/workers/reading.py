"""A plain aiokafka consumer of a whole topic, with no group, from its end on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition


@asynccontextmanager
async def reading(bootstrap: str, topic: str, partitions: int) -> AsyncIterator[Any]:
    """Yield the consumer, once it stands at the end of every partition."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        consumer.assign(places)
        await consumer.seek_to_end(*places)
        for place in places:
            await consumer.position(place)
        yield consumer
    finally:
        await consumer.stop()
