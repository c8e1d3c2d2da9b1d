"""What the service manager (systemd) wants to know: sd_notify(3), datagrams to the socket that it names."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog
import trio

log = structlog.get_logger(__name__)

_BEATS: Final = 3
"""Signs of life within the time after which the manager gives the process up."""


class SystemdNotifier:
    """Tells one manager how this process is. Without `NOTIFY_SOCKET` in the environment it does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # (an abstract one, without a file)
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self._watchdog_seconds = int(usec) / 1e6 if mine and usec.isascii() and usec.isdigit() else 0.0

    def ready(self) -> None:
        """Say that it serves; also after a reload."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Say that it is on its way out."""
        self._send("STOPPING=1")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Say that a reload has begun, and at the end of the block that it is over."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.ready()

    async def show_life(self) -> None:
        """Send a sign of life as often as the manager wants one, for as long as the event loop turns."""
        while self._address and self._watchdog_seconds:
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / _BEATS)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("the service manager does not listen", state=state, problem=error.strerror)
