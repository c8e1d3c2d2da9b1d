"""The peer of producing and reading over HTTP: what somebody writes who needs it, with aiohttp and aiokafka.

One `send` for each record, `acks=all`, an idempotent producer; a consumer for each partition, which seeks.
Settings: bootstrap, topic. Says `port`, and serves until its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.workers import child


async def main() -> None:
    settings = child.settings()
    topic = settings["topic"]
    producer = AIOKafkaProducer(bootstrap_servers=settings["bootstrap"], enable_idempotence=True, acks="all")
    await producer.start()

    async def produce(request: web.Request) -> web.Response:
        asked = await request.json()
        sent = [
            await producer.send(topic, message["value"].encode(), key=message["key"].encode())
            for message in asked["messages"]
        ]
        placed = await asyncio.gather(*sent)
        ids = [
            {"partition": place.partition, "messageId": f"{place.offset}", "error_code": None, "error": None}
            for place in placed
        ]
        return web.json_response({"schema_version": None, "messageIds": ids})

    consumers: dict[int, AIOKafkaConsumer] = {}
    turns: dict[int, asyncio.Lock] = {}

    async def read(request: web.Request) -> web.Response:
        partition, most = int(request.match_info["partition"]), int(request.query["max_messages"])
        start = request.query["from"]
        place = TopicPartition(topic, partition)
        async with turns.setdefault(partition, asyncio.Lock()):
            if partition not in consumers:
                consumers[partition] = AIOKafkaConsumer(bootstrap_servers=settings["bootstrap"])
                await consumers[partition].start()
                consumers[partition].assign([place])
            consumer = consumers[partition]
            offset = 0 if start == "earliest" else int(start)
            if await consumer.position(place) != offset:
                consumer.seek(place, offset)
            found = (await consumer.getmany(place, timeout_ms=3_000, max_records=most)).get(place, [])
        messages = [
            {
                "messageId": f"{record.offset}",
                "key": record.key.decode(),
                "value": json.loads(record.value),
                "partition": partition,
                "properties": dict(record.headers),
                "eventTime": record.timestamp,
            }
            for record in found
        ]
        following = found[-1].offset + 1 if found else offset
        return web.json_response({"messages": messages, "next": f"{following}"})

    app = web.Application()
    app.router.add_post("/topics/public/default/{topic}", produce)
    app.router.add_get("/topics/public/default/{topic}/partitions/{partition}/messages", read)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    child.say(port=runner.addresses[0][1])
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    await producer.stop()
    for consumer in consumers.values():
        await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main())
