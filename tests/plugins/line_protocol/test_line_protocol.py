"""A protocol of a third party: it is served and configured like those that come with the gateway.

Whatever is shown here, `kiwi_lines` is the only file that knows the protocol.
"""

from __future__ import annotations

import ast
import gc
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import trio

from kiwi_gw.api import (
    Action,
    Credential,
    HeadCredential,
    Identity,
    Password,
    Refusal,
    SourceInfo,
    Token,
    hookimpl,
)
from kiwi_gw.config import LoadedConfig, diff, json_schema, load, show
from kiwi_gw.core.round_budget import SHARED_ROUNDS
from kiwi_gw.dialect_api import DialectType, Document, WebSocketRoute
from kiwi_gw.errors import ConfigError, PluginError
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.config_reference import tables
from tests.edge.test_left_over import garbage
from tests.edge.wire import TEXT, Client, Over, connect, frame, upgrade
from tests.plugins.line_protocol import kiwi_lines

__all__ = ["garbage"]  # a fixture

CONFIG = """\
plugins: [scripted, lines, guard]
lines: {login_ms: LOGIN_MS}
sources:
  - {type: scripted, id: news, lines: {prefix: N}}
  - {type: scripted, id: ticks}
  - {type: scripted, id: hidden}
"""


class Guard:
    """Knows ann, by her password or her token, and bob, who gets a token; hides a source from them."""

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | Refusal:
        match credential:
            case Password("ann", "s3cret"):
                return Identity("ann")
            case Password("bob", "hush"):
                return Identity("bob", frozenset({"r", "b"}), issued_token="bobs-token")
            case Token("bobs-token"):
                return Identity("bob", frozenset({"r", "b"}))
            case HeadCredential() if credential.header("authorization") == "Bearer anns":
                return Identity("ann")
            case HeadCredential() if credential.header("authorization") is None:
                return Refusal("no_token", "not known here")
        return Refusal("invalid_token", "not known here")

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> Refusal | None:
        hidden = source is not None and (
            source.id == "hidden" or (source.id == "ticks" and identity.name == "bob")
        )
        return Refusal("forbidden", "no") if hidden else None


@asynccontextmanager
async def running(login_ms: int = 5_000) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    sources = ScriptedSources()
    plugins = {"scripted": sources, "lines": kiwi_lines, "guard": Guard()}
    async with open_gateway(CONFIG.replace("LOGIN_MS", str(login_ms)), plugins=plugins) as gateway:
        with trio.fail_after(20):
            yield gateway, sources


async def say(client: Client, *lines: str) -> None:
    await client.send(b"".join(frame(TEXT, line.encode()) for line in lines))


async def hear(client: Client) -> str:
    return (await client.frame()).payload.decode()


# --- over WebSocket ----------------------------------------------------------------------------


async def test_a_conversation() -> None:
    async with running() as (gateway, sources), connect(gateway, "/lines/bob%20x/ws") as client:
        await say(client, "SUB news")
        assert await hear(client) == "-SUB news not_logged_in"
        await say(client, "LOGIN ann wrong")
        assert await hear(client) == "-LOGIN invalid_token"
        await say(client, "LOGIN ann s3cret")
        assert await hear(client) == "+LOGIN ann@bob x"
        await say(client, "SUB news", "SUB hidden", "SUB none")
        assert [await hear(client) for _ in range(3)] == [
            "+SUB news",
            "-SUB hidden unknown_source",
            "-SUB none unknown_source",
        ]
        await sources["news"].publish([b"one", b"two"])
        assert [await hear(client), await hear(client)] == ["N 0 one", "N 1 two"]
        await say(client, "CREDIT ticks 1")
        assert await hear(client) == "+SUB ticks"
        await sources["ticks"].publish([b"a", b"b"])
        assert await hear(client) == "ticks> 0 a"
        await say(client, "CREDIT ticks 5")
        assert [await hear(client), await hear(client)] == ["+CREDIT ticks 5", "ticks> 1 b"]
        await say(client, "UNSUB news")
        assert await hear(client) == "+UNSUB news"
        (connection,) = gateway.gateway.connections
        assert (connection.dialect, connection.identity.name) == ("lines", "ann")
        await say(client, "what?")
        with pytest.raises(Over) as over:
            await hear(client)
        assert (over.value.code, over.value.reason) == (1008, "no such line")


