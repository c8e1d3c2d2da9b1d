"""A page whose own name was made to resolve to this machine (DNS rebinding) is let in nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.typing import EventDict

from kiwi_gw.api import Credential, HeadCredential, Identity, hookimpl
from kiwi_gw.edge.origin import host_allowed
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway

CONFIG = """
plugins: [scripted]
sources: [{type: scripted, id: news}]
zetta: {enabled: true}
"""
TOKENS = (
    CONFIG
    + """
tokens:
  static: [{name: reader, token: readers-token-0001, roles: [reader]}]
  roles: {reader: {sources: ["*"]}}
"""
)
LISTED = CONFIG + "server: {allowed_origins: ['https://gw.example', 'https://*.apps.example']}\n"

EVIL = (
    "evil.example",
    "evil.example:{port}",
    "localhost.evil.example",
    "127.0.0.1.evil.example:{port}",
    "127.1",
)
OWN = ("127.0.0.1:{port}", "[::1]:{port}", "localhost:{port}", "LOCALHOST", "[::ffff:127.0.0.1]")
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
)
WEBSOCKETS = ("/", "/kiwi", "/events")
PAGES = ("/", "/health", "/livez", "/readyz", "/readyz?verbose", "/nothing")
WHERE = [
    # where it listens, and where it is called
    ("127.0.0.1:0", "127.0.0.1"),
    ("[::1]:0", "::1"),
    ("[::]:0", "::1"),
    ("[::]:0", "127.0.0.1"),  # which the kernel calls ::ffff:127.0.0.1
    ("0.0.0.0:0", "127.0.0.1"),
]


@asynccontextmanager
async def calling(text: str, listens: str) -> AsyncIterator[tuple[GatewayUnderTest, int]]:
    async with open_gateway(
        text, plugins={"scripted": ScriptedSources()}, address=listens, admin=listens
    ) as gateway:
        with trio.fail_after(30):
            yield gateway, int(gateway.address.rpartition(":")[2])


async def status(host: str, port: int, target: str, *headers: str) -> int:
    """Of the answer to one request."""
    lines = [f"GET {target} HTTP/1.1", *headers, "", ""]
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all("\r\n".join(lines).encode())
        answer = b""
        while b"\r\n" not in answer:
            answer += await stream.receive_some()
    return int(answer.split()[1])


async def statuses(host: str, port: int, name: str, text: str = "") -> dict[str, int]:
    """Of every path and way to ask for it, as a page of that name would."""
    name = name.format(port=port)
    page = (f"Host: {name}", f"Origin: http://{name}")
    found = {f"ws {path}": await status(host, port, path, *page, *UPGRADE) for path in WEBSOCKETS}
    for path in PAGES:
        found[path] = await status(host, port, path, *page, "Connection: close")
    # Host is what the page cannot help, but an absolute target has the last word about it (RFC 9112, 3.2.2).
    absolute = f"http://{name}/readyz?verbose"
    found["absolute"] = await status(host, port, absolute, f"Host: {name}", "Connection: close")
    return found


@pytest.mark.parametrize(("listens", "host"), WHERE)
async def test_a_name_that_is_not_ours_is_refused_on_every_path_of_loopback(listens: str, host: str) -> None:
    async with calling(CONFIG, listens) as (gateway, port):
        for name in EVIL:
            assert {*(await statuses(host, port, name)).values()} == {403}, name
        assert {*gateway.listener.rejected} == {"host"}
        admin = int(gateway.admin_address.rpartition(":")[2])
        for path in ("/metrics", "/sources", "/connections", "/subscriptions", "/readyz", "/livez"):
            assert await status(host, admin, path, "Host: evil.example", "Connection: close") == 403


@pytest.mark.parametrize(("listens", "host"), WHERE)
async def test_addresses_and_localhost_are_ours(listens: str, host: str) -> None:
    async with calling(CONFIG, listens) as (_, port):
        for name in OWN:
            found = await statuses(host, port, name)
            assert {found.pop(f"ws {path}") for path in WEBSOCKETS} == {101}, name
            assert found.pop("/nothing") == 404
            assert {*found.values()} == {200}, name


async def test_an_absolute_target_does_not_hide_the_name() -> None:
    async with calling(CONFIG, "127.0.0.1:0") as (_, port):
        for target, host in (
            ("http://evil.example/readyz?verbose", "evil.example"),
            ("http://evil.example/readyz?verbose", f"127.0.0.1:{port}"),
        ):
            assert await status("127.0.0.1", port, target, f"Host: {host}", "Connection: close") in (400, 403)
            assert await status("127.0.0.1", port, target, f"Host: {host}", *UPGRADE) in (400, 403)


async def test_every_request_of_a_connection_is_checked() -> None:
    async with (
        calling(CONFIG, "127.0.0.1:0") as (_, port),
        await trio.open_tcp_stream("127.0.0.1", port) as s,
    ):
        for host, expected in (("localhost", b"200"), ("evil.example", b"403"), ("localhost", b"200")):
            await s.send_all(f"GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += await s.receive_some()
            assert answer.split()[1] == expected


async def test_who_sends_no_name_is_no_browser() -> None:
    """Health checks of load balancers speak HTTP/1.0."""
    async with (
        calling(CONFIG, "127.0.0.1:0") as (_, port),
        await trio.open_tcp_stream("127.0.0.1", port) as s,
    ):
        await s.send_all(b"GET /livez HTTP/1.0\r\n\r\n")
        assert (await s.receive_some()).split()[1] == b"200"


async def test_names_of_listed_origins_are_ours_on_the_public_port_only() -> None:
    async with calling(LISTED, "127.0.0.1:0") as (gateway, port):
        admin = int(gateway.admin_address.rpartition(":")[2])
        for name, expected in (("gw.example", 200), ("a.apps.example:1", 200), ("apps.example", 403)):
            assert (
                await status("127.0.0.1", port, "/readyz", f"Host: {name}", "Connection: close") == expected
            )
            assert await status("127.0.0.1", admin, "/readyz", f"Host: {name}", "Connection: close") == 403


async def test_where_clients_prove_who_they_are_any_name_will_do() -> None:
    async with calling(TOKENS, "127.0.0.1:0") as (_, port):
        page = ("Host: evil.example", "Origin: http://evil.example")
        assert await status("127.0.0.1", port, "/", *page, *UPGRADE) == 401
        token = "Authorization: Bearer readers-token-0001"
        assert await status("127.0.0.1", port, "/", *page, token, *UPGRADE) == 101


OPEN = (
    CONFIG
    + """
