"""The peer of producing over HTTP: what somebody writes who needs it, with aiohttp and aiokafka.

One `send` for each record, `acks=all`, an idempotent producer. Settings: bootstrap, topic. Says `port`, and
serves until its stdin ends.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web
from aiokafka import AIOKafkaProducer

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

    app = web.Application()
    app.router.add_post("/topics/public/default/{topic}", produce)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    child.say(port=runner.addresses[0][1])
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    await producer.stop()


if __name__ == "__main__":
    asyncio.run(main())
