"""Many clients in one thread that read, and answer the close frame: so cheap that they hold nobody up."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.integration.wire import CLOSE, check_accepted, command, frame, frames, handshake

_AT_ONCE = 128
_PATIENCE_S = 30.0


@dataclass
class Polite:
    """One client. closed: the payload of the close frame that it got. messages: what came before it."""

    sock: socket.socket
    accept: bytes
    buffer: bytearray = field(default_factory=bytearray)
    messages: list[bytes] = field(default_factory=list)
    accepted: bool = False
    closed: bytes | None = None
    gone: bool = False

    def read(self) -> None:
        try:
            data = self.sock.recv(64 * 1024)
        except ConnectionResetError:
            data = b""
        self.gone = not data
        self.buffer += data
        if not self.accepted:
            head, found, rest = bytes(self.buffer).partition(b"\r\n\r\n")
            if not found:
                return
            check_accepted(head, self.accept)
            self.accepted = True
            self.buffer[:] = rest
        for opcode, payload in frames(self.buffer):
            if opcode == CLOSE:
                self.closed = payload
                self.sock.send(frame(CLOSE, payload[:2]))
            else:
                self.messages.append(payload)


class PoliteCrowd:
    """Every client subscribes to `source`. To be used from one thread at a time."""

    def __init__(self, port: int, source: str, count: int) -> None:
        self.clients: list[Polite] = []
        self._selector = selectors.DefaultSelector()
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", port))
            request, accept = handshake("localhost")
            sock.sendall(request + command("SUBSCRIBE", source))
            one = Polite(sock, accept)
            self._selector.register(sock, selectors.EVENT_READ, one)
            self.clients.append(one)
            if len(self.clients) % _AT_ONCE == 0:
                self._until_subscribed()
        self._until_subscribed()

    def leave_when_told(self, look: Callable[[], object]) -> None:
        """Read until the last one has been closed, and `look` now and then. TimeoutError if nothing comes
        any more."""
        while self._selector.get_map():
            self._step()
            look()

    def close(self) -> None:
        for one in self.clients:
            one.sock.close()
        self._selector.close()

    def _until_subscribed(self) -> None:
        while any(not one.messages for one in self.clients):
            self._step()

    def _step(self) -> None:
        ready = self._selector.select(_PATIENCE_S)
        if not ready:
            raise TimeoutError("the gateway says nothing")
        for key, _ in ready:
            one: Polite = key.data
            one.read()
            if one.gone:
                self._selector.unregister(one.sock)
                one.sock.close()
