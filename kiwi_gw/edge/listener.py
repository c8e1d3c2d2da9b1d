"""Accepts connections, reads their request head, and routes them: WebSocket to a dialect, the rest to HTTP.

What is refused here costs no session: too many connections, a slow or broken head, a foreign origin, bad
credentials.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import ssl
import stat
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path

import structlog
import trio

from kiwi_gw.config import Address, TcpAddress, UnixAddress
from kiwi_gw.edge.admission import Admission, CountedConnection, RejectedError, Rejection
from kiwi_gw.edge.caller_checks import check_host
from kiwi_gw.edge.handshake import Handshake
from kiwi_gw.edge.http import Check, serve_http
from kiwi_gw.edge.http_errors import HttpError, refuse
from kiwi_gw.edge.http_exchange import Closing, HttpLimits
from kiwi_gw.edge.plain_request import ConnectionEnds
from kiwi_gw.edge.request_head import FoundHead, HeadLimits, RequestHead, read_head
from kiwi_gw.edge.reserved_descriptors import ReservedDescriptors
from kiwi_gw.edge.routing import Routes, WebSocketMatch
from kiwi_gw.edge.tickets import Tickets
from kiwi_gw.edge.tls import Certificates, TlsFiles
from kiwi_gw.edge.transports import SocketTransport, TlsTransport
from kiwi_gw.edge.upgrade import wants_websocket
from kiwi_gw.errors import KiwiError
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

_BACKLOG = 4096
_ACCEPT_AT_ONCE = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_OUT_OF_MEMORY = (errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.1
_TICKETS_SECONDS = 1.0
_AT_ONCE = Closing(now=True)


class ListenError(KiwiError):
    """An address that cannot be listened on, in words."""


def listen(address: Address, *, shared: bool = False, mode: int = 0o600) -> socket.socket:
    """Open a listening socket. shared: on a TCP port that other processes of ours have. mode: of the file,
    for a Unix socket. Raises ListenError."""
    if isinstance(address, UnixAddress):
        return _listen_unix(Path(address.path), mode)
    return _listening(bind(address, shared=shared))


def bind(address: TcpAddress, *, shared: bool) -> socket.socket:
    """Open a socket that has the address and does not listen. Raises ListenError."""
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, where = found[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(where)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {error}") from error
    return sock


def _listen_unix(path: Path, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A socket file on which no process listens is left over from a process that died.
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                    path.unlink()
        _bind_unix(sock, path, mode)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen on unix:{path}: {error}") from error
    return _listening(sock)


def _bind_unix(sock: socket.socket, path: Path, mode: int) -> None:
    # The file is made with this mode: changed afterwards, it might be another file by then.
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
    finally:
        os.umask(before)


def _listening(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.listen(_BACKLOG)
    return sock


class Listener:
    """The open ports of a gateway. `run` serves until cancelled; `stop_accepting` closes the ports.

    owns_paths: whether the files of Unix sockets go with it. own_origins: by whose hosts it may be called by
    those who show no credentials (`host_allowed`). rejected: connections that were refused, by reason.
    admission: who is in, one of its own if none is given. tickets: those that are taken instead of
    credentials, None: none.
    """

    def __init__(
        self,
        gateway: Gateway,
        routes: Routes,
        sockets: Sequence[socket.socket],
        certificates: Certificates | None,
        *,
        owns_paths: bool = True,
        own_origins: Callable[[], Sequence[str]] = tuple,
        tickets: Tickets | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._own_origins = own_origins
        self._tickets = tickets
        self._owns_paths = owns_paths
        self._gateway = gateway
        self._routes = routes
        self._sockets = list(sockets)
        self._tls = TlsFiles(*certificates) if certificates is not None else None
        self._ciphertext = ssl.MemoryBIO()  # see TlsTransport
        self._closing = Closing()
        self._http_connections = 0
        self._http_left = trio.lowlevel.ParkingLot()
        self._accepting = trio.CancelScope()
        self._last_resort = ReservedDescriptors()
        self.admission = admission or Admission(gateway)
        self._handshake = Handshake(gateway, self.admission, own_origins, tickets)
        self.rejected: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the real ports."""
        return [_name(sock.getsockname()) for sock in self._sockets if sock.fileno() >= 0]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as connections:
                with self._accepting:
                    async with trio.open_nursery() as accepting:
                        for sock in self._sockets:
                            accepting.start_soon(self._accept, sock, connections)
                        if self._tickets is not None:
                            accepting.start_soon(self._forget_tickets, self._tickets)
                        if self._tls is not None:
                            accepting.start_soon(self._tls.watch)
                        task_status.started()
        finally:
            self.stop_accepting()
            self._last_resort.close()

    async def _forget_tickets(self, tickets: Tickets) -> None:
        while True:
            await trio.sleep(_TICKETS_SECONDS)
            tickets.forget_expired()

    def use_certificates(self, certificates: Certificates | None) -> None:
        """Other files from now on. Switching TLS on or off needs a restart."""
        if self._tls is not None and certificates is not None:
            self._tls.use(*certificates)

    def stop_accepting(self) -> None:
        """Close the ports; connections go on, idle HTTP ones are closed."""
        self._accepting.cancel()
        self._closing.set()
        for sock in self._sockets:
            if sock.fileno() >= 0:
                name = sock.getsockname()
                trio.lowlevel.notify_closing(sock)
                sock.close()
                if sock.family == socket.AF_UNIX and self._owns_paths:
                    Path(os.fsdecode(name)).unlink(missing_ok=True)

    async def wait_answered(self) -> None:
        """Return when all plain requests are answered; from `stop_accepting` on there are no more of them."""
        while self._http_connections:
            await self._http_left.park()

    # --- inside ----------------------------------------------------------------------------

    async def _accept(self, sock: socket.socket, connections: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.checkpoint_if_cancelled()  # the socket may be closed
            await trio.lowlevel.wait_readable(sock)
            for _ in range(_ACCEPT_AT_ONCE):
                try:
                    client, address = sock.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _OUT_OF_DESCRIPTORS:
                        if self._turn_away(sock, error, connections):
                            continue
                        await trio.sleep(_PAUSE_SECONDS)
                    elif error.errno in _OUT_OF_MEMORY:
                        log.error("cannot accept connections", problem=error.strerror)
                        await trio.sleep(_PAUSE_SECONDS)
                    break  # anything else is one client that left before it was accepted
                connections.start_soon(self._serve, client, address)

    def _turn_away(self, sock: socket.socket, error: OSError, connections: trio.Nursery) -> bool:
        """Whether there was a client to turn away, and a way."""
        client = self._last_resort.accept(sock, error.strerror or str(error))
        if client is None:
            return False
        self.rejected[Rejection.DESCRIPTORS] += 1
        # Under TLS an answer would take a handshake, and a second descriptor's worth of patience.
        plain = self._tls is None or sock.family == socket.AF_UNIX
        connections.start_soon(partial(self._last_resort.turn_away, client, answer=plain))
        return True

    async def _serve(self, client: socket.socket, address: object) -> None:
        """One connection from its first byte. Closes it, whatever happens."""
        remote = _name(address) or "unix"
        limits = self._gateway.limits
        plain = SocketTransport(client)
        slot = self.admission.new_slot(address)
        try:
            plain.set_options(limits.unsent_bytes)
            rest = await self._admit(plain, address, slot)
            if rest is not None:
                await rest
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.rejected[Rejection.LEFT] += 1
        except Exception as error:
            log.error("connection failed", remote=remote, exc_info=error)
        finally:
            slot.leave()
            plain.close()

    async def _admit(
        self, plain: SocketTransport, address: object, slot: CountedConnection
    ) -> Coroutine[object, object, None] | None:
        """Read the first request and see to it. What is left to do is returned: a WebSocket connection lasts,
        and should not hold on to its request for as long."""
        remote = _name(address) or "unix"
        began = time.monotonic()
        settings = self._gateway.loaded.settings.server
        in_time = trio.current_time() + settings.limits.head_timeout_ms / 1000
        transport: SocketTransport | TlsTransport = plain
        if self._tls is not None and plain.socket.family != socket.AF_UNIX:
            transport = TlsTransport(plain, self._tls.context, self._ciphertext)
            # The head has what the handshake leaves: one clock for a client that dawdles.
            within = min(in_time, trio.current_time() + settings.limits.tls_handshake_timeout_ms / 1000)
            with trio.move_on_at(within) as scope:
                await transport.do_handshake()
            if scope.cancelled_caught:
                self.rejected[Rejection.TIMEOUT] += 1
                return None
        head_limits = HeadLimits(
            total_bytes=settings.limits.head_bytes, seconds=settings.limits.head_timeout_ms / 1000
        )
        head = None
        try:
            found = await read_head(transport, head_limits, deadline=in_time)
            if found is None:
                return None
            head = found.head
            ends = ConnectionEnds(_end(address), _end(plain.socket.getsockname()), transport is not plain)
            check = partial(self._check_host, remote, ends)
            check(head)
            route = self._routes.resolve(head)
            if isinstance(route, WebSocketMatch):
                admitted = await self._handshake.admit(transport, found, route, ends, remote, slot)
                self._gateway.meters.handshake_over("ws", time.monotonic() - began)
                return admitted
        except HttpError as error:
            self.rejected[_reason(error)] += 1
            self._routes.add_page(error.path if head is None else head.path, error)
            await refuse(transport, error, body=head is None or head.method != "HEAD")
            if head is not None and not wants_websocket(head):
                self._gateway.meters.request_over("", head.method, error.status, time.monotonic() - began)
            return None
        http_limits = HttpLimits(
            head=head_limits,
            send_seconds=settings.limits.http_stall_timeout_ms / 1000,
            stall_seconds=settings.limits.stall_timeout_ms / 1000 or math.inf,
        )
        return self._http(transport, found, http_limits, ends, check)

    async def _http(
        self,
        transport: SocketTransport | TlsTransport,
        first: FoundHead,
        limits: HttpLimits,
        ends: ConnectionEnds,
        check: Check,
    ) -> None:
        # Every request is answered: a gateway that is full must still tell its orchestrator that it lives.
        # Those beyond the places that are kept for plain HTTP cannot stay for another one.
        kept = self._gateway.limits.http_connections
        closing = self._closing if self._http_connections < kept else _AT_ONCE
        self._http_connections += 1
        try:
            over = self._gateway.meters.request_over
            await serve_http(transport, first, self._routes, limits, closing, ends, over, check)
        finally:
            self._http_connections -= 1
            self._http_left.unpark_all()

    def _check_host(self, remote: str, ends: ConnectionEnds, head: RequestHead) -> None:
        """Raise HttpError 403 for a page that may have pointed its own name at us. Where clients must say
        who they are, that decides (`check_caller`)."""
        if not self._gateway.hooks.authenticates:
            check_host(head, ends.here, self._own_origins(), remote)


def _reason(error: HttpError) -> Rejection:
    if isinstance(error, RejectedError):
        return error.reason
    return Rejection.TIMEOUT if error.status == 408 else Rejection.BAD_REQUEST


def _name(address: object) -> str:
    """Write an address as people do."""
    if isinstance(address, tuple):
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"unix:{os.fsdecode(address)}" if isinstance(address, str | bytes) and address else ""


def _end(address: object) -> tuple[str, int] | None:
    """Return host and port of an address; None for a Unix socket."""
    return (address[0], address[1]) if isinstance(address, tuple) else None
