"""One WebSocket connection, from a checked handshake to its end.

Theory of operation. One task reads: bytes into frames, messages into the connection, which carries out what
they ask. It never waits for its own writing, except by not reading while the frame writer's control queue is
full, or too much of what the client writes waits for its source; that is how a client that sends commands and
reads no replies is slowed down. All writing goes through
the frame writer, whose drain task is the only other task of a connection, and only there while the socket is
full.

Either side may say goodbye. If the client does, its close frame is answered and the socket is closed. If we
do, we read on until the client's own close frame comes, for `close_timeout_ms` at most: a socket that is
closed with unread bytes resets the connection and may destroy what we said last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog
import trio

from kiwi_gw.codes import CloseCode
from kiwi_gw.core.commands import Violation
from kiwi_gw.dialect_api.frames import CLOSE, PONG, close_frame, header
from kiwi_gw.dialect_api.throttle import Throttle, Verdict
from kiwi_gw.edge.admission import CountedConnection
from kiwi_gw.edge.frame_reader import CloseFrame, CountedFrame, FrameReader, PingFrame
from kiwi_gw.edge.http_errors import drain_input
from kiwi_gw.edge.routing import ServedDialect, WebSocketMatch
from kiwi_gw.edge.transports import SocketTransport, TlsTransport
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.model import ANONYMOUS, HeadCredential, Identity
from kiwi_gw.runtime.command_scheduler import CommandScheduler, TimeAllowance
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.meters import Meters

log = structlog.get_logger(__name__)

_CONTROLS_PER_SECOND, _CONTROLS_BURST = 50, 100
_FRAGMENTS_PER_SECOND, _FRAGMENTS_BURST = 1_000, 2_048
_EXCESS_PAUSE_SECONDS = 0.25
_FLOOD_SECONDS = 3.0
_READ_BYTES = 4 * 1024
_WRITER_READ_BYTES = 64 * 1024  # of one that writes records: what is read at once goes to its source together
_ABORT_SECONDS = 1.0
_EMPTY_CLOSE = header(0, CLOSE)
_VIOLATIONS: dict[int, Violation] = {
    CloseCode.PROTOCOL_ERROR: Violation.FRAMING,
    CloseCode.NOT_UTF8: Violation.NOT_UTF8,
    CloseCode.POLICY_VIOLATION: Violation.TOO_MANY_FRAGMENTS,
    CloseCode.TOO_LARGE: Violation.TOO_LARGE,
}
"""What a client has done that a `FrameReader` ends with this close code."""


async def serve_websocket(
    gateway: Gateway,
    transport: SocketTransport | TlsTransport,
    match: WebSocketMatch,
    head: HeadCredential,
    identity: Identity | None,
    response: bytes,
    surplus: bytes,
    slot: CountedConnection,
) -> None:
    """Serve one client until either side ends it. Closes the transport. Raises nothing but cancellation.

    match: the protocol, and the parameters of the path. head: of the request. identity: the client; None: it
    is to log in (`WebSocketRoute.login_seconds`). response: the head that answers the handshake. surplus:
    what the client sent behind its handshake, and was read with it. slot: where it is counted.

    An error in here ends this connection with 1011 and an id that is in the log.
    """
    async with trio.open_nursery() as nursery:
        life = _Life(nursery, gateway.limits.close_timeout_ms / 1000)
        number, known, served = gateway.next_number(), identity or ANONYMOUS, match.served
        allowed = slot.allow(known, number)
        writer = _frame_writer(gateway, transport, life)
        connection = life.connection = Connection(
            number,
            gateway,
            served.dialect.open_session(head, match.parameters, known, allowed),
            writer,
            known,
            served.name,
            head.remote,
            time.monotonic(),
            life.abort,
            slot,
            served.route.login_seconds if identity is None else None,
        )
        frames, allowance = _frame_reader(gateway, served), gateway.command_scheduler.allowance()
        reading = ClientInput(connection, writer, frames, gateway.meters, allowance)
        try:
            writer.control(response)
            gateway.connection_opened(connection)
            talk = _converse(transport, connection, writer, reading, gateway.command_scheduler, surplus)
            del match, head, response, surplus  # a connection may last for days
            await _guarded(talk, connection)
            connection.end()  # what is on its way still goes out, but nothing is added to it
            life.close()  # also where the client left without a close frame
            await writer.wait_idle()
            if not reading.frames.received_close:
                await drain_input(transport)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it left while we said goodbye
        finally:
            connection.end()
            slot.leave()
            writer.abandon()
            del life.connection  # they know each other
            transport.close()
            gateway.connection_closed(connection)
            _log_end(gateway, connection)
            nursery.cancel_scope.cancel()


def _log_end(gateway: Gateway, connection: Connection) -> None:
    # A gateway that stops ends them all: a line each would cost a fifth of the stop.
    write = log.debug if gateway.draining else log.info
    write("connection ended", **describe(connection, time.monotonic()))


def describe(connection: Connection, now: float) -> dict[str, Any]:
    """Return what the log says of a connection that has ended."""
    return {
        "conn_id": connection.number,
        "dialect": connection.dialect,
        "remote": connection.remote,
        "identity": connection.identity.name,
        "duration": round(now - connection.opened_at, 3),
        "code": connection.writer.close_code,
        "bytes": connection.writer.sent_bytes,
        "delivered": connection.delivered,
    }


class _Life:
    """The tasks of one connection, and the time that they have left."""

    __slots__ = ("_close_seconds", "_nursery", "connection")

    connection: Connection

    def __init__(self, nursery: trio.Nursery, close_seconds: float) -> None:
        self._nursery = nursery
        self._close_seconds = close_seconds

    def spawn(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start one more part of the connection."""
        self._nursery.start_soon(_guarded, task(), self.connection, name=task)

    def close(self) -> None:
        """End within the time that a client has to say goodbye."""
        self._end_within(self._close_seconds)

    def abort(self) -> None:
        """End in a moment, whatever the client does."""
        self._end_within(_ABORT_SECONDS)

    def _end_within(self, seconds: float) -> None:
        scope = self._nursery.cancel_scope
        scope.deadline = min(scope.deadline, trio.current_time() + seconds)


