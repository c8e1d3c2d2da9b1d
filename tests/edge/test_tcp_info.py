"""Whether the other machine answers: recorded TCP_INFO, and the kernel itself.

A machine that vanishes is played by a filter on the client's socket that drops whatever arrives: its kernel
then acknowledges nothing. That needs no rights and no network. (The real thing, a link taken down between two
network namespaces, is where the recorded values are from.)
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator

import pytest
import trio

from kiwi_gw.edge.tcp_info import TCP_INFO_BYTES, unanswered
from kiwi_gw.edge.transports import SocketTransport
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.edge.wire import connect

SO_ATTACH_FILTER = 26  # asm-generic/socket.h


def info(*, probes: int = 0, unacked: int = 0, last_data_sent: int = 0, last_ack_recv: int = 0) -> bytes:
    """`struct tcp_info` with these members, the others as a live connection has them."""
    data = bytearray(TCP_INFO_BYTES)
    data[0] = 1  # established
    data[3] = probes
    for offset, value in ((8, 204_000), (24, unacked), (44, last_data_sent), (56, last_ack_recv)):
        struct.pack_into("=I", data, offset, value)
    return bytes(data)


# Recorded on Linux 6.18 over a veth pair whose far end was taken down (times in ms).
RECORDED = {
    "streaming": (info(unacked=1, last_data_sent=0, last_ack_recv=52), 0.052),
    "streaming, all of it answered": (info(last_data_sent=4, last_ack_recv=0), None),
    "streaming, the link down for 1 s": (info(unacked=1, last_data_sent=0, last_ack_recv=1_068), 1.068),
    "streaming, down for 30 s": (info(unacked=5, last_data_sent=932, last_ack_recv=29_592), 29.592),
    "idle": (info(last_data_sent=5_080, last_ack_recv=5_080), None),
    "idle, then sent something, the link down": (
        info(unacked=1, last_data_sent=52, last_ack_recv=46_076),
        46.076,
    ),
    "not reading, all probes answered": (info(last_data_sent=45_424, last_ack_recv=14_740), None),
    "not reading, a probe underway": (info(probes=1, last_data_sent=1_356, last_ack_recv=1_068), 1.068),
    "not reading, the link down": (info(probes=1, last_data_sent=67_864, last_ack_recv=37_180), 37.18),
    # A receiver without memory drops what it had promised to take, and answers every attempt.
    "not reading, resent and answered": (info(unacked=3, last_data_sent=40_100, last_ack_recv=40_000), None),
}


@pytest.mark.parametrize(("data", "seconds"), RECORDED.values(), ids=RECORDED)
def test_what_the_kernel_says(data: bytes, seconds: float | None) -> None:
    assert unanswered(data) == seconds
    assert unanswered(data + bytes(200)) == seconds  # later kernels say more


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


def vanish(sock: socket.socket) -> None:
    """From now on the socket's kernel drops whatever arrives for it."""
    drop = _Instruction(0x06, 0, 0, 0)  # return 0 bytes of the packet
    program = struct.pack("HP", 1, ctypes.addressof(drop))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


@pytest.fixture
def pair() -> Iterator[tuple[SocketTransport, socket.socket]]:
    """The server's transport and the client's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with client, accepted:
            transport = SocketTransport(accepted)
            transport.set_options(16 * 1024)
            yield transport, client


async def silent_for(transport: SocketTransport, seconds: float) -> bool:
    """Looks again and again, for twice as long, whether nothing was answered for so long."""
    until = trio.current_time() + 2 * seconds
    while True:
        over = trio.current_time() >= until  # before the last look, which may come late
        silence = transport.unanswered()
        if silence is not None and silence >= seconds:
            return True
        if over:
            return False
        await trio.sleep(0.01)  # there is no event in the kernel to wait for


async def test_a_machine_that_has_vanished(pair: tuple[SocketTransport, socket.socket]) -> None:
    transport, client = pair
    assert transport.unanswered() is None
    vanish(client)
    assert transport.unanswered() is None  # nobody has asked it anything
    assert transport.try_send(b"x" * 1000) == 1000
    assert await silent_for(transport, 0.3)


async def test_a_client_that_only_does_not_read(pair: tuple[SocketTransport, socket.socket]) -> None:
    transport, _ = pair
    while transport.try_send(b"x" * 65_536):
        pass
    assert not await silent_for(transport, 0.3)


async def test_one_that_did_not_read_and_has_vanished(pair: tuple[SocketTransport, socket.socket]) -> None:
    transport, client = pair
    while transport.try_send(b"x" * 65_536):
        pass
    vanish(client)
    assert await silent_for(transport, 0.5)  # as soon as the next probe is out


async def test_a_client_that_reads(pair: tuple[SocketTransport, socket.socket]) -> None:
    transport, client = pair
    for _ in range(20):
        transport.try_send(b"x" * 1000)
        client.recv(65_536)
    assert not await silent_for(transport, 0.1)


def test_other_sockets_say_nothing() -> None:
    near, far = socket.socketpair()
    with near, far:
        transport = SocketTransport(near)
        transport.try_send(b"x")
        assert transport.unanswered() is None
    assert transport.unanswered() is None  # closed


CONFIG = """
plugins: [scripted]
sources:
  - {type: scripted, id: news}
server:
  limits: {vanished_after_ms: 2s}
"""


@pytest.mark.integration
async def test_the_gateway_lets_a_vanished_machine_go_and_keeps_one_that_only_does_not_read() -> None:
    scripted = ScriptedSources()

    async def publish() -> None:
        await scripted["news"].publish([b"x" * 100_000] * 10)
        await trio.sleep(0.05)

    async with (
        open_gateway(CONFIG, plugins={"scripted": scripted}) as gateway,
        connect(gateway) as reads,
        connect(gateway) as stalls,
        connect(gateway) as vanishes,
        trio.open_nursery() as nursery,
    ):
        for client in (reads, stalls, vanishes):
            await client.subscribe("news")

        async def read() -> None:
            while True:
                await reads.frame()

        nursery.start_soon(read)
        # Everything that it sent is acknowledged by now: its kernel has nothing to send again.
        vanish(vanishes.stream.socket)  # type: ignore[attr-defined]
        keepalive = gateway.gateway.keepalive
        with trio.fail_after(10):
            while len(gateway.gateway.connections) == 3:
                await publish()
        with trio.move_on_after(4):  # twice as long as the other one had
            while True:
                await publish()
        assert (keepalive.vanished, keepalive.stalled, keepalive.unresponsive) == (1, 0, 0)
        assert sorted(item.number for item in gateway.gateway.connections) == [1, 2]
        assert any(item.writer.full for item in gateway.gateway.connections)
        nursery.cancel_scope.cancel()
