"""Opening the admin address, which may be missing where the configuration does not name it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeVar

import structlog

from kiwi_gw.config import Address, ServerSettings
from kiwi_gw.edge.listener import ListenError
from kiwi_gw.loopback import is_loopback

log = structlog.get_logger(__name__)

T = TypeVar("T")


def admin_socket(server: ServerSettings, open_it: Callable[[Address], T]) -> T | None:
    """Return what `open_it` makes of the address; None without one, and where the default is taken.

    The configuration did not ask for the default, and a gateway that worked yesterday must not fail for want
    of it. Raises ListenError where the configuration names an address that cannot be had.
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