def _frame_writer(
    gateway: Gateway, transport: SocketTransport | TlsTransport, life: _Life
) -> WebSocketWriter:
    limits = gateway.limits
    stalls = gateway.meters.stalls if gateway.measured else None
    return WebSocketWriter(
        transport,
        life.spawn,
        time.monotonic,
        gateway.delivery_turns,
        limits.control_bytes,
        limits.send_bytes,
        life.close,
        stalls,
    )


def _frame_reader(gateway: Gateway, served: ServedDialect) -> FrameReader:
    limits = gateway.limits
    return FrameReader(served.max_message_bytes, limits.max_fragments, gateway.meters.frames(served.name))


async def _guarded(part: Coroutine[Any, Any, None], connection: Connection) -> None:
    """Run a part of a connection. What it raises ends that connection and no other."""
    try:
        await part
    except Exception as error:  # noqa: BLE001  one of the two places that catch everything
        connection.fail(error)


async def _converse(
    transport: SocketTransport | TlsTransport,
    connection: Connection,
    writer: WebSocketWriter,
    reading: ClientInput,
    scheduler: CommandScheduler,
    data: bytes,
) -> None:
    """Message after message, until the client has said goodbye, broken the protocol, or left."""
    connection.start()
    while True:
        for _ in reading.take(data):
            writes = connection.writes
            if writes is not None and (writes.window.full or writes.commits.full):
                await writes.wait_room()
            if writer.control_full:
                await writer.wait_room()
            if connection.calls is not None and connection.calls.full:
                await connection.calls.wait_room()
            if connection.offloads is not None and connection.offloads.full:
                await connection.offloads.wait_room()
            if connection.turns is not None and connection.turns.full:
                await connection.turns.wait_room()
            if reading.allowance.used_up(time.monotonic()):
                await scheduler.wait(reading.allowance)
                reading.allowance.renew(time.monotonic())
        if reading.frames.over:
            return
        if writer.control_full:
            await writer.wait_room()
        if reading.excessive:
            # What it sends counts for nothing, but looking through it takes time from everybody else.
            reading.excessive = False
            await trio.sleep(_EXCESS_PAUSE_SECONDS)
        try:
            most = _READ_BYTES if connection.writes is None else _WRITER_READ_BYTES
            data = await transport.receive_some(most)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it left without a word
        if not data:
            return


