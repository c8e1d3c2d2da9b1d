"""What can be read from Kafka at all: aiokafka's `getmany` and nothing else.

Settings: bootstrap, topic, partitions, warm, total. Says `ready`, `warm`, `done` and `result`
as the load client does.
"""

from __future__ import annotations

import time
from typing import Any

import uvloop

from benchmarks.workers import child
from benchmarks.workers.reading import reading


async def main() -> None:
    settings = child.settings()
    async with reading(settings["bootstrap"], settings["topic"], settings["partitions"]) as consumer:
        child.say(ready=True)
        have = await _read(consumer, 0, settings["warm"])
        child.say(warm=child.now())
        begun = time.process_time()
        have = await _read(consumer, have, settings["total"])
        child.say(done=child.now(), cpu=time.process_time() - begun)
        wrong = [] if have == settings["total"] else [f"{have} records instead of {settings['total']}"]
        child.say(
            result={"faults": wrong, "control": {}, "bytes": 0, "events": have, "receives": 0, "received": 0}
        )


async def _read(consumer: Any, have: int, events: int) -> int:
    while have < events:
        got = await consumer.getmany(timeout_ms=1000)
        have += sum(map(len, got.values()))
    return have


if __name__ == "__main__":
    uvloop.run(main())
