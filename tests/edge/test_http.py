"""Plain HTTP over memory streams, read by an independent h11 client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

import h11
import pytest
import trio
import trio.testing

from kiwi_gw.dialect_api import HttpResponse, HttpStream, NotStreamed
from kiwi_gw.edge.http import serve_http
from kiwi_gw.edge.http_exchange import Closing, HttpLimits
from kiwi_gw.edge.plain_request import ConnectionEnds, PlainRequest
from kiwi_gw.edge.request_head import RequestHead, read_head
from kiwi_gw.edge.routing import HttpMatch, Routes, WebSocketMatch
from tests.edge.http_bench import (
    LIMITS,
    MIB,
    connection,
    hello,
    table,
)
from tests.edge.test_transports import pair


async def test_a_request_is_answered() -> None:
    async with connection() as client:
        await client.ask("GET", "/hello?x=1")
        answer = await client.answer()
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["x-path"] == "/hello"
    assert answer.headers["date"].endswith(" GMT")
    assert "connection" not in answer.headers


async def test_a_handler_is_told_the_request() -> None:
    seen: list[PlainRequest] = []

    async def handle(request: PlainRequest) -> HttpResponse:
        seen.append(request)
        return await hello(request)

    routes = Routes()
    routes.add_http("GET", "/caf%C3%A9", handle)
    routes.add_http("GET", "/of/{name}", handle)
    ends = ConnectionEnds(("10.0.0.1", 5), ("10.0.0.2", 80), secure=True)
    async with connection(routes, ends=ends) as client:
        await client.ask("GET", "/caf%C3%A9?q=%20", X_Name="a")
        await client.answer()
        await client.ask("GET", "/of/a%20b")
        await client.answer()
    request, named = seen
    assert (request.head.method, request.head.path, request.head.query) == ("GET", "/caf%C3%A9", "q=%20")
    assert request.head.headers == (("host", "h"), ("x-name", "a"))
    assert (request.ends, request.ends.here, request.ends.remote) == (ends, "10.0.0.2", "10.0.0.1:5")
    assert (request.credential.remote, request.credential.secure) == ("10.0.0.1:5", True)
    assert (request.parameters, named.parameters) == ({}, {"name": "a b"})


async def test_a_connection_serves_many_requests() -> None:
    async with connection() as client:
        for n in range(20):
            await client.ask("POST", "/echo", b"%d" % n * n)
            assert (await client.answer()).body == b"%d" % n * n


async def test_where_a_head_goes_that_comes_again_is_not_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    resolve = Routes.resolve

    def noted(routes: Routes, head: RequestHead) -> WebSocketMatch | HttpMatch:
        asked.append(f"{head.method} {head.path}")
        return resolve(routes, head)

    monkeypatch.setattr(Routes, "resolve", noted)
    async with connection() as client:
        for method, path, body, status in (
            ("POST", "/echo", b"a", 200),
            ("POST", "/echo", b"a" * 20, 200),
            ("POST", "/hello", b"a" * 20, 200),
            ("POST", "/nothing", b"a", 404),
            ("POST", "/nothing", b"a", 404),
            ("GET", "/hello", b"", 200),
            ("GET", "/hello", b"", 200),
        ):
            await client.ask(method, path, body)
            answer = await client.answer()
            assert (answer.status, answer.headers.get("x-path", path)) == (status, path)
    assert asked == ["POST /echo", "POST /hello", "POST /nothing", "POST /nothing", "GET /hello"]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with connection() as client:
        one = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n%03d"
        await client.raw(b"".join(one % n for n in range(50)), *["POST"] * 50)
        assert [(await client.answer()).body for _ in range(50)] == [b"%03d" % n for n in range(50)]


async def test_a_body_that_the_handler_leaves_is_skipped() -> None:
    async with connection() as client:
        await client.ask("POST", "/hello", b"x" * 30_000)
        assert (await client.answer()).status == 200
        await client.ask("GET", "/hello")
        assert (await client.answer()).status == 200


async def test_chunked_bodies() -> None:
    async with connection() as client:
        chunked = b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.raw(chunked + b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-Trailer: t\r\n\r\n", "POST")
        assert (await client.answer()).body == b"abcdefg"
        await client.ask("GET", "/hello")
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("path", ["/hello", "/broken", "/nothing"])
async def test_head_has_no_body(path: str) -> None:
    async with connection() as client:
        await client.ask("HEAD", path)
        answer = await client.answer()
        assert answer.body == b""
        assert answer.complete
        await client.ask("GET", "/hello")  # nothing was left on the wire
        assert (await client.answer()).body == b"hello"


async def test_a_head_answer_tells_the_length_of_the_body() -> None:
    async with connection() as client:
        await client.ask("HEAD", "/hello")
        assert (await client.answer()).headers["content-length"] == "5"


async def test_204_has_no_body() -> None:
    async with connection() as client:
        await client.ask("GET", "/empty")
        assert (await client.answer()).status == 204
        await client.ask("GET", "/hello")
        assert (await client.answer()).body == b"hello"


async def test_http_1_0_is_answered_and_closed() -> None:
    async with connection() as client:
        await client.raw(b"GET /hello HTTP/1.0\r\n\r\n", "GET")
        answer = await client.answer()
        assert answer.body == b"hello"
        assert answer.headers["connection"] == "close"
        assert await client.is_closed()


async def test_connection_close_is_honoured() -> None:
    async with connection() as client:
        await client.ask("GET", "/hello", Connection="close")
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.is_closed()


# --- answers in pieces ------------------------------------------------------------------------

PIECES = [b"a", b"", b"b" * 10_000, b"c" * 300_000, b"\r\n", b"d" * 20_000]


def in_pieces(*found: bytes, fails: bool = False) -> Routes:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for piece in found:
            yield piece
        if fails:
            raise LookupError

    async def handle(request: PlainRequest) -> HttpStream:
        return HttpStream(pieces(), "text/plain", headers=(("X-A", "b"),))

    return table(pieces=handle)


Ends = tuple[trio.abc.Stream, trio.abc.Stream]


@pytest.fixture(params=["memory", "unix", "tcp"])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    """The client's end and the gateway's."""
    if request.param == "memory":
        yield trio.testing.memory_stream_pair()
        return
    far, near = pair(request.param)
    async with near:
        yield near, far


async def test_pieces_arrive_as_they_are_whatever_their_size(ends: Ends) -> None:
    async with connection(in_pieces(*PIECES), pair=ends) as client:
        for _ in range(2):
            await client.ask("GET", "/pieces")
            answer = await client.answer()
            assert (answer.status, answer.headers["transfer-encoding"]) == (200, "chunked")
            assert answer.headers["x-a"] == "b"
            assert answer.body == b"".join(PIECES)
        await client.ask("HEAD", "/pieces")
        assert (await client.answer()).body == b""
        await client.ask("GET", "/hello")
        assert (await client.answer()).body == b"hello"


async def test_in_http_1_0_the_last_piece_is_where_the_connection_ends() -> None:
    async with connection(in_pieces(*PIECES)) as client:
        await client.raw(b"GET /pieces HTTP/1.0\r\n\r\n", "GET")
        answer = await client.answer()
        assert "transfer-encoding" not in answer.headers
        assert (answer.body, answer.headers["connection"]) == (b"".join(PIECES), "close")


async def test_pieces_that_fail_are_answered_before_the_first_and_cut_behind_it() -> None:
    async with connection(in_pieces(fails=True)) as client:
        await client.ask("GET", "/pieces")
        assert (await client.answer()).status == 500
    async with connection(in_pieces(b"a", fails=True)) as client:
        await client.ask("GET", "/pieces")
        with pytest.raises(h11.RemoteProtocolError, match="without sending complete message"):
            await client.answer()


async def test_another_answer_than_pieces_comes_before_the_first_or_not_at_all() -> None:
    async def pieces(first: bytes) -> AsyncGenerator[bytes, None]:
        if first:
            yield first
        raise NotStreamed(HttpResponse(404, b"late"))

    async def handle(request: PlainRequest) -> HttpStream:
        return HttpStream(pieces(request.head.query.encode()), "text/plain")

    async with connection(table(pieces=handle)) as client:
        await client.ask("GET", "/pieces")
        answer = await client.answer()
        assert (answer.status, answer.body) == (404, b"late")
        await client.ask("GET", "/pieces?first")
        with pytest.raises(h11.RemoteProtocolError, match="without sending complete message"):
            await client.answer()


async def test_304_has_no_body() -> None:
    async def unchanged(request: PlainRequest) -> HttpResponse:
        return HttpResponse(304, b"nobody reads this")

    async with connection(table(unchanged=unchanged)) as client:
        await client.ask("GET", "/unchanged")
        assert (await client.answer()).status == 304
        await client.ask("GET", "/hello")
        assert (await client.answer()).body == b"hello"


async def test_a_request_that_has_come_is_answered_although_the_connection_is_to_end(ends: Ends) -> None:
    async with connection(pair=ends) as client:
        await client.ask("GET", "/hello")
        await client.answer()
        await trio.testing.wait_all_tasks_blocked()
        await client.ask("GET", "/hello")
        await trio.lowlevel.checkpoint()
        client.closing.set()
        assert (await client.answer()).body == b"hello"


async def test_who_sends_many_requests_at_once_is_not_the_only_one(ends: Ends) -> None:
    others = 0

    async def count() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    async with connection(pair=ends) as client, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await client.raw(b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n" * 100, *["GET"] * 100)
        for _ in range(100):
            assert (await client.answer()).body == b"hello"
        assert others >= 99, "one turn between any two requests"
        nursery.cancel_scope.cancel()


# --- 100-continue ------------------------------------------------------------------------------


async def test_100_continue_is_sent_when_the_body_is_wanted() -> None:
    async with connection() as client:
        await client.raw(
            b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
            "POST",
            "POST",
        )
        assert (await client.answer()).status == 100
        await client.raw(b"ok")
        assert (await client.answer()).body == b"ok"
        await client.ask("GET", "/hello")
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("path", ["/hello", "/nothing"])
async def test_a_body_that_is_not_wanted_is_not_asked_for(path: str) -> None:
    async with connection() as client:
        await client.raw(
            f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode(),
            "POST",
        )
        answer = await client.answer()
        assert answer.status in (200, 404)
        assert answer.headers["connection"] == "close"  # the body may come or not: nobody can know
        assert await client.is_closed()


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("PUT", "/hello", 405), ("GET", "/echo", 405)]
)
async def test_routing_errors_do_not_end_the_connection(method: str, path: str, status: int) -> None:
    async with connection() as client:
        await client.ask(method, path, b"a body" if method == "PUT" else b"")
        assert (await client.answer()).status == status
        await client.ask("GET", "/hello")
        assert (await client.answer()).status == 200


async def test_405_says_what_is_allowed() -> None:
    async with connection() as client:
        await client.ask("PUT", "/hello")
        assert (await client.answer()).headers["allow"] == "GET, HEAD, POST"


async def test_a_later_handshake_is_refused() -> None:
    async with connection() as client:
        await client.ask("GET", "/hello")
        await client.answer()
        await client.ask("GET", "/hello", Upgrade="websocket", Connection="Upgrade")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await client.is_closed()


async def test_h2c_is_ignored() -> None:
    async with connection() as client:
        for _ in range(2):
            await client.ask(
                "POST",
                "/echo",
                b"abc",
                Upgrade="h2c",
                Connection="Upgrade, HTTP2-Settings",
                HTTP2_Settings="",
            )
            assert (await client.answer()).body == b"abc"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01", 400),
        (b"GET /hello HTTP/1.1\r\nHost: h\r\nA: " + b"b" * 9000 + b"\r\n\r\n", 431),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
)
async def test_later_heads_have_the_same_limits(data: bytes, status: int) -> None:
    async with connection() as client:
        await client.ask("GET", "/hello")
        await client.answer()
        await client.raw(data, "GET")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await client.is_closed()


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent() -> None:
    async with connection() as client:
        await client.raw(
            b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\nExpect: 100-continue\r\n\r\n",
            "POST",
        )
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await client.is_closed()


async def test_a_body_that_becomes_too_large_is_refused() -> None:
    async with connection() as client:
        await client.raw(b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "POST")
        await client.raw(b"%x\r\n" % (MIB + 1) + bytes(MIB + 1))
        assert (await client.answer()).status == 413
        assert await client.is_closed()


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async with connection() as client:
        await client.ask("POST", "/echo", bytes(MIB))
        answer = await client.answer()
        assert (answer.status, len(answer.body)) == (200, MIB)


@pytest.mark.parametrize(
    "body", [b"x\r\n", b"3\r\nabcde\r\n", b"-1\r\n", b"1\r\na" * 5, b"fffffffffffffffffffff\r\n"]
)
async def test_a_malformed_body_is_refused(body: bytes) -> None:
    async with connection() as client:
        await client.raw(
            b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body, "POST"
        )
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await client.is_closed()


async def test_a_flood_of_tiny_chunks_is_refused() -> None:
    async with connection() as client:
        await client.raw(b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "POST")
        await client.raw(b"1\r\nx\r\n" * 2000)
        assert (await client.answer()).status == 400


async def test_a_refusal_survives_the_bytes_that_nobody_reads() -> None:
    """On a real socket, where closing with unread bytes would reset the connection and lose the answer."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve_small_bodies, 0, host="127.0.0.1"))
        stream = await trio.testing.open_stream_to_socket_listener(listeners[0])
        await stream.send_all(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n")
        await stream.send_all(bytes(200_000))
        await trio.lowlevel.wait_readable(stream.socket)
        await trio.testing.wait_all_tasks_blocked()  # by now a server that does not linger has closed
        received = b""
        while data := await stream.receive_some():
            received += data
        assert received.startswith(b"HTTP/1.1 413 ")
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def serve_small_bodies(stream: trio.SocketStream) -> None:
    found = await read_head(stream, LIMITS.head)
    assert found is not None
    await serve_http(stream, found, table(), HttpLimits(body_bytes=1000), Closing(), ConnectionEnds())
