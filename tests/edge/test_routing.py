"""The routing table: every kind of request against every kind of path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api import Document, HttpResponse, Route, SessionLimits, WebSocketRoute
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.plain_request import PlainRequest
from kiwi_gw.edge.request_head import RequestHead, parse_head
from kiwi_gw.edge.routing import HttpMatch, Routes, WebSocketMatch
from kiwi_gw.model import HeadCredential, Identity


class Silent:
    """A dialect. Its routes are added by hand."""

    routes: Sequence[Route] = ()
    documents: Mapping[str, Document] = {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        raise NotImplementedError  # routing never makes one


async def show(request: PlainRequest) -> HttpResponse:
    raise NotImplementedError  # nothing is served


async def produce(request: PlainRequest) -> HttpResponse:
    raise NotImplementedError


KIWI = Silent()


@pytest.fixture
def routes() -> Routes:
    table = Routes(max_message_bytes=1024)
    for path in ("/", "/kiwi"):
        table.add_websocket("kiwi", KIWI, WebSocketRoute(path))
    table.add_websocket("lines", KIWI, WebSocketRoute("/lines/{client}/ws", max_message_bytes=10))
    table.add_http("GET", "/health", show)
    table.add_http("GET", "/topics/a", show)
    table.add_http("POST", "/topics/a", produce)
    table.add_http("GET", "/kiwi", show)
    table.add_http("DELETE", "/topics/{topic}", show)
    table.add_http("GET", "/topics/{topic}/{key}", show)
    table.add_http("GET", "/topics/a/{key}", produce)
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
    assert isinstance(route, WebSocketMatch)
    assert (route.served.name, route.served.dialect, route.served.max_message_bytes) == ("kiwi", KIWI, 1024)
    assert route.upgrade.key == "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    ("method", "path", "handler"),
    [
        ("GET", "/health", show),
        ("HEAD", "/health", show),
        ("GET", "/health?x", show),
        ("POST", "/topics/a", produce),
        ("GET", "/kiwi", show),  # a path may serve both
    ],
)
def test_requests_find_their_handler(routes: Routes, method: str, path: str, handler: object) -> None:
    route = routes.resolve(head(method, path))
    assert isinstance(route, HttpMatch)
    assert route.handler is handler


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
        routes.add_websocket("other", KIWI, WebSocketRoute("/kiwi"))
    with pytest.raises(ValueError, match="is served by both lines and other"):
        routes.add_websocket("other", KIWI, WebSocketRoute("/lines/{another}/ws"))
    with pytest.raises(ValueError, match=r"GET .* is served twice"):
        routes.add_http("GET", "/topics/{x}/{y}", show)
    with pytest.raises(ValueError, match="GET /health"):
        routes.add_http("GET", "/health", show)


def test_head_may_be_served_by_another_or_by_none() -> None:
    for order in (("GET", "HEAD"), ("HEAD", "GET")):
        table = Routes()
        for method in order:
            table.add_http(method, "/a", produce if method == "HEAD" else show)
        route = table.resolve(head("HEAD", "/a"))
        assert isinstance(route, HttpMatch)
        assert route.handler is produce
        with pytest.raises(ValueError, match="HEAD /a is served twice"):
            table.add_http("HEAD", "/a", show)
    table = Routes()
    table.add_http("GET", "/a", show, head=False)
    assert table.methods("/a") == "GET"


@pytest.mark.parametrize(
    ("method", "path", "pattern", "parameters", "handler"),
    [
        ("GET", "/topics/b/c", "/topics/{topic}/{key}", {"topic": "b", "key": "c"}, show),
        ("GET", "/topics/a/c", "/topics/a/{key}", {"key": "c"}, produce),  # the one with fewer parameters
        ("GET", "/topics/%61/c%2Fd?x", "/topics/{topic}/{key}", {"topic": "a", "key": "c/d"}, show),
        ("DELETE", "/topics/b", "/topics/{topic}", {"topic": "b"}, show),
        ("GET", "/topics/a", "/topics/a", {}, show),  # a path of its own wins
    ],
)
def test_parameters_of_a_path(
    routes: Routes, method: str, path: str, pattern: str, parameters: dict[str, str], handler: object
) -> None:
    match = routes.resolve(head(method, path))
    assert isinstance(match, HttpMatch)
    assert (match.pattern, match.parameters, match.handler) == (pattern, parameters, handler)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/topics//c", 404),
        ("GET", "/topics/b/", 404),
        ("GET", "/topics/b/%ff", 404),
        ("GET", "/topics/b/" + 256 * "x", 404),
        ("GET", "/topics/" + 255 * "%C3%A9", 405),
        ("GET", "/topics/b/c/d", 404),
        ("DELETE", "/topics/", 404),
        ("DELETE", "/topics/a", 405),
        ("GET", "/topics/b", 405),
        ("GET", "/lines/me/ws", 426),
    ],
)
def test_what_no_pattern_matches(routes: Routes, method: str, path: str, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        routes.resolve(head(method, path))
    assert caught.value.status == status


def test_a_handshake_has_the_parameters_and_the_size_of_its_route(routes: Routes) -> None:
    match = routes.resolve(head("GET", "/lines/%C3%A9/ws", upgrade=True))
    assert isinstance(match, WebSocketMatch)
    assert (match.served.name, match.served.max_message_bytes, match.parameters) == (
        "lines",
        10,
        {"client": "\u00e9"},
    )


@pytest.mark.parametrize("pattern", ["topics", "/a{b}", "/{a}b", "/{}", "/{A}", "/{a", "/{a}/{a}", ""])
def test_what_is_no_pattern(routes: Routes, pattern: str) -> None:
    with pytest.raises(ValueError, match=r"is not a path|names a parameter twice"):
        routes.add_http("GET", pattern, show)