async def test_what_comes_behind_a_login_is_read_when_that_is_over() -> None:
    """All in one packet with the handshake: the gateway has read it, and does not look at it."""
    async with running() as (gateway, _):
        early = b"".join(frame(TEXT, line) for line in (b"LOGIN ann s3cret", b"SUB news", b"SUB ticks"))
        async with await gateway.connect() as stream:
            client = Client(stream)
            await client.handshake("/lines/bob/ws", early=early)
            assert [await hear(client) for _ in range(3)] == ["+LOGIN ann@bob", "+SUB news", "+SUB ticks"]


async def test_a_client_that_has_logged_in_leaves_no_cycle(garbage: list[object]) -> None:
    async def come_and_go(gateway: GatewayUnderTest) -> None:
        async with connect(gateway, "/lines/bob/ws") as client:
            await say(client, "LOGIN ann s3cret", "SUB news")
            assert [await hear(client), await hear(client)] == ["+LOGIN ann@bob", "+SUB news"]
        while gateway.gateway.connections:
            await trio.lowlevel.checkpoint()

    async with running(login_ms=1_000) as (gateway, _):
        await come_and_go(gateway)  # what is made once, is
        gc.collect()
        garbage.clear()
        await come_and_go(gateway)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        gc.collect()
        assert not [item for item in garbage if type(item).__module__.startswith(("kiwi", "tests"))]


async def test_who_does_not_log_in_is_closed() -> None:
    async with running(login_ms=50) as (gateway, _), connect(gateway, "/lines/bob/ws") as client:
        with pytest.raises(Over) as over:
            await hear(client)
        assert (over.value.code, over.value.reason) == (4401, "auth_timeout")


async def test_it_has_a_size_and_a_subprotocol_of_its_own() -> None:
    async with running() as (gateway, _):
        stream = await gateway.connect()
        async with stream:
            asked = upgrade("/lines/bob/ws", [("Sec-WebSocket-Protocol", "other, lines")])
            status, headers, _ = await Client(stream).request(asked)
            assert (status, headers["sec-websocket-protocol"]) == (101, "lines")
        async with connect(gateway, "/lines/bob/ws") as client:
            await say(client, "x" * 1_025)
            with pytest.raises(Over) as over:
                await hear(client)
            assert over.value.code == 1009


async def test_other_protocols_ask_for_credentials_in_the_head_as_before() -> None:
    async with running() as (gateway, _):
        for path, headers, status in (
            ("/kiwi", [], 401),
            ("/kiwi", [("Authorization", "Bearer anns")], 101),
            ("/lines/ws", [("Authorization", "Bearer anns")], 404),
        ):
            async with await gateway.connect() as stream:
                assert (await Client(stream).request(upgrade(path, headers)))[0] == status


# --- over HTTP ---------------------------------------------------------------------------------


async def ask(
    gateway: GatewayUnderTest, path: str, headers: Mapping[str, str], method: str = "GET", body: bytes = b""
) -> tuple[int, str]:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {gateway.address}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    async with await gateway.connect() as stream:
        lines += [f"Content-Length: {len(body)}"] if body else []
        await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
        data = b""
        async for piece in stream:
            data += piece
    head, _, answer = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), answer.decode()


ANNS = {"Authorization": "Bearer anns"}


@pytest.mark.parametrize(
    ("path", "headers", "method", "answer"),
    [
        ("/lines/sources/news", ANNS, "GET", (200, '{"reader":"ann","prefix":"N"}\n')),
        ("/lines/sources/%74icks?x", ANNS, "GET", (200, '{"reader":"ann","prefix":"ticks>"}\n')),
        ("/lines/sources/news?times=2", ANNS, "GET", (200, '{"reader":"ann","prefix":"NN"}\n')),
        ("/lines/sources/news?times=0", ANNS, "GET", (400, "times must be an integer from 1 to 9\n")),
        ("/lines/sources/news?times=", ANNS, "GET", (400, "times must be an integer from 1 to 9\n")),
        ("/lines/sources/news", ANNS, "HEAD", (200, "")),
        ("/lines/sources/hidden", ANNS, "GET", (404, "no source has this id\n")),
        ("/lines/sources/news", {}, "GET", (401, "no_token: not known here\n")),
        ("/lines/sources/news", ANNS, "POST", (405, "this path does not take that method\n")),
        ("/lines/sources/news", {**ANNS, "Content-Length": "70000"}, "GET", None),
        ("/lines/bob/ws", ANNS, "GET", (426, "connect with a WebSocket client\n")),
    ],
)
async def test_requests(
    path: str, headers: dict[str, str], method: str, answer: tuple[int, str] | None
) -> None:
    async with running() as (gateway, _):
        if answer is not None:
            assert await ask(gateway, path, headers, method) == answer
            return
        body = b"x" * 70_000
        async with await gateway.connect() as stream:
            await stream.send_all(
                f"GET {path} HTTP/1.1\r\nHost: {gateway.address}\r\nAuthorization: Bearer anns\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b'{"prefix":"x>"}', (200, '{"reader":"ann","prefix":"x>x>"}\n')),
        (b'{"prefix":""}', (400, "prefix must be a string of 1 to 9 characters\n")),
        (b"{}", (400, "prefix must be a string of 1 to 9 characters\n")),
        (b"[]", (400, "Expected `object`, got `array`\n")),
        (b"{", (400, "the body is not JSON\n")),
        (b"\xff", (400, "the body is not JSON\n")),
        (b'{"more":' + b"[" * 900, (400, "the body is not JSON\n")),
        (b'{"prefix":"' + b"x" * 1_024 + b'"}', (413, "the body is larger than 1024 bytes\n")),
    ],
)
async def test_bodies_are_of_the_declared_type(body: bytes, answer: tuple[int, str]) -> None:
    async with running() as (gateway, _):
        assert await ask(gateway, "/lines/sources/news/prefix?times=2", ANNS, "POST", body) == answer


