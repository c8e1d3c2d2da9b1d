"""The routing table: every kind of request against every kind of path."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kiwi_gw.core.commands import Session
from kiwi_gw.dialects.base import SessionLimits
from kiwi_gw.edge.answers import HttpError
from kiwi_gw.edge.asgi import Receive, Scope, Send
from kiwi_gw.edge.head import RequestHead, parse_head
from kiwi_gw.edge.routing import HttpRoute, Routes, WebSocketRoute
from kiwi_gw.model import Identity


@dataclass(frozen=True, slots=True)
class Spoken:
    name: str
    paths: tuple[str, ...]
    subprotocols: tuple[str, ...] = ()
    max_message_bytes: int = 1024

    def session(self, head_query: str, identity: Identity, limits: SessionLimits) -> Session:
        raise NotImplementedError  # routing never makes one


async def show(scope: Scope, receive: Receive, send: Send) -> None: ...


async def produce(scope: Scope, receive: Receive, send: Send) -> None: ...


KIWI = Spoken("kiwi", ("/", "/kiwi"))


@pytest.fixture
def routes() -> Routes:
    table = Routes()
    table.add_websocket(KIWI)
    table.add_http("GET", "/health", show)
    table.add_http("GET", "/topics/a", show)
    table.add_http("POST", "/topics/a", produce)
    table.add_http("GET", "/kiwi", show)
    return table


def head(method: str, path: str, *, upgrade: bool = False) -> RequestHead:
    lines = [f"{method} {path} HTTP/1.1", "Host: h"]
    if upgrade:
        lines += [
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
    return parse_head("\r\n".join([*lines, "", ""]).encode())


@pytest.mark.parametrize("path", ["/", "/kiwi", "/?a=b"])
def test_handshakes_find_their_dialect(routes: Routes, path: str) -> None:
    route = routes.resolve(head("GET", path, upgrade=True))
    assert isinstance(route, WebSocketRoute)
    assert route.dialect is KIWI
    assert route.upgrade.key == "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    ("method", "path", "app"),
    [
        ("GET", "/health", show),
        ("HEAD", "/health", show),
        ("GET", "/health?x", show),
        ("POST", "/topics/a", produce),
        ("GET", "/kiwi", show),  # a path may serve both
    ],
)
def test_requests_find_their_application(routes: Routes, method: str, path: str, app: object) -> None:
    route = routes.resolve(head(method, path))
    assert isinstance(route, HttpRoute)
    assert route.app is app


@pytest.mark.parametrize(
    ("method", "path", "upgrade", "status", "headers"),
    [
        ("GET", "/nothing", False, 404, {}),
        ("GET", "/nothing", True, 404, {}),
        ("GET", "/health", True, 404, {}),
        ("GET", "/health/", False, 404, {}),
        ("GET", "/Health", False, 404, {}),
        ("GET", "/%68ealth", False, 404, {}),
        ("GET", "/x/../health", False, 404, {}),
        ("OPTIONS", "*", False, 404, {}),
        ("POST", "/health", False, 405, {"Allow": "GET, HEAD"}),
        ("DELETE", "/topics/a", False, 405, {"Allow": "GET, HEAD, POST"}),
        ("GET", "/", False, 426, {"Upgrade": "websocket"}),
        ("HEAD", "/", False, 426, {"Upgrade": "websocket"}),
        ("POST", "/", False, 405, {"Allow": "GET"}),
        ("POST", "/", True, 405, {"Allow": "GET"}),
    ],
)
def test_refusals(
    routes: Routes, method: str, path: str, upgrade: bool, status: int, headers: dict[str, str]
) -> None:
    with pytest.raises(HttpError) as caught:
        routes.resolve(head(method, path, upgrade=upgrade))
    assert caught.value.status == status
    assert dict(caught.value.headers) == headers


def test_a_path_is_served_by_one(routes: Routes) -> None:
    with pytest.raises(ValueError, match="/kiwi is served by both kiwi and other"):
        routes.add_websocket(Spoken("other", ("/other", "/kiwi")))
    with pytest.raises(HttpError):
        routes.resolve(head("GET", "/other", upgrade=True))
    with pytest.raises(ValueError, match="GET /health"):
        routes.add_http("GET", "/health", show)
