"""A WebSocket connection for clients: dialling, the handshake with a deadline, and a sense for silence."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    wrap_client_stream,
)
from wsproto.utilities import ProtocolError

from kiwi_gw.client.address import Address
from kiwi_gw.client.reconnect_rules import Ending, GiveUp, Retry, after_close, after_refusal
from kiwi_gw.errors import KiwiError, leaves

Dial = Callable[[Address], Awaitable[trio.abc.Stream]]

CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.0
SEND_SECONDS: Final = 10.0
MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The largest message taken; a gateway's own bound on an event (`window.event_bytes`) is far lower."""


class ConnectionLost(KiwiError):  # noqa: N818  (it states what happened)
    """Report that the connection could not be made, or is over; `ending` says what that means."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        super().__init__(ending.why)


@dataclass(frozen=True, slots=True)
class SilenceTimeouts:
    """Hold the seconds of silence before the server is asked for a sign of life, and to wait for that."""

    silence: float = 20.0
    answer: float = 10.0


def dialler(ssl_context: ssl.SSLContext | None = None) -> Dial:
    """Connect over TCP, TLS (with the given context, or one that verifies) or a Unix socket."""

    async def dial(address: Address) -> trio.abc.Stream:
        if address.socket_path is not None:
            return await trio.open_unix_socket(address.socket_path)
        stream = await trio.open_tcp_stream(address.host, address.port)
        if not address.tls:
            return stream
        context = ssl_context or ssl.create_default_context()
        # HTTPS peers close without a TLS goodbye more often than not.
        secure = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(secure)
            raise
        return secure

    return dial


class _SilenceMeter(trio.abc.Stream):
    """Measure since when a stream waits for bytes, and note when there will be no more.

    Silence counts only while the stream is read: a client that is busy with what it has receives nothing
    either, though its server is alive.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.over = trio.Event()
        self.waiting_since: float | None = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        self.waiting_since = trio.current_time()
        try:
            data = await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError:
            self.over.set()
            raise
        finally:
            self.waiting_since = None
        if not data:
            self.over.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        self.over.set()
        await self._stream.aclose()


class ClientConnection:
    """Hold an open WebSocket connection. Every failure of it is raised as `ConnectionLost`."""

    def __init__(self, ws: WebSocketConnection, heard: _SilenceMeter) -> None:
        self._ws = ws
        self._heard = heard
        self._dead: str | None = None

    async def receive(self) -> str | bytes:
        """Return the next whole message."""
        try:
            return await self._ws.get_message()
        except ConnectionClosed as closed:
            raise ConnectionLost(self._ending(closed)) from None

    async def send(self, text: str) -> None:
        """Send one text message; a server that does not take it in ten seconds is lost."""
        try:
            with trio.fail_after(SEND_SECONDS):
                await self._ws.send_message(text)
        except ConnectionClosed as closed:
            raise ConnectionLost(self._ending(closed)) from None
        except trio.TooSlowError:
            raise ConnectionLost(Retry(f"the server took nothing for {SEND_SECONDS:g} s")) from None

    def _ending(self, closed: ConnectionClosed) -> Ending:
        if self._dead is not None:
            return Retry(self._dead)
        if closed.reason is None:
            return Retry("connection lost")
        return after_close(closed.reason.code, closed.reason.reason)

    async def watch(self, patience: SilenceTimeouts) -> None:
        """Give the connection up when its server is silent, and silent to a ping too."""
        while True:
            since = self._heard.waiting_since
            # Not reading: look again when a silence that begins now could have lasted long enough.
            await trio.sleep_until((trio.current_time() if since is None else since) + patience.silence)
            if since is None or self._heard.waiting_since != since:
                continue
            with trio.move_on_after(patience.answer):
                try:
                    await self._ws.ping()
                except ConnectionClosed:
                    return
            if self._heard.waiting_since == since:
                self._dead = f"the server has been silent for {patience.silence + patience.answer:g} s"
                await trio.aclose_forcefully(self._heard)
                return


