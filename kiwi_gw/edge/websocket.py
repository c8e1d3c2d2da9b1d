"""One WebSocket connection, from a checked handshake to its end.

trio-websocket does the handshake and the reading; all writing goes through the outlet. The stream that
the library is given only appends to the outlet's control lane, so its pongs and its close frame can
neither wait for a full socket nor come between the halves of an event's frame. Reading stops while the
lane is full, which is how a client that sends commands and reads no replies is slowed down.
"""

from __future__ import annotations

import struct
import time
from functools import partial

import structlog
import trio
from trio_websocket import ConnectionClosed, wrap_server_stream

from kiwi_gw.dialects.base import Dialect, SessionLimits
from kiwi_gw.dialects.throttle import Throttle, Verdict
from kiwi_gw.edge.answers import linger
from kiwi_gw.edge.frames_in import FrameScanner
from kiwi_gw.edge.head import RequestHead
from kiwi_gw.edge.outlet import Outlet
from kiwi_gw.edge.replay import ReplayStream
from kiwi_gw.edge.transports import SocketTransport, TlsTransport
from kiwi_gw.edge.upgrade import Upgrade
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.model import Identity
from kiwi_gw.runtime.connection import Connection, describe
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

_CLOSE_BYTE, _PONG_BYTE = 0x88, 0x8A
_PINGS_PER_SECOND, _PINGS_BURST, _PING_FLOOD_SECONDS = 50, 100, 3.0
_READ_BYTES = 4 * 1024
_ABORT_SECONDS = 1.0


class _LibraryStream(trio.abc.Stream):
    """What the WebSocket library sees of the connection: it reads the socket and writes to the lane."""

    def __init__(self, transport: SocketTransport | TlsTransport, outlet: Outlet) -> None:
        self._transport = transport
        self._outlet = outlet
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self._outlet.wait_room()
        if self._closed:
            raise trio.ClosedResourceError
        return await self._transport.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        frame = bytes(data)
        if frame and frame[0] == _PONG_BYTE:
            self._outlet.pong(frame)
        elif frame and frame[0] == _CLOSE_BYTE:
            # 1005: a close frame without a code (RFC 6455, 7.4.1).
            code = struct.unpack("!H", frame[2:4])[0] if len(frame) >= 4 else 1005
            self._outlet.end_with(frame, code)
        elif frame:
            self._outlet.control(frame)
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        # The library has read its last; what is still to be written is the outlet's matter.
        self._closed = True
        await trio.lowlevel.checkpoint()


class _Inbound:
    """Looks at every byte that comes in: keeps the time of the last one, and the frame limits."""

    def __init__(self, scanner: FrameScanner, outlet: Outlet) -> None:
        self.scanner = scanner
        self._outlet = outlet
        self.connection: Connection | None = None
        self._pings = 0
        self._throttle: Throttle | None = None  # made for clients that ping at all

    def __call__(self, data: bytes | bytearray) -> None:
        if self.connection is not None:
            self.connection.heard_at = time.monotonic()
        try:
            self.scanner.feed(data)
            self._count_pings()
        except ConnectionEnd as end:
            self._outlet.hang_up(end.code, end.reason)
            raise trio.ClosedResourceError from None

    def _count_pings(self) -> None:
        if self.scanner.pings == self._pings:
            return
        new, self._pings = self.scanner.pings - self._pings, self.scanner.pings
        self._throttle = self._throttle or Throttle(_PINGS_PER_SECOND, _PINGS_BURST, _PING_FLOOD_SECONDS)
        now = time.monotonic()
        if any(self._throttle.admit(now) is Verdict.FLOOD for _ in range(new)):
            raise ConnectionEnd(1008, "rate_limited: too many pings")


