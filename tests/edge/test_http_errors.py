"""Error responses: their bytes, and that sending them never hangs."""

from __future__ import annotations

import h11
import pytest
import trio
import trio.testing

from kiwi_gw.edge.http_errors import HttpError, refuse, render_error


def parse(data: bytes) -> tuple[int, dict[str, str], bytes]:
    """A response as an independent client reads it."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return response.status_code, {k.decode(): v.decode() for k, v in response.headers}, body


@pytest.mark.parametrize("status", [400, 403, 404, 405, 408, 413, 414, 417, 426, 431, 500, 501, 503, 505])
def test_an_error_is_a_whole_response(status: int) -> None:
    code, headers, body = parse(render_error(HttpError(status, "What is wrong – in words", (("X-A", "b"),))))
    assert code == status
    assert body.decode() == "What is wrong – in words\n"
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["connection"] == "close"
    assert headers["x-a"] == "b"
    assert headers["date"].endswith(" GMT")


def test_503_says_when_to_come_back() -> None:
    assert parse(render_error(HttpError(503, "full")))[1]["retry-after"] == "5"
    assert parse(render_error(HttpError(503, "full", (("retry-after", "30"),))))[1]["retry-after"] == "30"


def test_whoever_sends_upgrade_names_it_in_connection() -> None:
    headers = parse(render_error(HttpError(426, "x", (("Upgrade", "websocket"),))))[1]
    assert (headers["upgrade"], headers["connection"]) == ("websocket", "close, Upgrade")


async def test_refuse_answers_reads_the_rest_and_closes() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(b"x" * 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse, server, HttpError(400, "no"))
        data = b""
        while piece := await client.receive_some():
            data += piece
        await client.aclose()
    assert parse(data)[0] == 400
    with pytest.raises(trio.ClosedResourceError):
        await server.receive_some()


async def test_refuse_waits_for_nobody(autojump_clock: trio.testing.MockClock) -> None:
    """A client that does not read, and one that reads but neither writes nor leaves."""
    start = trio.current_time()
    _silent, stalled = trio.testing.lockstep_stream_pair()
    await refuse(stalled, HttpError(400, "no"))
    assert trio.current_time() - start == pytest.approx(10)
    start = trio.current_time()
    _idle, server = trio.testing.memory_stream_pair()
    await refuse(server, HttpError(400, "no"))
    assert trio.current_time() - start == pytest.approx(1)


async def test_refuse_ends_with_a_client_that_floods(autojump_clock: trio.testing.MockClock) -> None:
    client, server = trio.testing.memory_stream_pair()

    async def send_for_ever() -> None:
        while True:
            await client.send_all(bytes(64 * 1024))

    async def flood() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await send_for_ever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        await refuse(server, HttpError(400, "no"))


async def test_refuse_bears_a_client_that_has_left() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.aclose()
    await refuse(server, HttpError(400, "no"))