@asynccontextmanager
async def connected(
    address: Address,
    *,
    dial: Dial,
    headers: Sequence[tuple[str, str]] = (),
    patience: SilenceTimeouts = SilenceTimeouts(),
) -> AsyncIterator[ClientConnection]:
    """Open a connection, closed politely at the end of the block. Raises `ConnectionLost`, also out of the
    block."""
    async with _one_error(), trio.open_nursery() as nursery:
        heard: _SilenceMeter | None = None
        closed = trio.Event()
        try:
            reading: trio.Nursery = await nursery.start(_keep_reading, closed)
            with trio.move_on_after(CONNECT_SECONDS) as deadline:
                heard = await _reach(address, dial)
                ws = await _handshake(reading, heard, address, headers)
            if deadline.cancelled_caught or heard is None:
                raise ConnectionLost(Retry(f"{address}: no answer in {CONNECT_SECONDS:g} s"))
            connection = ClientConnection(ws, heard)
            nursery.start_soon(connection.watch, patience)
            try:
                yield connection
            finally:
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await ws.aclose()
        finally:
            if heard is not None:
                # Shielded: a cancellation here would take the place of the error that is on its way.
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(heard)
            closed.set()
            nursery.cancel_scope.cancel()


async def _keep_reading(
    closed: trio.Event, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
) -> None:
    """Open a nursery for the library's reader that outlives a cancellation: the close handshake needs it."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await closed.wait()
            nursery.cancel_scope.cancel()


async def _reach(address: Address, dial: Dial) -> _SilenceMeter:
    try:
        return _SilenceMeter(await dial(address))
    except trio.BrokenResourceError as error:  # what TLS has to say, wrapped by Trio
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"its certificate is not good: {cause.verify_message} (--cacert FILE trusts one, -k any)"
            raise ConnectionLost(GiveUp(f"{address}: {why}")) from None
        raise ConnectionLost(Retry(f"{address}: the TLS handshake failed: {cause or error}")) from None
    except OSError as error:
        first: BaseException = error
        if isinstance(error.__cause__, BaseExceptionGroup):
            # One error for each address that the name stands for; one of them says enough.
            first = error.__cause__.exceptions[0]
        number = getattr(first, "errno", None)
        words = os.strerror(number) if number is not None and number > 0 else str(first)
        raise ConnectionLost(Retry(f"{address}: {words}")) from None


async def _handshake(
    nursery: trio.Nursery, heard: _SilenceMeter, address: Address, headers: Sequence[tuple[str, str]]
) -> WebSocketConnection:
    # The library waits for ever for an answer on a stream that has ended: watch for the end beside it.
    found: list[WebSocketConnection] = []

    async def shake() -> None:
        ws = await wrap_client_stream(
            nursery,
            heard,  # type: ignore[arg-type]  # any stream will do
            address.authority,
            address.resource,
            extra_headers=[(name.encode(), value.encode()) for name, value in headers],
            max_message_size=MESSAGE_BYTES,
            receive_buffer_size=65_536,
        )
        found.append(ws)
        trial.cancel_scope.cancel()

    async with trio.open_nursery() as trial:
        trial.start_soon(shake)
        await heard.over.wait()
        trial.cancel_scope.cancel()
    if not found:
        maybe = (
            "is it a WebSocket server?" if address.tls else "is it a WebSocket server, or does it want wss?"
        )
        raise ConnectionLost(Retry(f"{address}: closed before the handshake was done; {maybe}"))
    return found[0]


@asynccontextmanager
async def _one_error() -> AsyncIterator[None]:
    """Replace the exception group of a nursery by one error. What it says about the connection becomes one
    `ConnectionLost`; a single other error is raised as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        errors = [error for error in leaves(group) if not isinstance(error, trio.Cancelled)]
        others = [
            error
            for error in errors
            if not isinstance(error, (ConnectionLost, HandshakeError, ProtocolError))
        ]
        if len(others) == 1:
            raise others[0] from None
        if others:
            raise
        for error in errors:
            if isinstance(error, ConnectionRejected):
                raise ConnectionLost(_refusal(error)) from None
        for error in errors:
            if isinstance(error, ConnectionLost):
                raise error from None
        if errors:
            raise ConnectionLost(Retry(f"the connection failed: {errors[0]}")) from None
        raise


def _refusal(rejected: ConnectionRejected) -> Ending:
    headers = {name.lower(): value for name, value in rejected.headers or ()}
    retry_after = headers.get(b"retry-after", b"").decode("latin-1")
    return after_refusal(rejected.status_code, retry_after or None, rejected.body or b"")
