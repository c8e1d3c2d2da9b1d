"""Opening the admin address, which may be missing where nobody asked for it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeVar

import structlog

from kiwi_gw.config import Address, Server
from kiwi_gw.config.address import is_loopback
from kiwi_gw.edge.listener import ListenError

log = structlog.get_logger(__name__)

T = TypeVar("T")


def admin_socket(server: Server, open_it: Callable[[Address], T]) -> T | None:
    """What `open_it` makes of the address; None without one, and where the default is somebody else's.

    Nobody asked for the default, and a gateway that worked yesterday must not fail for want of it. Raises
    ListenError where the configuration names an address that cannot be had.
    """
    if server.admin is None:
        return None
    try:
        return open_it(server.admin)
    except ListenError as error:
        if server.admin_wanted:
            raise ListenError(f"{error} (server.admin_address; null: without it)") from error
        log.warning("no metrics and no admin address; set server.admin_address", problem=str(error))
        return None


def is_local(sock: socket.socket) -> bool:
    """Whether only this machine can reach a listening socket."""
    return sock.family == socket.AF_UNIX or is_loopback(sock.getsockname()[0])