async def test_what_can_be_asked_is_described() -> None:
    async with running() as (gateway, _):
        status, text = await ask(gateway, "/openapi.json", {})
    assert status == 200
    document = json.loads(text)
    assert document["openapi"] == "3.1.0"
    assert {"/livez", "/readyz", "/lines/sources/{source}"} < document["paths"].keys()
    shown = document["paths"]["/lines/sources/{source}"]["get"]
    assert shown["summary"] == "Say how the lines of a source begin, to those who may read it."
    assert [(each["name"], each["in"], each["required"]) for each in shown["parameters"]] == [
        ("source", "path", True),
        ("times", "query", False),
    ]
    assert shown["parameters"][1]["schema"]["maximum"] == 9
    posted = document["paths"]["/lines/sources/{source}/prefix"]["post"]["requestBody"]
    reference = posted["content"]["application/json"]["schema"]["$ref"]
    assert reference == "#/components/schemas/Renaming"
    schemas = document["components"]["schemas"]
    assert schemas["Renaming"]["properties"]["prefix"]["maxLength"] == 9
    assert {"Shown", "Readiness"} <= schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_who_asks_over_http_has_part_in_the_rounds() -> None:
    async with running() as (gateway, _):
        budget = gateway.gateway._round_budget
        budget.number += SHARED_ROUNDS + 1
        assert not budget.is_shared()
        assert (await ask(gateway, "/lines/sources/news", ANNS))[0] == 200
        assert budget.is_shared()


async def test_a_page_of_another_origin_may_not_ask() -> None:
    async with running() as (gateway, _):
        status, text = await ask(
            gateway, "/lines/sources/news", {**ANNS, "Origin": "https://elsewhere.example"}
        )
        assert status == 403
        assert "Origin" in text


async def test_the_landing_page_shows_it() -> None:
    async with running() as (gateway, _):
        _, page = await ask(gateway, "/", {})
        assert f"<li>lines: <code>ws://{gateway.address}/lines/{{client}}/ws</code></li>" in page
        document = await ask(gateway, "/", {"Accept": "text/x-lines"})
        assert document == (200, f"LINES ws://{gateway.address}/lines/NAME/ws\n")


# --- its configuration -------------------------------------------------------------------------


