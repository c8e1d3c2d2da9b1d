"""Clients of a gateway that write to a real broker, and go on where they have committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.testing import GatewayUnderTest, open_gateway
from tests.edge.wire import TEXT, Client, connect, frame
from tests.plugins.line_protocol import kiwi_lines
from tests.plugins.line_protocol.test_line_protocol import hear, say
from tests.stalls import loop_time
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

NewTopic = Callable[[], str]
MANY = 8_000


@asynccontextmanager
async def serving(bootstrap: str, topic: str) -> AsyncIterator[GatewayUnderTest]:
    text = f"""\
plugins: [kafka, lines]
kafka: {{bootstrap_servers: "{bootstrap}"}}
sources:
  - {{type: kafka, id: news, topic: {topic}, publish: true, commit: true}}
"""
    async with open_gateway(text, plugins={"lines": kiwi_lines}) as gateway:
        yield gateway


@asynccontextmanager
async def client_of(gateway: GatewayUnderTest) -> AsyncIterator[Client]:
    async with connect(gateway, "/lines/ann/ws") as client:
        await say(client, "LOGIN ann any", "SUB news")
        assert [(await hear(client))[:4], await hear(client)] == ["+LOG", "+SUB news"]
        await say(client, "UNSUB news")
        assert await hear(client) == "+UNSUB news"
        yield client


async def test_it_goes_on_in_another_gateway_where_it_has_committed(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 1)
    group = f"group-{name}"
    with trio.fail_after(60):
        async with serving(broker.bootstrap, name) as gateway, client_of(gateway) as client:
            await say(client, *(f"PUT news {n} text {n}" for n in range(10)))
            assert [await hear(client) for _ in range(10)] == [f"+PUT {n} 0 {n}" for n in range(10)]
            await say(client, f"DONE news {group} 0 6", f"DONE news {group} 0 99")
            assert await hear(client) == f"+DONE news {group}"
            assert await hear(client) == f"-DONE news {group} partition 0 ends at 10, before 100"
        async with serving(broker.bootstrap, name) as gateway, client_of(gateway) as client:
            await say(client, f"RESUME news {group}")
            assert [await hear(client) for _ in range(4)] == [
                "+SUB news",
                *(f"news> {n} text {n}" for n in range(7, 10)),
            ]


async def test_a_pipeline_is_answered_in_order(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 4)
    async with (
        serving(broker.bootstrap, name) as gateway,
        client_of(gateway) as client,
        trio.open_nursery() as nursery,
    ):
        lines = b"".join(frame(TEXT, b"PUT news %d k%d:%d" % (n, n % 9, n)) for n in range(MANY))
        nursery.start_soon(client.send, lines)
        with trio.fail_after(60):
            answers = [(await hear(client)).split() for _ in range(MANY)]
    assert [answer[:2] for answer in answers] == [["+PUT", str(n)] for n in range(MANY)]
    for partition in {answer[2] for answer in answers}:
        offsets = [int(answer[3]) for answer in answers if answer[2] == partition]
        assert offsets == list(range(len(offsets)))


async def test_everything_is_answered_in_time_though_the_broker_is_dead(
    own_broker: Broker, new_topic: NewTopic
) -> None:
    name = await Topics(own_broker.bootstrap).create(new_topic(), 1)
    async with serving(own_broker.bootstrap, name) as gateway, client_of(gateway) as client:
        await say(client, "PUT news first x")
        assert await hear(client) == "+PUT first 0 0"
        own_broker.freeze()
        asked: dict[str, float] = {}
        took: dict[str, float] = {}

        async def ask() -> None:
            for number in range(40):
                asked[str(number)] = now()
                await say(client, f"PUT news {number} x")
                await trio.sleep(0.1)

        with loop_time() as now:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                with trio.fail_after(20):
                    for _ in range(40):
                        mark, number, *_ = (await hear(client)).split()
                        assert mark == "-PUT"
                        took[number] = now() - asked[number]
        assert max(took.values()) < 4.6
        own_broker.thaw()
