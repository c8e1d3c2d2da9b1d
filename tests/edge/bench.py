"""A gateway with two scripted sources, to which the tests of the Kiwi protocol speak by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import (
    TEXT,
    connect,
    frame,
)


class Bench:
    """A gateway with two scripted sources, `a` and `b`."""

    def __init__(self, gateway: GatewayUnderTest, sources: ScriptedSources) -> None:
        self.gateway = gateway
        self.sources = sources

    def connect(self, path: str = "/") -> Any:
        return connect(self.gateway, path)


@asynccontextmanager
async def running(
    limits: dict[str, int] | None = None,
    *,
    server: dict[str, object] | None = None,
    subscriber: dict[str, int] | None = None,
    envelope: str = "flat",
    unknown_members: str = "refuse",
    address: str = "127.0.0.1:0",
    hold: bool = False,
) -> AsyncIterator[Bench]:
    """hold: source `a` does not start before it is released."""
    sources = ScriptedSources()
    if hold:
        sources["a"].hold()
    config = {
        "plugins": ["scripted"],
        "server": {**(server or {}), "limits": limits or {}},
        "subscriber": subscriber or {},
        "kiwi": {"envelope": envelope, "unknown_members": unknown_members},
        "sources": [{"type": "scripted", "id": "a"}, {"type": "scripted", "id": "b"}],
    }
    plugins = {"scripted": sources}
    async with open_gateway(json.dumps(config), plugins=plugins, address=address) as gateway:
        with trio.fail_after(20):
            yield Bench(gateway, sources)


def text(message: object) -> bytes:
    return frame(TEXT, json.dumps(message).encode())


def error(reply: dict[str, Any], kind: str) -> str:
    assert reply["type"] == f"{kind}_ERROR", reply
    words: str = reply["data"]["error"]
    return words