def read(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> LoadedConfig:
    known = PluginManager()
    known.register(ScriptedSources(), "scripted")
    known.register(kiwi_lines, "lines")
    file = tmp_path / "kiwi.yml"
    file.write_text(text)
    return load(file, environ or {}, known)


BASE = """\
plugins: [scripted, lines]
lines:
  login_ms: 10s
sources:
  - type: scripted
    id: news
    lines:
      prefix: N
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("login_ms: 10s", "login_mss: 10s", "3: lines.login_mss: unknown key; did you mean 'login_ms'?"),
        ("login_ms: 10s", "login_ms: soon", "3: lines.login_ms: "),
        ("prefix: N", "prefix: N N", "8: sources[0].lines.prefix: "),
        ("prefix: N", "prefx: N", "8: sources[0].lines.prefx: unknown key; did you mean 'prefix'?"),
        (
            "    lines:\n      prefix: N",
            "    lines: 5",
            "7: sources[0].lines: must be a mapping, not the number 5",
        ),
        ("[scripted, lines]", "[scripted]", "2: lines: unknown key"),
    ],
)
def test_mistakes_have_their_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in BASE
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, BASE.replace(old, new))
    found = [str(item) for item in caught.value.problems]
    assert found[0].startswith(f"{tmp_path}/kiwi.yml:{problem}"), found


def test_what_it_says_is_there_with_its_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path, BASE).settings
    assert settings.dialects["lines"] == kiwi_lines.LinesSettings(login_ms=10_000)
    assert settings.sources["news"].blocks["lines"] == kiwi_lines.LinesSource(prefix="N")
    bare = read(tmp_path, "plugins: [scripted, lines]\nsources: [{type: scripted, id: news}]").settings
    assert bare.dialects["lines"] == kiwi_lines.LinesSettings()
    assert bare.sources["news"].blocks["lines"] == kiwi_lines.LinesSource()
    assert list(bare.dialects) == ["kiwi", "zetta", "lenses", "pulsar", "lines"]


def test_the_environment_sets_its_keys(tmp_path: Path) -> None:
    settings = read(tmp_path, BASE, {"KIWI_GW_LINES__LOGIN_MS": "7s"}).settings
    assert settings.dialects["lines"] == kiwi_lines.LinesSettings(login_ms=7_000)


def test_it_is_shown_and_described(tmp_path: Path) -> None:
    loaded = read(tmp_path, BASE)
    shown = show(loaded.settings)
    assert "\nlines:\n  enabled: true\n  login_ms: 10000\n" in shown
    assert "  lines:\n    prefix: N\n" in shown
    table = tables(json_schema(loaded.plugins), loaded.plugins)
    assert "| `lines.login_ms` | duration | `5s` | Time for a LOGIN. *(restart)* |" in table
    assert "### `lines` of a source\n\nWhat the events of this source are in the line protocol.\n" in table
    assert "| `sources[].lines.prefix` | text |" in table


def test_a_change_of_it_needs_a_restart_and_one_of_a_source_alters_that(tmp_path: Path) -> None:
    old = read(tmp_path, BASE)
    new = read(tmp_path, BASE.replace("10s", "9s").replace("prefix: N", "prefix: M"))
    change = diff(old.settings, new.settings, new.plugins.source_types())
    assert (change.restart_needed, change.live, change.altered) == (("lines.login_ms",), (), ("news",))


async def test_it_may_be_switched_off(tmp_path: Path) -> None:
    text = "plugins: [lines]\nlines: {enabled: false}"
    async with open_gateway(text, plugins={"lines": kiwi_lines}) as gateway:
        assert (await ask(gateway, "/lines/sources/news", {}))[0] == 404
        assert "lines" not in (await ask(gateway, "/", {}))[1]


# --- what does not fit -------------------------------------------------------------------------


class Taking:
    """A protocol on this path."""

    documents: Mapping[str, Document] = {}
    open_session = kiwi_lines.Lines.open_session

    def __init__(self, path: str) -> None:
        self.routes = [WebSocketRoute(path)]

    @hookimpl
    def dialect_types(self) -> Sequence[DialectType[kiwi_lines.LinesSettings]]:
        return [DialectType("taker", kiwi_lines.LinesSettings, lambda settings, context: self)]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/kiwi", "/kiwi is served by both kiwi and taker"),
        ("/a{b}", "'/a{b}' is not a path with whole segments as {parameters}"),
    ],
)
async def test_a_path_that_cannot_be_served_ends_the_start_in_words(path: str, why: str) -> None:
    words = re.escape(f"protocol 'taker' cannot be served: {why}")
    with pytest.RaisesGroup(pytest.RaisesExc(PluginError, match=words), flatten_subgroups=True):
        async with open_gateway("plugins: [taker]", plugins={"taker": Taking(path)}):
            pytest.fail("it has started")


def test_two_protocols_of_one_name() -> None:
    manager = PluginManager()
    manager.register(kiwi_lines, "lines")
    (kind,) = kiwi_lines.dialect_types()

    class Again:
        @hookimpl
        def dialect_types(self) -> Sequence[DialectType[kiwi_lines.LinesSettings]]:
            return [replace(kind, name="kiwi")]

    manager.register(Again(), "again")
    with pytest.raises(PluginError, match="plugins 'kiwi' and 'again' both provide the protocol 'kiwi'"):
        manager.dialect_types()


def test_it_uses_nothing_but_the_contract() -> None:
    tree = ast.parse(Path(kiwi_lines.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules if name and name.startswith("kiwi")} == {
        "kiwi_gw.api",
        "kiwi_gw.dialect_api",
    }
    names = [item.name for node in ast.walk(tree) if isinstance(node, ast.Import) for item in node.names]
    assert names == ["msgspec"]
