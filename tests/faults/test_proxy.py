"""The proxy does to a connection what its words say, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import trio

from tests.faults.proxy import BLACKHOLE, PAUSE, Proxy, Way, proxy

WORD = b"0123456789" * 100


@pytest.fixture
async def echo(nursery: trio.Nursery) -> int:
    """Return the port of a server that sends back what it gets, and closes when its client does."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            async for data in stream:
                await stream.send_all(data)
        except trio.BrokenResourceError:
            pass  # a test has reset it

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    port: int = listener.socket.getsockname()[1]
    return port


@pytest.fixture
async def between(echo: int) -> AsyncIterator[Proxy]:
    async with proxy(echo) as one:
        yield one


Connect = Callable[[], Awaitable[trio.SocketStream]]


@pytest.fixture
async def connect(between: Proxy) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def open_stream() -> trio.SocketStream:
            return await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", between.port))

        yield open_stream


@pytest.fixture
async def stream(connect: Connect) -> trio.SocketStream:
    stream = await connect()
    assert await say(stream, b"hello") == b"hello"
    return stream


async def say(stream: trio.SocketStream, data: bytes) -> bytes:
    await stream.send_all(data)
    return await hear(stream, len(data))


async def hear(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some()
        if not more:
            break
        data += more
    return data


async def nothing_comes(stream: trio.SocketStream) -> None:
    with trio.move_on_after(0.2):
        raise AssertionError(await stream.receive_some())


async def test_it_passes_everything_and_the_end(between: Proxy, stream: trio.SocketStream) -> None:
    assert await say(stream, WORD * 1_000) == WORD * 1_000
    await stream.send_eof()
    assert await stream.receive_some() == b""
    assert between.passed == {"up": len(WORD) * 1_000 + 5, "down": len(WORD) * 1_000 + 5}


async def test_pause_holds_back_and_heal_lets_go(between: Proxy, stream: trio.SocketStream) -> None:
    between.apply(PAUSE)
    await stream.send_all(WORD)
    await nothing_comes(stream)
    between.heal()
    assert await hear(stream, len(WORD)) == WORD


async def test_a_black_hole_is_silent_and_what_was_in_it_stays_dead(
    between: Proxy, stream: trio.SocketStream, connect: Connect
) -> None:
    between.apply(BLACKHOLE)
    await stream.send_all(WORD)
    late = await connect()
    await late.send_all(WORD)
    await nothing_comes(stream)
    between.heal()
    await nothing_comes(stream)
    await nothing_comes(late)
    assert await say(await connect(), WORD) == WORD


async def test_reset(between: Proxy, stream: trio.SocketStream, connect: Connect) -> None:
    between.reset()
    with pytest.raises(trio.BrokenResourceError):
        await hear(stream, 1)
    assert await say(await connect(), WORD) == WORD
    assert between.open == 1


async def test_half_close(between: Proxy, stream: trio.SocketStream) -> None:
    between.half_close("down")
    assert await stream.receive_some() == b""
    await stream.send_all(WORD)
    with trio.fail_after(5):
        while between.passed["up"] < len(WORD):
            await trio.testing.wait_all_tasks_blocked()


async def test_delay_is_of_every_byte_and_of_one_direction(between: Proxy, stream: trio.SocketStream) -> None:
    between.apply(down=Way(delay=0.3))
    began = trio.current_time()
    assert await say(stream, WORD) == WORD
    assert 0.3 <= trio.current_time() - began < 3


async def test_bandwidth(between: Proxy, stream: trio.SocketStream) -> None:
    between.apply(up=Way(bytes_per_second=20_000, piece=500))
    began = trio.current_time()
    assert await say(stream, WORD * 5) == WORD * 5
    assert 0.2 <= trio.current_time() - began < 3


async def test_byte_by_byte_arrives_whole(between: Proxy, stream: trio.SocketStream) -> None:
    between.apply(Way(piece=1))
    assert await say(stream, WORD) == WORD


async def test_corrupt_turns_bits_over(between: Proxy, stream: trio.SocketStream) -> None:
    between.apply(down=Way(corrupt_every=100))
    got = await say(stream, WORD)
    wrong = [index for index, byte in enumerate(got) if byte != WORD[index]]
    assert 3 < len(wrong) < 30
    assert all((got[index] ^ WORD[index]).bit_count() == 1 for index in wrong)


async def test_only_runs_of_a_byte_are_corrupted(between: Proxy, stream: trio.SocketStream) -> None:
    between.apply(down=Way(corrupt_every=1, corrupt_in=b"x"))
    said = b"-x-xxx-" * 20 + b"xxxxxxxx" + b"-x-" * 20
    got = await say(stream, said)
    wrong = [index for index, byte in enumerate(got) if byte != said[index]]
    assert wrong
    assert 140 <= min(wrong) <= max(wrong) < 148


async def test_where_nobody_listens_it_is_reset() -> None:
    async with proxy(1) as between, await trio.open_tcp_stream("127.0.0.1", between.port) as stream:
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