async def serve_websocket(
    gateway: Gateway,
    transport: SocketTransport | TlsTransport,
    head: RequestHead,
    upgrade: Upgrade,
    dialect: Dialect,
    identity: Identity,
    remote: str,
    subprotocol: str | None,
) -> None:
    """Serve one client until either side ends it. Closes the transport. Raises nothing but cancellation.

    The other of the two places that catch everything: an error in here ends this connection with 1011
    and an id that is in the log.
    """
    limits = gateway.loaded.settings.server.limits
    close_seconds = limits.close_timeout_ms / 1000
    async with trio.open_nursery() as nursery:

        def end_within(seconds: float) -> None:
            nursery.cancel_scope.deadline = min(nursery.cancel_scope.deadline, trio.current_time() + seconds)

        outlet = Outlet(
            transport,
            nursery.start_soon,
            time.monotonic,
            limits.control_bytes,
            limits.send_bytes,
            partial(end_within, close_seconds),
        )

        session = dialect.session(head.query, identity, session_limits(gateway))
        connection = Connection(
            gateway.next_number(),
            gateway,
            session,
            outlet,
            identity,
            dialect.name,
            remote,
            time.monotonic(),
            partial(end_within, _ABORT_SECONDS),
        )
        inbound = _Inbound(FrameScanner(dialect.max_message_bytes, limits.max_fragments), outlet)
        stream = ReplayStream(
            _LibraryStream(transport, outlet), upgrade.handshake(head), head.surplus, inbound
        )
        inbound.connection = connection
        try:
            await _converse(gateway, stream, dialect, connection, subprotocol)
            end_within(close_seconds)  # also where the client left without a close frame
            await outlet.wait_idle()
            if not inbound.scanner.goodbye:
                await linger(transport)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it left while we said goodbye
        finally:
            connection.end()
            outlet.abandon()
            transport.close()
            gateway.left(connection)
            # A gateway that stops ends them all: a line each would cost a fifth of the stop.
            write = log.debug if gateway.draining else log.info
            write("connection ended", **describe(connection, time.monotonic()))
            nursery.cancel_scope.cancel()


async def _converse(
    gateway: Gateway,
    stream: ReplayStream,
    dialect: Dialect,
    connection: Connection,
    subprotocol: str | None,
) -> None:
    """Handshake, then message after message, until the connection is closed."""
    outlet = connection.outlet
    assert isinstance(outlet, Outlet)  # noqa: S101  narrows the protocol for the type checker
    try:
        # The library's reader has ended when this is left: two tasks cannot wait for one socket.
        async with trio.open_nursery() as reading:
            try:
                request = await wrap_server_stream(
                    reading,
                    stream,
                    message_queue_size=1,
                    max_message_size=dialect.max_message_bytes,
                    receive_buffer_size=_READ_BYTES,
                )
                websocket = await request.accept(subprotocol=subprotocol)
                # Only now: whatever is written before the handshake is answered would be taken for it.
                gateway.came(connection)
                connection.start()
                while outlet.close_code is None:
                    message = await websocket.get_message()
                    connection.receive(message, time.monotonic())
                    await outlet.wait_room()
                # Our close frame is on its way: read on until the client's own, so that it is not reset.
                while True:
                    await websocket.get_message()
            except ConnectionClosed as closed:
                # The library has answered a client's close frame. What it cannot parse (1002, 1007) it
                # only tells us.
                if closed.reason is not None and closed.reason.code in (1002, 1007):
                    connection.hang_up(int(closed.reason.code), closed.reason.reason or "")
            reading.cancel_scope.cancel()
    except Exception as error:  # noqa: BLE001  one of the two places that catch everything
        connection.fail(error)


def session_limits(gateway: Gateway) -> SessionLimits:
    """What the configuration lets one client ask for."""
    limits = gateway.loaded.settings.server.limits
    return SessionLimits(
        subscriptions=limits.max_subscriptions,
        commands_per_second=limits.commands_per_second,
        commands_burst=limits.commands_burst,
        requests_per_second=limits.requests_per_second,
        requests_burst=limits.requests_burst,
        flood_seconds=limits.flood_ms / 1000,
    )
