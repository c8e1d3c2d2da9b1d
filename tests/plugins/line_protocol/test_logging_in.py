"""Logging in, in the connection and over HTTP, as a protocol of a third party has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.testing import GatewayUnderTest, open_gateway
from tests.edge.wire import Client, Over, connect, upgrade
from tests.plugins.line_protocol import kiwi_lines
from tests.plugins.line_protocol.test_line_protocol import hear, running, say

# --- in the connection -------------------------------------------------------------------------

BEARER = ("Authorization", "Bearer anns")


@asynccontextmanager
async def logged_in(gateway: GatewayUnderTest, line: str = "LOGIN ann s3cret") -> AsyncIterator[Client]:
    async with connect(gateway, "/lines/bob/ws") as client:
        await say(client, line)
        assert (await hear(client)).startswith("+LOGIN")
        yield client


async def test_a_password_yields_a_token_which_lets_in_elsewhere_and_is_kept_by_nobody() -> None:
    async with running() as (gateway, _), connect(gateway, "/lines/x/ws") as client:
        await say(client, "LOGIN bob hush")
        assert await hear(client) == "+LOGIN bob@x bobs-token"
        async with connect(gateway, "/lines/y/ws") as other:
            await say(other, "TOKEN nobodys", "TOKEN bobs-token", "SUB news")
            assert [await hear(other) for _ in range(3)] == [
                "-LOGIN invalid_token",
                "+LOGIN bob@y",
                "+SUB news",
            ]
            assert {each.identity.issued_token for each in gateway.gateway.connections} == {None}
            assert "bobs-token" not in repr([each.identity for each in gateway.gateway.connections])


async def test_a_head_with_credentials_counts_at_once() -> None:
    async with running() as (gateway, _), connect(gateway, "/lines/x/ws", headers=[BEARER]) as client:
        await say(client, "SUB news")
        assert await hear(client) == "+SUB news"
        (connection,) = gateway.gateway.connections
        assert connection.identity.name == "ann"
        assert connection.access.login_seconds is None, "nobody waits for a LOGIN"


@pytest.mark.parametrize(
    ("headers", "status"),
    [([BEARER], 101), ([], 101), ([("Authorization", "Bearer wrong")], 401), ([("Cookie", "a=b")], 101)],
)
async def test_right_none_and_wrong_credentials_in_the_head(
    headers: Sequence[tuple[str, str]], status: int
) -> None:
    async with running() as (gateway, _), await gateway.connect() as stream:
        assert (await Client(stream).request(upgrade("/lines/x/ws", headers)))[0] == status


async def test_a_wrong_login_changes_nothing_and_another_valid_one_is_who_it_is_from_then_on() -> None:
    async with running() as (gateway, sources), logged_in(gateway) as client:
        (connection,) = gateway.gateway.connections
        await say(client, "SUB news", "SUB ticks", "LOGIN bob wrong", "TOKEN no")
        assert [await hear(client) for _ in range(4)] == [
            "+SUB news",
            "+SUB ticks",
            "-LOGIN invalid_token",
            "-LOGIN invalid_token",
        ]
        assert connection.identity.name == "ann"
        await sources["ticks"].publish([b"for ann"])
        assert await hear(client) == "ticks> 0 for ann"
        await say(client, "LOGIN bob hush")
        assert [await hear(client) for _ in range(2)] == [
            "+LOGIN bob@bob bobs-token",
            "!END ticks unauthorized",
        ]
        assert connection.identity.name == "bob"
        await sources["ticks"].publish([b"not for bob"])
        await sources["news"].publish([b"for all"])
        assert await hear(client) == "N 0 for all"


async def test_where_no_plugin_authenticates_every_login_succeeds_as_anonymous() -> None:
    async with (
        open_gateway("plugins: [lines]", plugins={"lines": kiwi_lines}) as gateway,
        connect(gateway, "/lines/x/ws") as client,
    ):
        with trio.fail_after(20):
            await say(client, "SUB a", "LOGIN whoever whatever", "TOKEN any", "SUB a")
            assert [await hear(client) for _ in range(4)] == [
                "-SUB a not_logged_in",
                "+LOGIN anonymous@x",
                "+LOGIN anonymous@x",
                "-SUB a unknown_source",
            ]


async def test_who_guesses_is_refused_unseen_even_with_the_right_password() -> None:
    async with running() as (gateway, _), connect(gateway, "/lines/x/ws") as client:
        await say(client, *["LOGIN ann wrong"] * 5, "LOGIN ann s3cret", "LOGIN bob hush")
        heard = [await hear(client) for _ in range(7)]
        assert heard == ["-LOGIN invalid_token"] * 5 + ["-LOGIN too_many_failures", "+LOGIN bob@x bobs-token"]
        counted = gateway.gateway.meters
        assert counted.auth["password", "refused"] == 5
        assert counted.auth["password", "throttled"] == 1
        assert counted.auth["password", "accepted"] == 1
        assert (counted.commands["lines", "login", "refused"], counted.commands["lines", "login", "ok"]) == (
            6,
            1,
        )
        assert sum(counted.command_durations["lines", "login"].counts) == 7
        # Over HTTP it is the same user at the same address.
        status, _, body = await post(gateway, {"user": "ann", "password": "s3cret"})
        assert (status, body) == (429, b"too_many_failures")


# --- over HTTP ---------------------------------------------------------------------------------


async def ask(
    gateway: GatewayUnderTest,
    method: str,
    path: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
) -> tuple[int, dict[str, str], bytes]:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {gateway.address}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    async with await gateway.connect() as stream:
        await stream.send_all("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        data = b""
        async for piece in stream:
            data += piece
    head, _, answer = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    found = dict(line.lower().split(": ", 1) for line in rest)
    return int(first.split()[1]), found, answer


async def post(
    gateway: GatewayUnderTest, body: object, *headers: tuple[str, str]
) -> tuple[int, dict[str, str], bytes]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await ask(gateway, "POST", "/lines/login", headers, text)


RIGHT = {"user": "bob", "password": "hush"}


async def test_a_password_is_answered_with_the_token_and_nothing_else() -> None:
    async with running() as (gateway, _):
        status, headers, body = await post(gateway, RIGHT)
    assert (status, body) == (200, b"bobs-token")
    assert (headers["content-type"], headers["cache-control"]) == ("text/plain", "no-store")


@pytest.mark.parametrize(
    "body",
    [
        {"user": "bob", "password": "wrong"},
        {"user": "nobody", "password": "hush"},
        {"user": "bob"},
        {"user": "bob", "password": 5},
        {"user": "bob\0", "password": "hush\0"},
        [],
        b"{",
        b"",
        b"\xff",
        b'{"user":"\\ud800","password":"x"}',
        b"[" * 1_000,
        b'{"user":"bob","password":NaN}',
    ],
)
async def test_anything_else_gets_the_same_words(body: Any) -> None:
    async with running() as (gateway, _):
        status, headers, answer = await post(gateway, body)
    assert (status, answer) == (401, b"unauthorized")
    assert (headers["content-type"], headers["cache-control"]) == ("text/plain", "no-store")


async def test_what_is_too_large_is_not_looked_at() -> None:
    async with running() as (gateway, _):
        assert (await post(gateway, {"user": "bob", "password": "x" * 1_048_576}))[0] == 413
        assert gateway.gateway.meters.auth == {}


async def test_a_header_says_whose_token_it_is() -> None:
    async with running() as (gateway, _):
        for headers, expected in (
            ([("X-Lines-Token", "bobs-token")], {"token": "bobs-token", "user": "bob", "roles": ["b", "r"]}),
            ([("X-Lines-Token", "wrong")], None),
            ([BEARER], None),
            ([], None),
        ):
            status, found, body = await ask(gateway, "GET", "/lines/auth", headers)
            assert found["cache-control"] == "no-store"
            if expected is None:
                assert (status, body) == (401, b"unauthorized")
            else:
                assert (status, json.loads(body)) == (200, expected)
                assert found["content-type"] == "application/json"


async def test_pages_of_foreign_origins_may_neither_log_in_nor_ask() -> None:
    async with running() as (gateway, _):
        foreign = ("Origin", "https://elsewhere.example")
        assert (await post(gateway, RIGHT, foreign))[0] == 403
        assert (await ask(gateway, "GET", "/lines/auth", [foreign]))[0] == 403
        assert (await ask(gateway, "OPTIONS", "/lines/auth", [foreign]))[0] == 403
        own = ("Origin", f"http://{gateway.address}")
        for body, status in ((RIGHT, 200), ({}, 401), (b"x" * 2_000, 413)):
            found, headers, _ = await post(gateway, body, own)
            assert (found, headers["access-control-allow-origin"]) == (status, own[1])
            assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        (("Access-Control-Request-Headers", "x-lines-token"), "x-lines-token"),
        (("Access-Control-Request-Headers", "x\ty"), "authorization, content-type"),
        (("Accept", "*/*"), "authorization, content-type"),
    ],
)
async def test_pages_may_send_what_a_login_needs(wanted: tuple[str, str], allowed: str) -> None:
    async with running() as (gateway, _):
        own = ("Origin", f"http://{gateway.address}")
        for path in ("/lines/auth", "/lines/login"):
            status, headers, _ = await ask(gateway, "OPTIONS", path, [own, wanted])
            assert (status, headers["access-control-allow-origin"]) == (204, own[1])
            assert headers["access-control-allow-headers"] == allowed
        assert (await ask(gateway, "OPTIONS", "/lines/sources/news", [own]))[0] == 405


async def test_guessing_over_http_ends_with_429() -> None:
    async with running() as (gateway, _):
        wrong = {"user": "bob", "password": "wrong"}
        assert [(await post(gateway, wrong))[0] for _ in range(7)] == [401] * 5 + [429] * 2
        assert (await post(gateway, RIGHT))[0] == 429
        assert gateway.gateway.meters.auth["password", "throttled"] == 3


async def test_it_is_described() -> None:
    async with running() as (gateway, _):
        paths = json.loads((await ask(gateway, "GET", "/openapi.json"))[2])["paths"]
    assert paths["/lines/login"]["post"]["summary"] == "Give a token for a password."
    assert list(paths["/lines/auth"]) == ["get"]


async def test_who_is_late_is_closed_though_a_wrong_login_came_in_time() -> None:
    async with running(login_ms=50) as (gateway, _), connect(gateway, "/lines/bob/ws") as client:
        await say(client, "LOGIN ann wrong")
        assert await hear(client) == "-LOGIN invalid_token"
        with pytest.raises(Over) as over:
            await hear(client)
        assert over.value.code == 4401
