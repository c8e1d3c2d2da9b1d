"""One WebSocket connection, from a checked handshake to its end.

Theory of operation. One task reads: bytes into frames, messages into the connection, which carries out what
they ask. It never waits for its own writing, except by not reading while the outlet's control lane is full;
that is how a client that sends commands and reads no replies is slowed down. All writing goes through the
outlet, whose drain task is the only other task of a connection, and only there while the socket is full.

Either side may say goodbye. If the client does, its close frame is answered and the socket is closed. If we
do, we read on until the client's own close frame comes, for `close_timeout_ms` at most: a socket that is
closed with unread bytes resets the connection and may destroy what we said last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Hashable, Iterator
from functools import partial
from typing import Any

import structlog
import trio

from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, OwnAccount
from kiwi_gw.core.commands import Breach
from kiwi_gw.dialects.base import Dialect, SessionLimits
from kiwi_gw.dialects.frames import CLOSE, PONG, close_frame, header
from kiwi_gw.dialects.throttle import Throttle, Verdict
from kiwi_gw.edge.admission import Place
from kiwi_gw.edge.answers import linger
from kiwi_gw.edge.frames_in import FrameReader, Goodbye, Noise, Ping
from kiwi_gw.edge.outlet import Outlet
from kiwi_gw.edge.transports import SocketTransport, TlsTransport
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.model import Identity
from kiwi_gw.runtime.clients import who_pays
from kiwi_gw.runtime.command_scheduler import CommandScheduler, TimeAllowance
from kiwi_gw.runtime.connection import Connection, describe
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.meters import Meters

log = structlog.get_logger(__name__)

_CONTROLS_PER_SECOND, _CONTROLS_BURST = 50, 100
_FRAGMENTS_PER_SECOND, _FRAGMENTS_BURST = 1_000, 2_048
_EXCESS_PAUSE_SECONDS = 0.25
_FLOOD_SECONDS = 3.0
_READ_BYTES = 4 * 1024
_ABORT_SECONDS = 1.0
_NO_CODE, _EMPTY_CLOSE = 1005, header(0, CLOSE)
_BREACHES = {
    1002: Breach.FRAMING,
    1007: Breach.NOT_UTF8,
    1008: Breach.TOO_MANY_FRAGMENTS,
    1009: Breach.TOO_LARGE,
}
"""What a client has done that a `FrameReader` ends with this close code."""


async def serve_websocket(
    gateway: Gateway,
    transport: SocketTransport | TlsTransport,
    dialect: Dialect,
    identity: Identity,
    remote: str,
    query: str,
    response: bytes,
    surplus: bytes,
    place: Place,
) -> None:
    """Serve one client until either side ends it. Closes the transport. Raises nothing but cancellation.

    query: of the request's target. response: the head that answers the handshake. surplus: what the client
    sent behind its handshake, and was read with it. place: where it is counted.

    The other of the two places that catch everything: an error in here ends this connection with 1011
    and an id that is in the log.
    """
    limits = gateway.loaded.settings.server.limits
    close_seconds = limits.close_timeout_ms / 1000
    async with trio.open_nursery() as nursery:

        def end_within(seconds: float) -> None:
            nursery.cancel_scope.deadline = min(nursery.cancel_scope.deadline, trio.current_time() + seconds)

        def spawn(task: Callable[[], Coroutine[Any, Any, None]]) -> None:
            nursery.start_soon(_guarded, task(), connection, name=task)

        outlet = Outlet(
            transport,
            spawn,
            time.monotonic,
            limits.control_bytes,
            limits.send_bytes,
            partial(end_within, close_seconds),
            gateway.meters.stalls if gateway.measured else None,
        )
        number = gateway.next_number()
        who = who_pays(identity, place.client, number)
        session = session_limits(gateway, who)
        connection = Connection(
            number,
            gateway,
            dialect.session(query, identity, session),
            outlet,
            identity,
            dialect.name,
            remote,
            time.monotonic(),
            partial(end_within, _ABORT_SECONDS),
            place,
        )
        frames = FrameReader(
            dialect.max_message_bytes, limits.max_fragments, gateway.meters.frames(dialect.name)
        )
        reading = Reading(connection, outlet, frames, gateway.meters)
        try:
            outlet.control(response)
            gateway.came(connection)
            talk = _converse(transport, connection, outlet, reading, gateway.command_scheduler, surplus)
            del response, surplus  # a connection may last for days
            await _guarded(talk, connection)
            connection.end()  # what is on its way still goes out, but nothing is added to it
            end_within(close_seconds)  # also where the client left without a close frame
            await outlet.wait_idle()
            if not reading.frames.goodbye:
                await linger(transport)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it left while we said goodbye
        finally:
            connection.end()
            if session.compiling_own is not None:
                gateway.compiling_kept.keep(who, session.compiling_own, gateway.now())
            outlet.abandon()
            transport.close()
            gateway.left(connection)
            # A gateway that stops ends them all: a line each would cost a fifth of the stop.
            write = log.debug if gateway.draining else log.info
            write("connection ended", **describe(connection, time.monotonic()))
            nursery.cancel_scope.cancel()


async def _guarded(part: Coroutine[Any, Any, None], connection: Connection) -> None:
    """Run a part of a connection. What it raises is that connection's matter, and nobody else's."""
    try:
        await part
    except Exception as error:  # noqa: BLE001  one of the two places that catch everything
        connection.fail(error)


async def _converse(
    transport: SocketTransport | TlsTransport,
    connection: Connection,
    outlet: Outlet,
    reading: Reading,
    scheduler: CommandScheduler,
    data: bytes,
) -> None:
    """Message after message, until the client has said goodbye, broken the protocol, or left."""
    connection.start()
    while True:
        for _ in reading.take(data):
            await outlet.wait_room()
            if reading.allowance.used_up(time.monotonic()):
                await scheduler.wait()
                reading.allowance.renew()
        if reading.frames.over:
            return
        await outlet.wait_room()
        if reading.excessive:
            # What it sends counts for nothing, but looking through it takes time from everybody else.
            reading.excessive = False
            await trio.sleep(_EXCESS_PAUSE_SECONDS)
        try:
            data = await transport.receive_some(_READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it left without a word
        if not data:
            return


class Reading:
    """What is done with the bytes of one client. allowance: for what it asks for. excessive: there were more
    frames than it may send."""

    __slots__ = (
        "_connection",
        "_controls",
        "_fragments",
        "_meters",
        "_outlet",
        "allowance",
        "excessive",
        "frames",
    )

    def __init__(self, connection: Connection, outlet: Outlet, frames: FrameReader, meters: Meters) -> None:
        self.frames = frames
        self.allowance = TimeAllowance()
        self.excessive = False
        self._connection = connection
        self._outlet = outlet
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
                    began = time.monotonic()
                    connection.receive(item, began)
                    self.allowance.charge(began, time.monotonic())
                elif isinstance(item, Goodbye):
                    self._answer(item)
                elif item is Noise.FRAGMENT:
                    self._count_fragment()
                else:
                    self._count_control()
                    if isinstance(item, Ping):
                        self._outlet.pong(header(len(item.payload), PONG) + item.payload)
                    else:
                        connection.ponged(time.monotonic())
        except ConnectionEnd as end:
            self.frames.over = True
            if not isinstance(end, _TooOftenError):
                self._meters.breached(connection.dialect, _BREACHES[end.code])
            connection.hang_up(end.code, end.reason)

    def _answer(self, goodbye: Goodbye) -> None:
        """The same code back (RFC 6455, 5.5.1); no code where the client gave none."""
        if goodbye.code == _NO_CODE:
            self._outlet.end_with(_EMPTY_CLOSE, _NO_CODE)
        else:
            self._outlet.end_with(close_frame(goodbye.code, ""), goodbye.code)

    def _count_control(self) -> None:
        self._controls = self._controls or Throttle(_CONTROLS_PER_SECOND, _CONTROLS_BURST, _FLOOD_SECONDS)
        self._judge(self._controls, Breach.CONTROLS, "too many pings or pongs")

    def _count_fragment(self) -> None:
        self._fragments = self._fragments or Throttle(_FRAGMENTS_PER_SECOND, _FRAGMENTS_BURST, _FLOOD_SECONDS)
        self._judge(self._fragments, Breach.FRAGMENTS, "too many fragments")

    def _judge(self, throttle: Throttle, breach: Breach, too_many: str) -> None:
        verdict = throttle.admit(time.monotonic())
        if verdict is Verdict.PASS:
            return
        self._meters.breached(self._connection.dialect, breach)
        if verdict is Verdict.FLOOD:
            raise _TooOftenError(1008, f"rate_limited: {too_many}")
        self.excessive = True


class _TooOftenError(ConnectionEnd):
    """What came was sound, but came too often."""


def session_limits(gateway: Gateway, who: Hashable) -> SessionLimits:
    """Read from the configuration what one client may ask for. who: whose shares it uses."""
    limits = gateway.loaded.settings.server.limits
    share = limits.connection_compiling_percent / 100
    own = gateway.compiling_kept.take(who, gateway.now())
    return SessionLimits(
        subscriptions=limits.max_subscriptions,
        commands_per_second=limits.commands_per_second,
        commands_burst=limits.commands_burst,
        requests_per_second=limits.requests_per_second,
        requests_burst=limits.requests_burst,
        flood_seconds=limits.flood_ms / 1000,
        queries=limits.max_queries,
        query_bytes=limits.query_bytes,
        compiling_share=share,
        compiling_own=own or OwnAccount(share, COMPILING_SAVED_SECONDS),
        compiling=gateway.compiling,
    )
