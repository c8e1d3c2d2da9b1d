"""Client sockets, over real ones."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import trio
import trio.testing

from kiwi_gw.edge import listener
from kiwi_gw.edge.transports import SocketTransport
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.edge.wire import connect

KINDS = ("tcp", "unix")
MIB = 1024 * 1024


def pair(kind: str) -> tuple[SocketTransport, trio.SocketStream]:
    """The gateway's end and the client's end of a connection."""
    if kind == "unix":
        here, there = socket.socketpair()
    else:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            there = socket.create_connection(server.getsockname())
            here, _ = server.accept()
    transport = SocketTransport(here)
    transport.set_options(16 * 1024)
    there.setblocking(False)
    return transport, trio.SocketStream(trio.socket.from_stdlib_socket(there))


@pytest.fixture(params=KINDS)
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SocketTransport, trio.SocketStream]]:
    transport, client = pair(request.param)
    yield transport, client
    transport.close()
    client.socket.close()


def fill(transport: SocketTransport) -> int:
    """Write until nothing is taken any more."""
    total = 0
    while taken := transport.try_send(bytes(32 * 1024)):
        total += taken
    return total


async def read_exactly(client: trio.abc.ReceiveStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = await client.receive_some(min(64 * 1024, size - len(data)))
        assert more, f"ended after {len(data)} of {size} bytes"
        data += more
    return bytes(data)


# --- plain sockets --------------------------------------------------------------------------------


async def test_sending_never_waits_and_says_what_was_taken(
    ends: tuple[SocketTransport, trio.SocketStream],
) -> None:
    transport, client = ends
    assert transport.try_send(b"hello") == 5
    assert transport.try_send_many([b"a", b"", bytearray(b"bc"), memoryview(b"def")]) == 6
    assert transport.try_send_many([b"one"]) == 3
    assert await read_exactly(client, 14) == b"helloabcdefone"
    taken = fill(transport)
    assert transport.try_send(b"x") == 0
    assert transport.try_send_many([b"x", b"y"]) == 0
    assert not transport.broken
    assert await read_exactly(client, taken) == bytes(taken)
    with trio.fail_after(2):
        await transport.wait_writable()
    assert transport.try_send(b"x") == 1


async def test_the_kernel_holds_little_for_a_client_that_does_not_read() -> None:
    transport, client = pair("unix")
    # A Unix socket charges every write with its overhead: this is what bounds it.
    assert fill(transport) <= 4 * 16 * 1024
    transport.close()
    client.socket.close()
    transport, client = pair("tcp")
    sock = transport.socket
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 16 * 1024
    transport.close()
    client.socket.close()


async def test_more_buffers_than_the_kernel_takes_in_one_call_are_a_short_write() -> None:
    transport, client = pair("unix")
    taken = transport.try_send_many([b"x"] * 5000)
    assert 0 < taken <= 5000
    transport.close()
    client.socket.close()


async def test_a_peer_that_is_gone_breaks_it_without_an_exception(
    ends: tuple[SocketTransport, trio.SocketStream],
) -> None:
    transport, client = ends
    fill(transport)  # what it has not read makes its end a reset
    client.socket.close()
    with trio.fail_after(2):
        while not transport.broken:
            await transport.wait_writable()
            transport.try_send(bytes(100))
    assert transport.try_send(b"x") == 0
    assert transport.try_send_many([b"x", b"y"]) == 0
    with pytest.raises(trio.BrokenResourceError):
        await transport.send_all(b"x")


async def test_whoever_waits_while_it_is_closed_is_told(
    ends: tuple[SocketTransport, trio.SocketStream],
) -> None:
    transport, _ = ends
    fill(transport)
    told = []

    async def wait(how: str) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await getattr(transport, how)()
        told.append(how)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "wait_writable")
        nursery.start_soon(wait, "receive_some")
        await trio.testing.wait_all_tasks_blocked()
        transport.close()
        transport.close()  # twice is once
    assert sorted(told) == ["receive_some", "wait_writable"]


@pytest.mark.parametrize("how", ["wait_writable", "receive_some", "wait_send_all_might_not_block"])
async def test_closed_it_is_not_waited_for(ends: tuple[SocketTransport, trio.SocketStream], how: str) -> None:
    transport, _ = ends
    transport.close()
    with pytest.raises(trio.ClosedResourceError):
        await getattr(transport, how)()
    assert transport.try_send(b"x") == 0


async def test_it_never_writes_into_a_descriptor_that_is_somebody_elses_by_now() -> None:
    first, first_client = pair("tcp")
    first.close()
    second, second_client = pair("tcp")  # gets the number of the first
    assert first.try_send(b"for the first") == 0
    second.close()
    assert await second_client.receive_some() == b""
    first_client.socket.close()
    second_client.socket.close()


# --- sends that fail, but not for the peer --------------------------------------------------------


class Failing(socket.socket):
    """A socket whose sends fail with these errors, one after the other; then they work."""

    def __init__(self, sock: socket.socket, *errors: int) -> None:
        super().__init__(fileno=sock.detach())
        self.errors = list(errors)
        self.tries = 0

    def _fail(self) -> None:
        self.tries += 1
        if self.errors:
            code = self.errors.pop(0)
            raise OSError(code, os.strerror(code))

    def send(self, *args: Any) -> int:
        self._fail()
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        self._fail()
        return super().sendmsg(*args)


def failing(kind: str, *errors: int) -> tuple[SocketTransport, Failing, trio.SocketStream]:
    transport, client = pair(kind)
    sock = Failing(transport.socket, *errors)
    return SocketTransport(sock), sock, client


@pytest.mark.parametrize("code", [errno.ENOBUFS, errno.ENOMEM])
async def test_a_machine_without_memory_takes_nothing_now_and_is_asked_again_later(
    autojump_clock: trio.testing.MockClock, code: int
) -> None:
    transport, sock, client = failing("unix", code, code, code)
    assert transport.try_send(b"x") == 0
    assert transport.try_send_many([b"x", b"y"]) == 0
    assert not transport.broken
    began = trio.current_time()
    await transport.wait_writable()
    assert trio.current_time() > began, "the socket is writable all the time"
    await transport.send_all(b"xyz")
    assert sock.tries == 4
    assert await read_exactly(client, 3) == b"xyz"
    now = trio.current_time()
    await transport.wait_writable()
    assert trio.current_time() == now
    transport.close()
    client.socket.close()


@pytest.mark.parametrize("how", ["try_send", "try_send_many"])
async def test_an_error_for_good_wakes_the_reader(how: str) -> None:
    transport, _, client = failing("tcp", errno.EHOSTUNREACH)
    await client.send_all(b"last words")
    assert await transport.receive_some(4) == b"last"
    got = []

    async def read() -> None:
        while data := await transport.receive_some():
            got.append(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert getattr(transport, how)([b"x", b"y"] if how == "try_send_many" else b"x") == 0
    assert (transport.broken, got) == (True, [b" words"])
    await transport.wait_writable()  # whoever waits for that must look, too
    transport.close()
    client.socket.close()


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[Failing]:
    """The sockets that a gateway accepts from now on."""
    made: list[Failing] = []

    def transport(sock: socket.socket) -> SocketTransport:
        made.append(Failing(sock))
        return SocketTransport(made[-1])

    monkeypatch.setattr(listener, "SocketTransport", transport)
    return made


SCRIPTED = "{plugins: [scripted], sources: [{type: scripted, id: a}]}"


async def test_a_client_gets_everything_once_the_machine_has_memory_again(sockets: list[Failing]) -> None:
    scripted = ScriptedSources()
    async with open_gateway(SCRIPTED, plugins={"scripted": scripted}) as gateway, connect(gateway) as client:
        await client.subscribe("a")
        sockets[0].errors = [errno.ENOBUFS] * 4
        await scripted["a"].publish([b"1", b"2"])
        await scripted["a"].publish([b"3"])
        with trio.fail_after(10):
            assert [(await client.message())["data"]["value"] for _ in range(3)] == ["1", "2", "3"]
        assert sockets[0].errors == []


async def test_a_client_that_cannot_be_sent_to_is_let_go_of_at_once(sockets: list[Failing]) -> None:
    scripted = ScriptedSources()
    async with (
        open_gateway(SCRIPTED, plugins={"scripted": scripted}) as gateway,
        connect(gateway) as lost,
        connect(gateway) as stays,
    ):
        for client in (lost, stays):
            await client.subscribe("a")
        sockets[0].errors = [errno.EHOSTUNREACH] * 100
        await scripted["a"].publish([b"1"])
        assert (await stays.message())["data"]["value"] == "1"
        await trio.testing.wait_all_tasks_blocked()
        hub = gateway.gateway.hub("a")
        assert hub is not None
        assert (len(gateway.gateway.connections), hub.subscribers) == (1, 1)
        assert sockets[0].fileno() < 0
