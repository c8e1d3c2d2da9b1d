"""What a worker learns from the process that starts it, in its environment."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kiwi_gw.config import TcpAddress, UnixAddress
from kiwi_gw.config.address import parse_address
from kiwi_gw.edge.listener import listen

VARIABLE = "KIWI_GW_WORKER"
LISTENING = b"listening\n"
"""What a worker writes to its standard output as soon as it serves. Its standard input ends when the process
that started it is gone."""


class SharedAddress(msgspec.Struct, frozen=True):
    """One address. fd: of the listening socket that all workers share (a Unix socket has no other way)."""

    address: str
    fd: int | None = None

    @property
    def port(self) -> int | None:
        """Return its port. None: it is a Unix socket."""
        address = parse_address(self.address)
        return address.port if isinstance(address, TcpAddress) else None

    def open(self) -> socket.socket:
        """Open this worker's own listening socket. Raises ListenError."""
        if self.fd is not None:
            sock = socket.socket(fileno=self.fd)
            sock.setblocking(False)
            return sock
        return listen(parse_address(self.address), shared=True)


class WorkerConfig(msgspec.Struct, frozen=True):
    """One worker's place among the others.

    slot: 0 to `workers` - 1. restarts: how many worked in this slot before. folder: what the workers share,
    theirs alone. start: an id of this start of the gateway; secret: what they alone know, of the same start.
    public, own, admin: where to listen: all of them, this one alone, and for operators (None: without that).
    """

    slot: int
    workers: int
    restarts: int
    folder: str
    start: str
    secret: str
    public: tuple[SharedAddress, ...]
    own: tuple[SharedAddress, ...]
    admin: SharedAddress | None

    @property
    def own_port(self) -> int | None:
        """Return the port that only this worker listens on. None: there is none."""
        return self.own[0].port if self.own else None

    @property
    def own_socket(self) -> UnixAddress:
        return socket_of(Path(self.folder), self.slot)

    def dump(self) -> str:
        """As the environment variable has it."""
        return msgspec.json.encode(self).decode()


def socket_of(folder: Path, slot: int) -> UnixAddress:
    """Where a worker answers the others."""
    return UnixAddress(str(folder / f"{slot}.sock"))


def worker_config_of(environ: Mapping[str, str]) -> WorkerConfig | None:
    """Read this process's post, None if it is no worker."""
    text = environ.get(VARIABLE)
    return None if text is None else msgspec.json.decode(text, type=WorkerConfig)
