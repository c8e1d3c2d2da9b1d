"""One subscriber's connection: opened, upgraded and subscribed with blocking calls."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.frames import bounds, masked, upgrade

_CONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Address:
    """Say where a server is. tls: how to shake hands; None: not at all."""

    host: str
    port: int
    path: str = "/"
    tls: ssl.SSLContext | None = None


def trusting(ca: str) -> ssl.SSLContext:
    """Trust the authority in this file, whatever host its certificates name."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    return context


def subscribed(
    address: Address, commands: Sequence[Mapping[str, object]], answered: bytes
) -> tuple[socket.socket, bytes]:
    """Return a subscribed, blocking socket, and what came behind the answers to the commands. In each answer
    there is `answered`. SystemExit where it is refused."""
    sock = socket.create_connection((address.host, address.port), timeout=_CONNECT_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls is not None:
        sock = address.tls.wrap_socket(sock)
    sock.sendall(upgrade(address.host, address.port, address.path))
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _more(sock)
    head, _, rest = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101 "):
        raise SystemExit(f"the server did not upgrade: {head!r}")
    sock.sendall(b"".join(map(masked, commands)))
    for command in commands:
        while (found := bounds(rest, 0)) is None:
            rest += _more(sock)
        begin, end = found
        if answered not in rest[begin:end]:
            raise SystemExit(f"{command} was answered with {rest[begin:end]!r}")
        rest = rest[end:]
    return sock, rest


def established(sock: socket.socket) -> bool:
    """Return whether the kernel holds this connection for open in both directions."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01"


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(65_536)
    if not data:
        raise SystemExit("the server has closed a connection that was just opened")
    return data
