"""Client sockets: read like a Trio stream, written without waiting.

`try_send` is the gateway's hot call: it hands bytes to the kernel directly and returns how many it took.
It goes through the socket object, never through a bare descriptor, which could already belong to another
client. All writing of one connection happens through one owner (the frame writer, or one HTTP request), so
there is no lock.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import ParamSpec, Protocol, TypeVar

import trio

from kiwi_gw.edge import tcp_info

Bytes = bytes | bytearray | memoryview

_P = ParamSpec("_P")
_T = TypeVar("_T")

_RECEIVE_BYTES = 16 * 1024
_TLS_CHUNK = 128 * 1024
"""How much is encrypted at a time: eight full records, in one send. More takes less CPU, and more memory of
clients that stall."""
_NOTHING = memoryview(b"")
_MAX_BUFFERS = 512
_NO_MEMORY = (errno.ENOBUFS, errno.ENOMEM)
_NO_MEMORY_SECONDS = 0.05
"""After how long to try again where the machine had no memory for what was sent."""


class Transport(Protocol):
    """What a frame writer needs of a socket.

    broken: a send has failed for good; the reader has been woken, finds the end and ends the connection.
    pending: bytes that were taken but not given to the kernel yet (TLS only); `flush` tries again.
    """

    @property
    def broken(self) -> bool: ...

    @property
    def pending(self) -> bool: ...

    def try_send(self, data: Bytes) -> int: ...

    def try_send_many(self, buffers: Sequence[Bytes]) -> int: ...

    def flush(self) -> bool:
        """Whether nothing is pending any more."""

    def unanswered(self) -> float | None:
        """Seconds since the other machine last answered, if it was sent something that it has not answered
        yet; None if it was not, or where that cannot be known (`tcp_info`)."""

    async def wait_writable(self) -> None: ...


class SocketTransport(trio.abc.HalfCloseableStream):
    """A connected, non-blocking stream socket (TCP or Unix)."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.broken = False
        self.pending = False
        self._no_memory = False

    def set_options(self, unsent_bytes: int) -> None:
        """TCP only: send at once, and let the kernel hold at most about `unsent_bytes` of unsent bytes
        for a client that does not read."""
        if self.socket.family in (socket.AF_INET, socket.AF_INET6):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)
        elif self.socket.family == socket.AF_UNIX:
            # A Unix socket has no such mark; its send buffer is all that it holds.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unsent_bytes)

    def try_send(self, data: Bytes) -> int:
        if self.broken:
            return 0
        try:
            return self.socket.send(data)
        except OSError as error:
            return self._not_taken(error)

    def try_send_many(self, buffers: Sequence[Bytes]) -> int:
        if len(buffers) == 1:
            return self.try_send(buffers[0])
        if self.broken:
            return 0
        try:
            return self.socket.sendmsg(buffers[:_MAX_BUFFERS])
        except OSError as error:
            return self._not_taken(error)

    def _not_taken(self, error: OSError) -> int:
        if error.errno in _NO_MEMORY:
            self._no_memory = True
        elif not isinstance(error, BlockingIOError):
            self.give_up()
        return 0

    def give_up(self) -> None:
        """Nothing can be sent any more. Its reader may wait for a peer that says nothing: it gets what has
        arrived, and then the end."""
        self.broken = True
        with suppress(OSError):  # the peer was quicker: then the reader knows
            self.socket.shutdown(socket.SHUT_RDWR)

    def flush(self) -> bool:
        return True

    def unanswered(self) -> float | None:
        return tcp_info.ask(self.socket)

    async def wait_writable(self) -> None:
        if self._no_memory:
            # The kernel calls such a socket writable: it is the machine that cannot, for a time unknown.
            self._no_memory = False
            await trio.sleep(_NO_MEMORY_SECONDS)
        if self.socket.fileno() < 0:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_writable(self.socket)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while True:
            if self.socket.fileno() < 0:
                raise trio.ClosedResourceError
            # Not tried before: the reader has just read, and there is seldom more already.
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return self.socket.recv(max_bytes or _RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def send_all(self, data: Bytes) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            if self.socket.fileno() < 0:
                raise trio.ClosedResourceError
            taken = self.try_send(rest)
            if self.broken:
                raise trio.BrokenResourceError
            rest = rest[taken:]
            if rest and not taken:
                await self.wait_writable()

    async def wait_send_all_might_not_block(self) -> None:
        await self.wait_writable()

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError from error

    def close(self) -> None:
        """Close it now; those who wait on it get ClosedResourceError."""
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()
        self.broken = True

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class TlsTransport(trio.abc.HalfCloseableStream):
    """TLS over a `SocketTransport`, on memory buffers, so that sending never waits.

    What was encrypted counts as taken; at most one chunk of it waits for the kernel.

    out: where OpenSSL writes. It is emptied before anything else runs, so the connections of a thread share
    one: such a buffer stays as large as the most that it ever held.
    """

    def __init__(
        self, inner: SocketTransport, context: ssl.SSLContext, out: ssl.MemoryBIO | None = None
    ) -> None:
        self._inner = inner
        self._in = ssl.MemoryBIO()
        self._out = out or ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._unsent: memoryview = _NOTHING

    @property
    def socket(self) -> socket.socket:
        return self._inner.socket

    @property
    def broken(self) -> bool:
        return self._inner.broken

    @property
    def pending(self) -> bool:
        return bool(self._unsent)

    async def do_handshake(self) -> None:
        """Shake hands. Raises BrokenResourceError if the client speaks no TLS, or none that is accepted."""
        while True:
            try:
                self._call(self._tls.do_handshake)
            except ssl.SSLWantReadError:
                await self._flush_all()
                await self._feed()
            except (ssl.SSLError, ValueError) as error:
                raise trio.BrokenResourceError(str(error)) from error
            else:
                await self._flush_all()
                return

    def try_send(self, data: Bytes) -> int:
        view = memoryview(data)
        taken = 0
        while taken < len(view) and self.flush():
            try:
                taken += self._call(self._tls.write, view[taken : taken + _TLS_CHUNK])
            except (ssl.SSLError, ValueError):
                self._inner.give_up()
                break
        return taken

    def try_send_many(self, buffers: Sequence[Bytes]) -> int:
        taken = 0
        for chunk in _chunks(buffers):
            count = self.try_send(chunk)
            taken += count
            if count < len(chunk):
                break
        return taken

    def flush(self) -> bool:
        if self._unsent:
            self._unsent = self._unsent[self._inner.try_send(self._unsent) :]
        return not (self._unsent or self._inner.broken)

    def unanswered(self) -> float | None:
        return self._inner.unanswered()

    async def wait_writable(self) -> None:
        await self._inner.wait_writable()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()  # and none behind it: what was decrypted would be lost
        while True:
            try:
                return self._call(self._tls.read, max_bytes or _RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                if not await self._feed():
                    return b""  # without close_notify: for a framed protocol the frames tell
            except ssl.SSLZeroReturnError:
                return b""
            except (ssl.SSLError, ValueError) as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: Bytes) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest or self.pending:
            if self.socket.fileno() < 0:
                raise trio.ClosedResourceError
            taken = self.try_send(rest) if rest else 0
            if self.broken:
                raise trio.BrokenResourceError
            rest = rest[taken:]
            if not self.flush() and not self.broken:
                await self.wait_writable()

    async def wait_send_all_might_not_block(self) -> None:
        await self.wait_writable()

    async def send_eof(self) -> None:
        with suppress(ssl.SSLError):  # it wants the client's own goodbye; ours is written
            self._call(self._tls.unwrap)
        await self._flush_all()
        await self._inner.send_eof()

    def close(self) -> None:
        """Close it now, without a goodbye."""
        self._inner.close()

    async def aclose(self) -> None:
        """Close it with a goodbye, if that can be sent at once: where the end of the connection is that of an
        answer, the client can tell it from one that was cut off."""
        if not self.broken:
            with suppress(ssl.SSLError, ValueError):  # it wants the client's own goodbye; ours is written
                self._call(self._tls.unwrap)
        await self._inner.aclose()

    def _call(self, operation: Callable[_P, _T], *args: _P.args, **keys: _P.kwargs) -> _T:
        """Have OpenSSL do something, and send what it has written, be it an alert."""
        try:
            return operation(*args, **keys)
        finally:
            written = self._out.read()
            if written and self._unsent:  # what TLS itself has to say, while a chunk waits
                self._unsent = memoryview(bytes(self._unsent) + written)
            elif written:
                taken = self._inner.try_send(written)
                self._unsent = memoryview(written)[taken:] if taken < len(written) else _NOTHING

    async def _feed(self) -> bool:
        """Read ciphertext; False at the end of the stream."""
        data = await self._inner.receive_some(_RECEIVE_BYTES)
        if not data:
            self._in.write_eof()
            return False
        self._in.write(data)
        return True

    async def _flush_all(self) -> None:
        while not self.flush():
            if self.broken:
                raise trio.BrokenResourceError
            await self.wait_writable()


def _chunks(buffers: Sequence[Bytes]) -> Iterator[Bytes]:
    """Join buffers up to a chunk: by itself each would be a record, and a send."""
    gathered: list[Bytes] = []
    size = 0
    for buffer in buffers:
        gathered.append(buffer)
        size += len(buffer)
        if size >= _TLS_CHUNK:
            yield b"".join(gathered) if len(gathered) > 1 else buffer
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered) if len(gathered) > 1 else gathered[0]
