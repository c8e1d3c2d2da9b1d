"""A protocol of a third party whose clients write records, and commit how far they have come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from tests.edge.wire import TEXT, connect, frame
from tests.plugins.line_protocol import kiwi_lines
from tests.plugins.line_protocol.test_line_protocol import hear, say

CONFIG = """\
plugins: [scripted, lines]
sources:
  - {type: scripted, id: news}
"""
MANY = 5_000


@asynccontextmanager
async def writable() -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    sources = ScriptedSources(writable=True)
    plugins = {"scripted": sources, "lines": kiwi_lines}
    async with open_gateway(CONFIG, plugins=plugins) as gateway:
        with trio.fail_after(20):
            yield gateway, sources["news"]


async def test_a_conversation() -> None:
    async with writable() as (gateway, script), connect(gateway, "/lines/ann/ws") as client:
        await say(client, "LOGIN ann any", "PUT news 1 a text", "PUT none 2 x", "PUT news 3 key:value")
        assert [await hear(client) for _ in range(4)] == [
            "+LOGIN anonymous@ann",
            "+PUT 1 0 0",
            "-PUT 2 no source has this id",
            "+PUT 3 0 1",
        ]
        await say(client, "DONE news us 0 0")
        assert await hear(client) == "+DONE news us"
        assert script.groups == {"us": {0: (1, "")}}
        await say(client, "RESUME news us")
        assert [await hear(client), await hear(client)] == ["+SUB news", "news> 1 value"]


@pytest.mark.cost
async def test_thousands_at_once_are_answered_in_order() -> None:
    async with (
        writable() as (gateway, _),
        connect(gateway, "/lines/ann/ws") as client,
        trio.open_nursery() as nursery,
    ):
        await say(client, "LOGIN ann any")
        await hear(client)
        lines = b"".join(frame(TEXT, b"PUT news %d x" % number) for number in range(MANY))
        nursery.start_soon(client.send, lines)
        answers = [await hear(client) for _ in range(MANY)]
    assert answers == [f"+PUT {number} 0 {number}" for number in range(MANY)]


@pytest.mark.slow
async def test_a_client_that_reads_no_answers_is_not_read() -> None:
    async with writable() as (gateway, script), connect(gateway, "/lines/ann/ws") as client:
        await say(client, "LOGIN ann any")
        await hear(client)
        lines = b"".join(frame(TEXT, b"PUT news %d %s" % (n, b"x" * 900)) for n in range(60_000))
        with trio.move_on_after(2) as scope:
            await client.stream.send_all(lines)
        assert scope.cancelled_caught, "all of it was taken"
        (connection,) = gateway.gateway.connections
        assert connection.writes is not None
        assert script.positions[0] < 60_000