tokens:
  static: [{name: reader, token: readers-token-0001, roles: [reader]}]
  anonymous: {roles: [visitor]}
  roles: {reader: {sources: ["*"]}, visitor: {sources: ["*"], actions: [subscribe, admin]}}
"""
)


async def test_where_a_plugin_lets_in_who_shows_nothing_a_foreign_name_is_refused(
    log_lines: list[EventDict],
) -> None:
    async with calling(OPEN, "127.0.0.1:0") as (gateway, port):
        admin = int(gateway.admin_address.rpartition(":")[2])
        page = ("Host: evil.example", "Origin: http://evil.example", "Connection: close")
        token = "Authorization: Bearer readers-token-0001"
        for path in WEBSOCKETS:
            assert await status("127.0.0.1", port, path, *page[:2], *UPGRADE) == 403
            assert await status("127.0.0.1", port, path, "Host: localhost", *UPGRADE) == 101
            assert await status("127.0.0.1", port, path, *page[:2], token, *UPGRADE) == 101
        for path in ("/metrics", "/sources", "/connections", "/subscriptions"):
            assert await status("127.0.0.1", admin, path, *page) == 403
            assert await status("127.0.0.1", admin, path, "Host: localhost", "Connection: close") == 200
        assert gateway.listener.rejected["host"] == len(WEBSOCKETS)
        lines = [line for line in log_lines if line["event"] == "host refused"]
        assert len(lines) == len(WEBSOCKETS) + 4
        assert {line["host"] for line in lines} == {"evil.example"}


class Doorman:
    """Knows guests by nothing, and members by a header."""

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        assert isinstance(credential, HeadCredential)
        return Identity("member" if credential.header("x-member") else "guest")


async def test_credentials_that_make_no_difference_are_none() -> None:
    """A page can add a query, a header or a subprotocol to what it asks for."""
    plugins = {"scripted": ScriptedSources(), "doorman": Doorman()}
    text = CONFIG.replace("[scripted]", "[scripted, doorman]")
    async with open_gateway(text, plugins=plugins) as gateway:
        with trio.fail_after(30):
            port = int(gateway.address.rpartition(":")[2])
            page = ("Host: evil.example", "Origin: http://evil.example")
            for extra in ("X-Nothing: 1", "Authorization: Bearer x", "Sec-WebSocket-Protocol: kiwi"):
                assert await status("127.0.0.1", port, "/?token=x", *page, extra, *UPGRADE) == 403
            assert await status("127.0.0.1", port, "/", *page, "X-Member: 1", *UPGRADE) == 101
            # Without an Origin: a page of the same origin need not send one.
            lines = ["POST /api/v1/ticket HTTP/1.1", page[0], "Connection: close", "", ""]
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all("\r\n".join(lines).encode())
                answer = b""
                while chunk := await stream.receive_some():
                    answer += chunk
            assert answer.split()[1] == b"403"
            assert b"server.allowed_origins" in answer


async def test_a_name_that_is_refused_is_in_the_log(log_lines: list[EventDict]) -> None:
    async with calling(CONFIG, "127.0.0.1:0") as (_, port):
        for target, headers in (("/", UPGRADE), ("/readyz", ("Connection: close",))):
            assert await status("127.0.0.1", port, target, "Host: gw.example", *headers) == 403
    lines = [line for line in log_lines if line["event"] == "host refused"]
    assert [(line["host"], line["path"]) for line in lines] == [
        ("gw.example", "/"),
        ("gw.example", "/readyz"),
    ]


@pytest.mark.parametrize(
    ("host", "here", "allowed"),
    [
        ("evil.example", None, True),  # a Unix socket
        ("evil.example", "192.0.2.1", True),  # other machines may well know us by a name
        ("evil.example", "2001:db8::1", True),
        ("evil.example", "127.0.0.53", False),
        ("evil.example", "::ffff:127.0.0.53", False),
        ("evil.example", "::ffff:192.0.2.1", True),
        ("evil.example", "::1%lo", False),
        ("", "127.0.0.1", False),
        ("127.0.0.1.", "127.0.0.1", False),
        ("2130706433", "127.0.0.1", False),
        ("[::1].evil.example", "127.0.0.1", False),
        ("[::1", "127.0.0.1", False),
    ],
)
def test_what_is_a_name_of_ours(host: str, here: str | None, allowed: bool) -> None:
    assert host_allowed(host, here) is allowed
