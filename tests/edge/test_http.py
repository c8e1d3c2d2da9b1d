"""Plain HTTP over memory streams, read by an independent h11 client."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import h11
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kiwi_gw.edge.asgi import App, Receive, Scope, Send, respond
from kiwi_gw.edge.exchange import ClientGone
from kiwi_gw.edge.head import read_head
from kiwi_gw.edge.http import Ends, HttpLimits, serve_http
from kiwi_gw.edge.routing import Routes

LIMITS = HttpLimits()
MIB = 1024 * 1024


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes = b""
    complete: bool = False


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    await respond(send, 200, body)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, b"hello", headers=((b"x-path", scope["raw_path"]),))


async def streamed(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for n in range(3):
        await send({"type": "http.response.body", "body": b"piece %d;" % n, "more_body": True})
    await send({"type": "http.response.body"})


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    raise LookupError("s3cret detail")


async def broken_inside(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise LookupError("too late")


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def empty(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b"nobody reads this"})


def table(**apps: App) -> Routes:
    routes = Routes()
    for method, path, app in [
        ("POST", "/echo", echo),
        ("GET", "/hello", hello),
        ("POST", "/hello", hello),
        ("GET", "/streamed", streamed),
        ("GET", "/broken", broken),
        ("GET", "/broken_inside", broken_inside),
        ("GET", "/silent", silent),
        ("GET", "/empty", empty),
        *(("GET", f"/{name}", app) for name, app in apps.items()),
        *(("POST", f"/{name}", app) for name, app in apps.items()),
    ]:
        routes.add_http(method, path, app)
    return routes


@dataclass
class Client:
    """The client's end. `ask` sends a request, `answer` reads a response; they need not alternate."""

    stream: trio.abc.Stream
    closing: trio.Event
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
    ends: Ends = Ends(),  # noqa: B008  (immutable)
) -> AsyncIterator[Client]:
    """A client whose connection is served; the server must have ended when the client has closed."""
    near, far = pair or trio.testing.memory_stream_pair()
    closing = trio.Event()
    table_ = routes or table()

    async def serve() -> None:
        head = await read_head(far, limits.head)
        if head is not None:
            await serve_http(far, head, table_, limits, closing, ends)
            with pytest.raises(trio.ClosedResourceError):
                await far.send_all(b"x")  # it was closed

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield Client(near, closing)
        await near.aclose()


async def test_a_request_is_answered() -> None:
    async with connection() as client:
        await client.ask("GET", "/hello?x=1")
        answer = await client.answer()
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["x-path"] == "/hello"
    assert answer.headers["date"].endswith(" GMT")
    assert "connection" not in answer.headers


async def test_an_application_is_told_the_request() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await hello(scope, receive, send)

    routes = Routes()
    routes.add_http("GET", "/caf%C3%A9", app)
    async with connection(routes, ends=Ends(("10.0.0.1", 5), ("10.0.0.2", 80), secure=True)) as client:
        await client.ask("GET", "/caf%C3%A9?q=%20", X_Name="a")
        await client.answer()
    (scope,) = seen
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
    assert (scope["http_version"], scope["method"], scope["scheme"]) == ("1.1", "GET", "https")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/café", b"/caf%C3%A9", b"q=%20")
    assert scope["headers"] == [(b"host", b"h"), (b"x-name", b"a")]
    assert (scope["client"], scope["server"]) == (("10.0.0.1", 5), ("10.0.0.2", 80))


async def test_a_connection_serves_many_requests() -> None:
    async with connection() as client:
        for n in range(20):
            await client.ask("POST", "/echo", b"%d" % n * n)
            assert (await client.answer()).body == b"%d" % n * n


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with connection() as client:
        one = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n%03d"
        await client.raw(b"".join(one % n for n in range(50)), *["POST"] * 50)
        assert [(await client.answer()).body for _ in range(50)] == [b"%03d" % n for n in range(50)]


async def test_a_body_that_the_application_leaves_is_skipped() -> None:
    async with connection() as client:
        await client.ask("POST", "/hello", b"x" * 30_000)
        assert (await client.answer()).status == 200
        await client.ask("GET", "/hello")
        assert (await client.answer()).status == 200


