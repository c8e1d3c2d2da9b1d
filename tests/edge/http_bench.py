"""Handlers of all kinds behind a memory stream, and an independent h11 client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h11
import pytest
import trio
import trio.testing

from kiwi_gw.dialect_api import HttpResponse
from kiwi_gw.edge.http import serve_http
from kiwi_gw.edge.http_exchange import Closing, HttpLimits
from kiwi_gw.edge.plain_request import ConnectionEnds, Handler, PlainRequest
from kiwi_gw.edge.request_head import read_head
from kiwi_gw.edge.routing import Routes

LIMITS = HttpLimits()
MIB = 1024 * 1024


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = b""
    complete: bool = False


async def echo(request: PlainRequest) -> HttpResponse:
    return HttpResponse(200, await request.read_body(2 * MIB, lambda size: None))


async def hello(request: PlainRequest) -> HttpResponse:
    return HttpResponse(200, b"hello", headers=(("X-Path", request.head.path),))


async def broken(request: PlainRequest) -> HttpResponse:
    raise LookupError("s3cret detail")


async def empty(request: PlainRequest) -> HttpResponse:
    return HttpResponse(204, b"nobody reads this")


def table(**handlers: Handler) -> Routes:
    routes = Routes()
    for method, path, handler in [
        ("POST", "/echo", echo),
        ("GET", "/hello", hello),
        ("POST", "/hello", hello),
        ("GET", "/broken", broken),
        ("GET", "/empty", empty),
        *(("GET", f"/{name}", given) for name, given in handlers.items()),
    ]:
        routes.add_http(method, path, handler)
    return routes


@dataclass
class Client:
    """The client's end. `ask` sends a request, `answer` reads a response; they need not alternate."""

    stream: trio.abc.Stream
    closing: Closing
    received: bytes = b""
    ended: bool = False
    methods: list[str] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: h"]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + body, method)

    async def raw(self, data: bytes, *methods: str) -> None:
        self.methods += methods
        await self.stream.send_all(data)

    async def answer(self) -> Answer:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=self.methods.pop(0), target="/", headers=[("Host", "h")]))
        client.send(h11.EndOfMessage())
        if self.received:
            client.receive_data(self.received)
        answer: Answer | None = None
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                data = bytes(await self.stream.receive_some())
                self.ended = not data
                client.receive_data(data)
            elif isinstance(event, h11.InformationalResponse):
                self.received = client.trailing_data[0]
                return Answer(event.status_code, {})
            elif isinstance(event, h11.Response):
                headers = {name.decode(): value.decode() for name, value in event.headers}
                answer = Answer(event.status_code, headers)
            elif isinstance(event, h11.Data):
                assert answer is not None
                answer.body += bytes(event.data)
            else:
                assert isinstance(event, h11.EndOfMessage)
                assert answer is not None
                answer.complete = True
                self.received = client.trailing_data[0]
                return answer

    async def is_closed(self) -> bool:
        """Whether nothing more comes; waits for it."""
        assert self.received == b""
        return self.ended or await self.stream.receive_some() == b""


@asynccontextmanager
async def connection(
    routes: Routes | None = None,
    limits: HttpLimits = LIMITS,
    pair: tuple[trio.abc.Stream, trio.abc.Stream] | None = None,
    ends: ConnectionEnds = ConnectionEnds(),  # noqa: B008  (immutable)
) -> AsyncIterator[Client]:
    """A client whose connection is served; the server must have ended when the client has closed."""
    near, far = pair or trio.testing.memory_stream_pair()
    closing = Closing()
    table_ = routes or table()

    async def serve() -> None:
        found = await read_head(far, limits.head)
        if found is not None:
            await serve_http(far, found, table_, limits, closing, ends)
            with pytest.raises(trio.ClosedResourceError):
                await far.send_all(b"x")  # it was closed

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield Client(near, closing)
        await near.aclose()
