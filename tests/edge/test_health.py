"""The health endpoints, through the whole HTTP side."""

from __future__ import annotations

import json
from collections.abc import Callable

import h11
import pytest
import trio
import trio.testing

from kiwi_gw.dialect_api import HttpResponse
from kiwi_gw.edge.health import GatewayHealth, SourceHealth, add_health_routes, readiness
from kiwi_gw.edge.http import serve_http
from kiwi_gw.edge.http_exchange import Closing, HttpLimits
from kiwi_gw.edge.plain_request import ConnectionEnds, PlainRequest
from kiwi_gw.edge.request_head import FoundHead, parse_head
from kiwi_gw.edge.routing import Routes


def view(ready: bool = True, draining: bool = False, overload: int = 0) -> GatewayHealth:
    sources = (
        SourceHealth("flights", "kafka", "starting", "no broker answers at 127.0.0.1:9092"),
        SourceHealth("ticks", "counter", "running", ""),
    )
    warnings = ("listening beyond loopback with no authentication",)
    return GatewayHealth(ready, draining, overload, warnings, sources)


async def get(
    health: GatewayHealth, path: str, *, healthcheck: bool = True
) -> tuple[int, dict[str, str], bytes]:
    routes = Routes()
    add_health_routes(routes, lambda: health, healthcheck=healthcheck)
    near, far = trio.testing.memory_stream_pair()
    head = parse_head(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    await serve_http(far, FoundHead(head, b""), routes, HttpLimits(), Closing(), ConnectionEnds())
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    while data := await near.receive_some():
        client.receive_data(bytes(data))
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    return response.status_code, {k.decode(): v.decode() for k, v in response.headers}, body


@pytest.mark.parametrize("path", ["/health", "/livez"])
@pytest.mark.parametrize("health", [view(), view(ready=False), view(draining=True)])
async def test_a_gateway_that_answers_is_alive(path: str, health: GatewayHealth) -> None:
    status, headers, body = await get(health, path)
    assert (status, body) == (200, b"OK\n")
    assert headers["cache-control"] == "no-store"


async def test_health_can_be_switched_off() -> None:
    assert (await get(view(), "/health", healthcheck=False))[0] == 404
    assert (await get(view(), "/livez", healthcheck=False))[0] == 200


@pytest.mark.parametrize(
    ("ready", "draining", "overload", "status"),
    [
        (True, False, 0, 200),
        (False, False, 0, 503),
        (True, True, 0, 503),
        (True, False, 1, 200),
        (True, False, 2, 503),
    ],
)
async def test_ready_only_when_started_with_memory_for_clients_and_not_draining(
    ready: bool, draining: bool, overload: int, status: int
) -> None:
    code, headers, body = await get(view(ready, draining, overload), "/readyz")
    assert code == status
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "ready": status == 200,
        "draining": draining,
        "overload": overload,
        "sources": [{"id": "flights", "state": "starting"}, {"id": "ticks", "state": "running"}],
    }


@pytest.mark.parametrize("query", ["?verbose", "?verbose=1", "?verbose=true"])
async def test_verbose_says_more(query: str) -> None:
    _, _, body = await get(view(), f"/readyz{query}")
    said = json.loads(body)
    assert said["sources"][0] == {
        "id": "flights",
        "type": "kafka",
        "state": "starting",
        "message": "no broker answers at 127.0.0.1:9092",
    }
    assert said["warnings"] == ["listening beyond loopback with no authentication"]


async def test_verbose_can_be_denied() -> None:
    _, _, body = await get(view(), "/readyz?verbose=0")
    assert "warnings" not in json.loads(body)


async def test_what_is_said_is_not_older_than_the_question_whether_it_may_be_said() -> None:
    """A plugin may be asked that in a thread, and sources come and go meanwhile."""
    asked: list[str] = []

    async def lists(request: PlainRequest) -> bool:
        await trio.lowlevel.checkpoint()
        asked.append("may it be known")
        return True

    def ask() -> GatewayHealth:
        asked.append("what is there")
        return view()

    head = parse_head(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")

    async def no_body(most: int, came: Callable[[int], None]) -> bytes:
        return b""

    response = await readiness(ask, lists)(PlainRequest(head, {}, ConnectionEnds(), no_body))
    assert isinstance(response, HttpResponse)
    assert response.status == 200
    assert asked == ["may it be known", "what is there"]