async def test_chunked_bodies_both_ways() -> None:
    async with connection() as client:
        chunked = b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.raw(chunked + b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-Trailer: t\r\n\r\n", "POST")
        assert (await client.answer()).body == b"abcdefg"
        await client.ask("GET", "/streamed")
        answer = await client.answer()
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.body == b"piece 0;piece 1;piece 2;"
        await client.ask("GET", "/hello")
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("path", ["/hello", "/streamed", "/nothing"])
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
        await client.raw(b"GET /streamed HTTP/1.0\r\n\r\n", "GET")
        answer = await client.answer()
        assert answer.body == b"piece 0;piece 1;piece 2;"
        assert answer.headers["connection"] == "close"
        assert await client.is_closed()


async def test_connection_close_is_honoured() -> None:
    async with connection() as client:
        await client.ask("GET", "/hello", Connection="close")
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.is_closed()


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
    head = await read_head(stream, LIMITS.head)
    assert head is not None
    await serve_http(stream, head, table(), HttpLimits(body_bytes=1000), trio.Event(), Ends())


# --- applications that fail --------------------------------------------------------------------


async def test_a_failing_application_is_500_with_an_id_that_is_in_the_log() -> None:
    with capture_logs() as logs:
        async with connection() as client:
            await client.ask("GET", "/broken")
            answer = await client.answer()
            assert answer.status == 500
            await client.ask("GET", "/hello")  # the connection lives
            assert (await client.answer()).status == 200
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert entry["error_id"] in answer.body.decode()
    assert isinstance(entry["exc_info"], LookupError)
    assert b"s3cret" not in answer.body


async def test_an_application_that_fails_inside_its_response_closes_the_connection() -> None:
    with capture_logs() as logs:
        async with connection() as client:
            await client.ask("GET", "/broken_inside")
            with pytest.raises(h11.RemoteProtocolError, match="incomplete"):
                await client.answer()
    assert [entry["event"] for entry in logs] == ["http_app_failed"]


async def test_an_application_that_never_answers_is_500() -> None:
    with capture_logs() as logs:
        async with connection() as client:
            await client.ask("GET", "/silent")
            assert (await client.answer()).status == 500
    assert len(logs) == 1


START = {"type": "http.response.start", "status": 200}
BODY = {"type": "http.response.body", "body": b"too long"}


@pytest.mark.parametrize(
    "messages",
    [
        [BODY],
        [START, START],
        [{"type": "http.response.trailers"}],
        [{**START, "headers": [(b"a", b"b\r\nc: d")]}, BODY],
        [{**START, "headers": [(b"content-length", b"1")]}, BODY],
    ],
)
async def test_an_application_that_breaks_the_rules_fails(messages: list[dict[str, object]]) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    with capture_logs() as logs:
        async with connection(table(app=app)) as client:
            await client.raw(b"GET /app HTTP/1.1\r\nHost: h\r\n\r\n", "GET")
            received = b""
            while data := await client.stream.receive_some():
                received += data
                if received.endswith(b"\n"):
                    break
    assert b"c: d" not in received
    assert [entry["event"] for entry in logs] == ["http_app_failed"]


# --- time --------------------------------------------------------------------------------------


async def test_an_idle_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with connection() as client:
        await client.ask("GET", "/hello")
        await client.answer()
        start = trio.current_time()
        assert await client.is_closed()
        assert trio.current_time() - start == pytest.approx(60)


async def test_a_slow_later_head_is_408(autojump_clock: trio.testing.MockClock) -> None:
    async with connection() as client:
        await client.ask("GET", "/hello")
        await client.answer()
        await trio.sleep(50)  # still within the idle time, which ends with the first byte
        await client.raw(b"GET", "GET")
        start = trio.current_time()
        assert (await client.answer()).status == 408
        assert trio.current_time() - start == pytest.approx(5)
        assert await client.is_closed()


async def test_a_body_by_the_byte_is_cut(autojump_clock: trio.testing.MockClock) -> None:
    async with connection() as client, trio.open_nursery() as nursery:
        await client.raw(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n", "POST")
        start = trio.current_time()

        @nursery.start_soon
        async def _dribble() -> None:
            while True:
                await client.raw(b"x")
                await trio.sleep(1)

        answer = await client.answer()
        nursery.cancel_scope.cancel()
    assert answer.status == 408
    assert trio.current_time() - start < 6


async def test_a_slow_body_that_gets_on_is_taken(autojump_clock: trio.testing.MockClock) -> None:
    async with connection() as client:
        await client.raw(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "POST")
        for _ in range(40):
            await client.raw(bytes(25_000))
            await trio.sleep(1)
        assert (await client.answer()).status == 200


async def test_a_client_that_does_not_read_is_dropped(autojump_clock: trio.testing.MockClock) -> None:
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, bytes(MIB))

    near, far = trio.testing.lockstep_stream_pair()
    async with connection(table(large=large), pair=(near, far)) as client:
        await client.ask("GET", "/large")
        received = len(await near.receive_some())
        start = trio.current_time()
        await trio.sleep(11)
        with pytest.raises(trio.BrokenResourceError):
            await near.send_all(b"x")
        assert received < 10_000
        assert trio.current_time() - start == pytest.approx(11)


async def test_a_client_that_reads_slowly_is_served(autojump_clock: trio.testing.MockClock) -> None:
    body = gzip.compress(bytes(range(256)) * 4000, 0)

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, body)

    near, far = trio.testing.lockstep_stream_pair()
    async with connection(table(large=large), pair=(near, far)) as client:
        await client.ask("GET", "/large")
        while len(client.received) < len(body):
            client.received += await near.receive_some(4096)
            await trio.sleep(4)
        assert (await client.answer()).body == body


