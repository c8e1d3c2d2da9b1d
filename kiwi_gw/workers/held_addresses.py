"""The addresses of a gateway with several workers, held by the process that starts them.

A TCP port is bound here and listened on by every worker for itself (SO_REUSEPORT): the kernel spreads new
clients over them, and a port that is taken is found before anything is started. Port 0 becomes one
port for all. A Unix socket cannot be shared like that: it is opened here, and the workers inherit it.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from kiwi_gw.config import Address, TcpAddress, UnixAddress
from kiwi_gw.edge.listener import ListenError, bind, listen
from kiwi_gw.workers.worker_config import SharedAddress


class HeldAddresses:
    """Addresses that are held until `close`. unix_mode: of the files of Unix sockets. Raises ListenError."""

    def __init__(self, unix_mode: int) -> None:
        self._unix_mode = unix_mode
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()

    def take(self, address: Address) -> SharedAddress:
        """Hold this one, too."""
        if isinstance(address, UnixAddress):
            sock = self._stack.enter_context(listen(address, mode=self._unix_mode))
            self._stack.callback(Path(address.path).unlink, missing_ok=True)
            return SharedAddress(str(address), sock.fileno())
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ListenError("several workers need SO_REUSEPORT, which this system does not have")
        if address.port:
            # Another gateway of the same user with workers of its own would share the port, and the clients.
            bind_exclusively(address)
        sock = self._stack.enter_context(bind(address, shared=True))
        return SharedAddress(str(TcpAddress(address.host, sock.getsockname()[1])))


def bind_exclusively(address: TcpAddress) -> None:
    """Raise ListenError if another process listens there."""
    bind(address, shared=False).close()
