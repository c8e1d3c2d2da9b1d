"""A gateway with plugins of a test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio
import trio.testing
from structlog.typing import EventDict

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import Client, upgrade


@asynccontextmanager
async def running(
    *plugins: object, extra: Mapping[str, object] | None = None, sources: Sequence[object] | None = None
) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    """A gateway with the scripted sources `a` and `b`, and plugins `p0`, `p1`, ..."""
    scripted = ScriptedSources()
    named = {"scripted": scripted, **{f"p{number}": plugin for number, plugin in enumerate(plugins)}}
    config = configuration(list(named), extra, sources)
    async with open_gateway(config, plugins=named) as gateway:
        with trio.fail_after(20):
            yield gateway, scripted


def configuration(
    plugins: Sequence[str], extra: Mapping[str, object] | None = None, sources: Sequence[object] | None = None
) -> str:
    scripted = [{"type": "scripted", "id": "a"}, {"type": "scripted", "id": "b"}]
    config = {"plugins": plugins, "sources": scripted if sources is None else sources, **(extra or {})}
    return json.dumps(config)


async def knock(
    gateway: GatewayUnderTest, path: str = "/", *headers: tuple[str, str]
) -> tuple[int, dict[str, str], bytes]:
    """The answer to a handshake."""
    stream = await gateway.connect()
    async with stream:
        return await Client(stream).request(upgrade(path, headers))


def tracebacks(lines: list[EventDict]) -> list[EventDict]:
    return [line for line in lines if line.get("exc_info")]