# --- clients that leave ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /echo HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
async def test_clients_may_leave_at_any_time(data: bytes) -> None:
    with capture_logs() as logs:
        async with connection() as client:
            await client.ask("GET", "/hello")
            await client.answer()
            await client.raw(data)
            await trio.testing.wait_all_tasks_blocked()
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []


async def test_an_application_learns_that_its_client_has_left() -> None:
    learned: list[str] = []

    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["more_body"] is False
        learned.append((await receive())["type"])
        with pytest.raises(ClientGone):
            await respond(send, 200, b"x")

    with capture_logs() as logs:
        async with connection(table(patient=patient)) as client:
            await client.ask("GET", "/patient")
            await trio.testing.wait_all_tasks_blocked()
            assert learned == []
    assert learned == ["http.disconnect"]
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []


async def test_waiting_for_the_client_to_leave_keeps_its_next_request() -> None:
    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await respond(send, 200, b"x")

    async with connection(table(watching=watching)) as client:
        await client.raw(b"GET /watching HTTP/1.1\r\nHost: h\r\n\r\nGET /hel", "GET")
        await client.raw(b"lo HTTP/1.1\r\nHost: h\r\n\r\n", "GET")
        assert (await client.answer()).body == b"x"
        assert (await client.answer()).body == b"hello"


# --- shutdown ----------------------------------------------------------------------------------


async def test_shutdown_ends_an_idle_connection_at_once() -> None:
    async with connection() as client:
        await client.ask("GET", "/hello")
        await client.answer()
        await trio.testing.wait_all_tasks_blocked()
        client.closing.set()
        assert await client.is_closed()


async def test_shutdown_finishes_the_running_request() -> None:
    begin = trio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await begin.wait()
        await respond(send, 200, b"whole")

    async with connection(table(slow=slow)) as client:
        await client.ask("GET", "/slow")
        await trio.testing.wait_all_tasks_blocked()
        client.closing.set()
        await trio.testing.wait_all_tasks_blocked()
        begin.set()
        answer = await client.answer()
        assert (answer.body, answer.headers["connection"]) == (b"whole", "close")
        assert await client.is_closed()


# --- properties --------------------------------------------------------------------------------


REQUESTS = [
    ("GET", b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("HEAD", b"HEAD /streamed HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("POST", b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd"),
    ("POST", b"POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nleft"),
    ("POST", b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
    ("GET", b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n"),
]


@given(
    requests=st.lists(st.sampled_from(REQUESTS), max_size=6),
    cuts=st.lists(st.integers(0, 600), max_size=12),
)
def test_any_cutting_of_any_requests_gives_the_same_answers(
    requests: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    data = b"".join(raw for _, raw in requests)

    async def run(cuts: list[int]) -> list[tuple[int, bytes]]:
        edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        async with connection() as client:
            client.methods = [method for method, _ in requests]
            for start, end in itertools.pairwise(edges):
                await client.stream.send_all(data[start:end])
                await trio.testing.wait_all_tasks_blocked()
            answers = [await client.answer() for _ in requests]
        return [(answer.status, answer.body) for answer in answers]

    assert trio.run(run, cuts) == trio.run(run, [])
