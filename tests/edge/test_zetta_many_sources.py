"""A topic of Zetta that means many sources, over a real gateway: what is published behind its ack arrives."""

from __future__ import annotations

import json

import trio

from tests.edge.hooks_bench import running
from tests.edge.test_queries import numbers
from tests.edge.wire import TEXT, connect, frame

SOURCES = 100
CLIENTS = 5
SUBSCRIBE = frame(TEXT, json.dumps({"type": "subscribe", "topic": "**"}).encode())


async def test_an_event_of_the_last_source_reaches_everybody_who_was_acknowledged() -> None:
    sources = [{"type": "scripted", "id": f"s{number}"} for number in range(SOURCES)]
    async with running(sources=sources) as (gateway, scripted), trio.open_nursery() as nursery:
        acknowledged = [trio.Event() for _ in range(CLIENTS)]
        got: list[int] = []

        async def client(mine: trio.Event) -> None:
            async with connect(gateway, "/events") as socket:
                await socket.send(SUBSCRIBE)
                assert (await socket.message())["type"] == "subscribe-ack"
                mine.set()
                event = await socket.message()
                assert event["type"] == "event"
                got.append(event["data"]["n"])

        for event in acknowledged:
            nursery.start_soon(client, event)
        for event in acknowledged:
            await event.wait()
        await scripted[f"s{SOURCES - 1}"].publish(numbers(1))
        while len(got) < CLIENTS:
            await trio.lowlevel.checkpoint()
        assert len(set(got)) == 1