class ClientInput:
    """What is done with the bytes of one client. allowance: for what it asks for. excessive: there were more
    frames than it may send."""

    __slots__ = (
        "_connection",
        "_controls",
        "_fragments",
        "_meters",
        "_writer",
        "allowance",
        "excessive",
        "frames",
    )

    def __init__(
        self,
        connection: Connection,
        writer: WebSocketWriter,
        frames: FrameReader,
        meters: Meters,
        allowance: TimeAllowance,
    ) -> None:
        self.frames = frames
        self.allowance = allowance
        self.excessive = False
        self._connection = connection
        self._writer = writer
        self._meters = meters
        # Made for clients that send such frames at all.
        self._controls: Throttle | None = None
        self._fragments: Throttle | None = None

    def take(self, data: bytes) -> Iterator[None]:
        """Carry out what the bytes ask for. Yields before every message: it may have to wait for a turn, or
        for room for its replies. Frames that are none wait for nothing but the messages before them."""
        connection = self._connection
        if data:
            connection.heard_at = time.monotonic()
            self._meters.received_bytes += len(data)
        try:
            for item in self.frames.feed(data):
                if isinstance(item, str | bytes):
                    yield
                    began, delivered = time.monotonic(), self._writer.delivery_seconds
                    connection.receive(item, began)
                    # Sending the events that it asks for is no more charged than sending those of push.
                    delivered -= self._writer.delivery_seconds
                    self.allowance.charge(began, time.monotonic() + delivered)
                elif isinstance(item, CloseFrame):
                    self._answer(item)
                elif item is CountedFrame.FRAGMENT:
                    self._count_fragment()
                else:
                    self._count_control()
                    if isinstance(item, PingFrame):
                        self._writer.pong(header(len(item.payload), PONG) + item.payload)
                    else:
                        connection.ponged(time.monotonic())
        except ConnectionEnd as end:
            self.frames.over = True
            if not isinstance(end, _TooOftenError):
                self._meters.count_violation(connection.dialect, _VIOLATIONS[end.code])
            connection.send_close(end.code, end.reason)

    def _answer(self, received_close: CloseFrame) -> None:
        """The same code back (RFC 6455, 5.5.1); no code where the client gave none."""
        if received_close.code == CloseCode.NONE_GIVEN:
            self._writer.end_with(_EMPTY_CLOSE, received_close.code)
        else:
            self._writer.end_with(close_frame(received_close.code, ""), received_close.code)

    def _count_control(self) -> None:
        self._controls = self._controls or Throttle(_CONTROLS_PER_SECOND, _CONTROLS_BURST, _FLOOD_SECONDS)
        self._judge(self._controls, Violation.CONTROLS, "too many pings or pongs")

    def _count_fragment(self) -> None:
        self._fragments = self._fragments or Throttle(_FRAGMENTS_PER_SECOND, _FRAGMENTS_BURST, _FLOOD_SECONDS)
        self._judge(self._fragments, Violation.FRAGMENTS, "too many fragments")

    def _judge(self, throttle: Throttle, violation: Violation, too_many: str) -> None:
        verdict = throttle.admit(time.monotonic())
        if verdict is Verdict.PASS:
            return
        self._meters.count_violation(self._connection.dialect, violation)
        if verdict is Verdict.FLOOD:
            raise _TooOftenError(CloseCode.POLICY_VIOLATION, f"rate_limited: {too_many}")
        self.excessive = True


class _TooOftenError(ConnectionEnd):
    """What came was sound, but came too often."""
