"""Loopback: free ports for a broker and its controller, and whether a broker answers on one."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from dataclasses import dataclass

import trio

from kiwi_gw.errors import KiwiError

HOST = "127.0.0.1"
_METADATA, _VERSION, _CORRELATION = 3, 1, 1


class BrokerError(KiwiError):
    """Report that the broker could not be started or does not answer. The message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Node:
    """Describe one node of a cluster: its id and its two ports on loopback."""

    id: int
    port: int
    controller_port: int


def free_ports(count: int, first: int = 0) -> list[int]:
    """Find so many free ports of loopback, the first of them as wanted (0: any). Looked for one by one, two
    of them may be the same. Raises BrokerError."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one, port in zip(sockets, [first, *[0] * count], strict=False):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((HOST, port))
            except OSError as error:
                raise BrokerError(f"port {port} on {HOST} cannot be used: {error.strerror}") from error
        return [one.getsockname()[1] for one in sockets]


def free_port(preferred: int = 0) -> int:
    """Return `preferred` if it is free on loopback, else a port that is."""
    try:
        return free_ports(1, preferred)[0]
    except BrokerError:
        return free_ports(1)[0]


async def answers(host: str, port: int, within: float = 2.0) -> bool:
    """Return whether a Kafka broker on `port` answers a metadata request and knows of at least one broker."""
    client = b"kiwi-gw"
    # Kafka protocol: request header v1 (of a metadata request), then an empty list of topics.
    body = (
        struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(client)) + client + struct.pack(">i", 0)
    )
    with trio.move_on_after(within):
        try:
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(struct.pack(">i", len(body)) + body)
                received = b""
                while len(received) < 12:
                    chunk = await stream.receive_some()
                    if not chunk:
                        return False
                    received += chunk
        except (OSError, trio.BrokenResourceError):
            return False
        _, correlation, brokers = struct.unpack(">iii", received[:12])
        return bool(correlation == _CORRELATION and brokers > 0)
    return False
