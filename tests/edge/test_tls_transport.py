"""TLS over real sockets, without waiting."""

from __future__ import annotations

import errno
import hashlib
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing
import trustme

from kiwi_gw.edge.transports import Bytes, TlsTransport
from tests.edge.test_transports import KINDS, MIB, Failing, pair, read_exactly

_OVERHEAD = 22
"""What a record of TLS 1.3 is longer than what is in it: its head, its type and its tag."""


@asynccontextmanager
async def tls_ends(
    kind: str = "tcp", out: ssl.MemoryBIO | None = None
) -> AsyncIterator[tuple[TlsTransport, trio.SSLStream[trio.SocketStream]]]:
    authority = trustme.CA()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("gateway.test").configure_cert(server_context)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client_context)
    plain, there = pair(kind)
    transport = TlsTransport(plain, server_context, out)
    client = trio.SSLStream(there, client_context, server_hostname="gateway.test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.do_handshake)
        await client.do_handshake()
    yield transport, client
    transport.close()
    there.socket.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_tls_gives_a_slow_reader_every_byte_and_holds_one_chunk(kind: str) -> None:
    sizes = random.Random(5)
    data = sizes.randbytes(3 * MIB)
    async with tls_ends(kind) as (transport, client):

        async def write() -> None:
            at = 0
            while at < len(data) or transport.pending:
                end = at + sizes.choice([1, 7, 1_000, 100_000])
                pieces = [data[at : at + 3], data[at + 3 : end]]
                at += transport.try_send_many([memoryview(piece) for piece in pieces])
                assert len(transport._unsent) < 130 * 1024
                assert not transport._out.pending
                if not transport.flush():
                    await transport.wait_writable()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            got = hashlib.sha256()
            size = 0
            while size < len(data):
                await trio.testing.wait_all_tasks_blocked()  # everything is full before it reads on
                more = await client.receive_some(sizes.choice([10_000, 300_000]))
                got.update(more)
                size += len(more)
        assert got.digest() == hashlib.sha256(data).digest()
        assert not transport.pending


async def test_many_small_buffers_are_one_record_and_one_send(monkeypatch: pytest.MonkeyPatch) -> None:
    async with tls_ends() as (transport, client):
        plain, sent = transport._inner, list[int]()
        send = plain.try_send

        def counted(data: Bytes) -> int:
            sent.append(len(data))
            return send(data)

        monkeypatch.setattr(plain, "try_send", counted)
        assert transport.try_send_many([b"%03d" % number for number in range(300)]) == 900
        assert sent == [900 + _OVERHEAD]
        assert await read_exactly(client, 900) == b"".join(b"%03d" % number for number in range(300))


async def test_what_is_large_is_not_joined_with_what_follows() -> None:
    """Nothing is copied that fills a send by itself, and nothing is lost where a client takes a part only."""
    async with tls_ends() as (transport, client), trio.open_nursery() as nursery:
        pieces = [bytes([number]) * size for number, size in enumerate((5, 200_000, 7, 7, 900_000))]
        whole, taken = b"".join(pieces), transport.try_send_many(pieces)
        assert 200_000 < taken < len(whole)
        assert transport.pending
        nursery.start_soon(transport.send_all, whole[taken:])
        assert await read_exactly(client, len(whole)) == whole


async def test_connections_share_the_buffer_that_openssl_writes_into() -> None:
    out = ssl.MemoryBIO()
    async with tls_ends(out=out) as (full, slow), tls_ends(out=out) as (free, client):
        sent = 0
        while taken := full.try_send(bytes(32 * 1024)):
            sent += taken
        assert full.pending
        assert free.try_send(b"x" * 1_000) == 1_000
        assert not free.pending
        assert await read_exactly(client, 1_000) == b"x" * 1_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(full.send_all, b"end")
            assert await read_exactly(slow, sent + 3) == bytes(sent) + b"end"


async def test_tls_reads_while_it_writes() -> None:
    async with tls_ends() as (transport, client), trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"question")
        nursery.start_soon(transport.send_all, b"answer" * 100_000)
        assert await read_exactly(transport, 8) == b"question"
        assert await read_exactly(client, 600_000) == b"answer" * 100_000


async def test_tls_passes_a_lack_of_memory_and_other_errors_on() -> None:
    async with tls_ends() as (transport, client):
        sock = Failing(transport.socket, errno.ENOBUFS)
        transport._inner.socket = sock
        assert transport.try_send(b"hello") == 5
        assert transport.pending
        await transport.wait_writable()
        assert transport.flush()
        assert await read_exactly(client, 5) == b"hello"
        sock.errors = [errno.EACCES]
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                assert await transport.receive_some() == b""

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            transport.try_send(b"x")
        assert transport.broken


async def test_tls_to_a_peer_that_is_gone_breaks_without_an_exception() -> None:
    async with tls_ends() as (transport, client):
        while transport.try_send(bytes(32 * 1024)) and transport.flush():
            pass
        client.transport_stream.socket.close()
        with trio.fail_after(2):
            while not transport.broken:
                await transport.wait_writable()
                transport.flush()
        assert transport.try_send(b"x") == 0
        assert not transport.flush()
        with pytest.raises(trio.BrokenResourceError):
            await transport.send_all(b"x")


async def test_tls_ends_where_the_client_says_goodbye_and_where_it_does_not() -> None:
    async with tls_ends() as (transport, client), trio.open_nursery() as nursery:
        nursery.start_soon(client.aclose)
        assert await transport.receive_some() == b""
        assert await transport.receive_some() == b""
    async with tls_ends() as (transport, client):
        await client.transport_stream.send_eof()
        assert await transport.receive_some() == b""


async def test_who_speaks_no_tls_gets_an_alert() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("gateway.test").configure_cert(context)
    plain, client = pair("tcp")
    transport = TlsTransport(plain, context)
    await client.send_all(b"GET / HTTP/1.1\r\nHost: gateway.test\r\n\r\n")
    with pytest.raises(trio.BrokenResourceError):
        await transport.do_handshake()
    transport.close()
    with suppress(trio.BrokenResourceError):
        assert (await client.receive_some())[:1] in (b"\x15", b"")
    client.socket.close()


async def test_tls_closed_while_somebody_waits() -> None:
    async with tls_ends() as (transport, _), trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await transport.receive_some()

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        transport.close()
