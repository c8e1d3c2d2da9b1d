"""The plain peer: what one would write instead of a gateway, with `websockets` and aiokafka on uvloop.

Every record is made into one JSON message, which `broadcast` writes to everyone. There are no credits, no
windows and no notices; a slow client's messages pile up in memory.

Settings: bootstrap, topic, partitions. Says `port` once it is positioned at the end of the topic.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

from benchmarks.workers import child
from benchmarks.workers.reading import reading

_MOST_RECORDS = 500


def message(topic: str, record: Any) -> str:
    """Return a record as the gateway's clients get it (Kiwi protocol, RESULT)."""
    return json.dumps(
        {
            "type": "RESULT",
            "data": {
                "sourceId": topic,
                "sourceType": "kafka",
                "key": record.key.decode(),
                "value": record.value.decode(),
                "payload": base64.b64encode(record.value).decode(),
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
            },
        },
        separators=(",", ":"),
    )


async def main() -> None:
    settings = child.settings()
    topic, subscribers = settings["topic"], set[ServerConnection]()

    async def serve_one(connection: ServerConnection) -> None:
        async for command in connection:
            if json.loads(command)["type"] == "SUBSCRIBE":
                await connection.send(json.dumps({"type": "SUBSCRIBE_OK"}, separators=(",", ":")))
                subscribers.add(connection)
        subscribers.discard(connection)

    async with (
        reading(settings["bootstrap"], topic, settings["partitions"]) as consumer,
        serve(serve_one, "127.0.0.1", 0) as server,
    ):
        child.say(port=next(iter(server.sockets)).getsockname()[1])
        while True:
            got = await consumer.getmany(timeout_ms=100, max_records=_MOST_RECORDS)
            for records in got.values():
                for record in records:
                    broadcast(subscribers, message(topic, record))
            await asyncio.sleep(0)  # a busy topic would leave the sockets no time


if __name__ == "__main__":
    uvloop.run(main())
