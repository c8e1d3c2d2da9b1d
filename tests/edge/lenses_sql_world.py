"""A gateway with SQL v2, users of every kind, an engine, and a plugin that masks what some of them read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kiwi_gw.api import Credential, HeadCredential, Identity, Interceptor, Record, SourceInfo, Token, hookimpl
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.test_engine_queries import Engine
from tests.edge.test_lenses_sql import PATH, Message, rest
from tests.edge.wire import TEXT, Client, connect, frame

CONFIG = """
plugins: [scripted, mine, engine]
server: {limits: {compiling_percent: 0, connection_compiling_percent: 0}}
lenses: {enabled: true, login_timeout_ms: LOGIN, sql: {queries: QUERIES}}
sources:
  - {type: scripted, id: orders, lenses: {topic: Orders}}
  - {type: scripted, id: secrets}
tokens:
  roles:
    nobody: {sources: [], actions: [subscribe, replay]}
    listener: {sources: [orders], actions: [subscribe]}
    historian: {sources: [orders], actions: [replay]}
    reader: {sources: [orders], actions: [subscribe, replay]}
  static:
    - {name: nobody, token: the-token-of-nobody, roles: [nobody]}
    - {name: listener, token: the-token-of-listener, roles: [listener]}
    - {name: historian, token: the-token-of-historian, roles: [historian]}
    - {name: reader, token: the-token-of-reader, roles: [reader]}
    - {name: guest, token: the-token-of-guest, roles: [reader]}
    - {name: both, token: the-token-of-both, roles: [listener, historian]}
"""

RECORDS = "SELECT * FROM Orders"
COUNT = "SELECT n, count(*) AS m FROM Orders GROUP BY n"


@dataclass
class Mine:
    """A plugin that masks what guests read of orders, and withholds some of it; and lets in who shows a token
    that expires. shared: whether all guests have the same interceptor."""

    expires_at: float = 0.0
    guests: set[str] = field(default_factory=set)

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | None:
        if isinstance(credential, HeadCredential):
            short = credential.header("authorization") == "Bearer short"
        else:
            short = isinstance(credential, Token) and credential.text == "short"
        return Identity("short", frozenset({"reader"}), expires_at=self.expires_at) if short else None

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        if identity.name not in self.guests or source.id != "orders":
            return None
        return Interceptor(mask, "mask")


def mask(record: Record) -> Record | None:
    value = record["value"]
    assert isinstance(value, bytes)
    if b"withheld" in value:
        return None
    return {**record, "value": value.replace(b"secret", b"***")}


@dataclass
class World:
    gateway: GatewayUnderTest
    sources: ScriptedSources
    mine: Mine
    engine: Engine

    async def executed(self, sql: str, who: str = "reader", **members: object) -> list[Message]:
        async with self.asking(sql, who, **members) as client:
            return await rest(client)

    @asynccontextmanager
    async def asking(self, sql: str, who: str = "reader", **members: object) -> AsyncIterator[Client]:
        shown = {"token": f"the-token-of-{who}", **members}
        async with connect(self.gateway, PATH) as client:
            await client.send(frame(TEXT, json.dumps({"sql": sql, **shown}).encode()))
            yield client

    async def reload(self, *changes: tuple[str, str]) -> None:
        text = self.gateway.file.read_text()
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        self.gateway.file.write_text(text)
        assert await self.gateway.reloader.reload()


@asynccontextmanager
async def world(*guests: str, login_ms: int = 5_000, queries: int = 64) -> AsyncIterator[World]:
    scripted, mine, engine = ScriptedSources(replayable=True), Mine(guests=set(guests)), Engine()
    plugins = {"scripted": scripted, "mine": mine, "engine": engine}
    config = CONFIG.replace("LOGIN", str(login_ms)).replace("QUERIES", str(queries))
    with trio.fail_after(30):
        async with open_gateway(config, plugins=plugins) as gateway:
            yield World(gateway, scripted, mine, engine)
