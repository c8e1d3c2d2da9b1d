"""Plain HTTP where something fails, waits, leaves or stops; and any cutting of any requests."""

from __future__ import annotations

import gzip
import itertools

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kiwi_gw.dialect_api import ErrorPages, HttpResponse
from kiwi_gw.edge.plain_request import PlainRequest
from tests.edge.http_bench import (
    MIB,
    connection,
    table,
)

# --- handlers that fail ------------------------------------------------------------------------


async def test_a_failing_handler_is_500_with_an_id_that_is_in_the_log() -> None:
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


@pytest.mark.parametrize(
    ("header", "status"),
    [
        *[((name, "1"), 200) for name in ("Content-Length", "date", "", " a", "a b", "a:b", "é")],
        (("a", "b\r\nc: d"), 200),
        (("a", "b\0"), 200),
        (("a", "b"), 101),
        (("a", "b"), 42),
    ],
)
async def test_a_handler_that_breaks_the_rules_fails(header: tuple[str, str], status: int) -> None:
    async def breaks(request: PlainRequest) -> HttpResponse:
        return HttpResponse(status, b"too long", headers=(header,))

    with capture_logs() as logs:
        async with connection(table(breaks=breaks)) as client:
            await client.ask("GET", "/breaks")
            answer = await client.answer()
    assert (answer.status, "c" in answer.headers) == (500, False)
    assert [entry["event"] for entry in logs] == ["http_app_failed"]


async def test_an_error_page_that_breaks_them_gives_way_to_text() -> None:
    routes = table()
    routes.add_error_pages(
        ErrorPages("/x", lambda failure: HttpResponse(failure.status, b"{}", headers=(("Date", "then"),)))
    )
    with capture_logs() as logs:
        async with connection(routes) as client:
            await client.ask("GET", "/x/y")
            answer = await client.answer()
    assert (answer.status, answer.body) == (404, b"nothing is served at this path\n")
    assert [entry["event"] for entry in logs] == ["error_page_failed"]


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
    async def large(request: PlainRequest) -> HttpResponse:
        return HttpResponse(200, bytes(MIB))

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

    async def large(request: PlainRequest) -> HttpResponse:
        return HttpResponse(200, body)

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

    async def slow(request: PlainRequest) -> HttpResponse:
        await begin.wait()
        return HttpResponse(200, b"whole")

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
    ("HEAD", b"HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n"),
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
