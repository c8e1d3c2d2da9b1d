"""What a listener does when the descriptors are used up: a few are kept for telling clients so.

Without them a client would wait in the backlog, connected and not answered, for as long as the others stay.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

import structlog
import trio

from kiwi_gw.edge.http_errors import HttpError, render_error

log = structlog.get_logger(__name__)

_KEPT = 16
_READ_ON_SECONDS = 0.05
_LOG_SECONDS = 1.0


class ReservedDescriptors:
    """Turns clients away, at most 16 at a time, with the descriptors that it keeps for that."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._logged_at = -_LOG_SECONDS
        self._not_told = 0
        self._hold()

    def accept(self, sock: socket.socket, problem: str) -> socket.socket | None:
        """After `accept` of this listening socket has failed for want of descriptors: a client, which has to
        be given to `turn_away`. None: no client waits, or all that is kept is in use.

        problem: what the log says, once a second.
        """
        if not self._kept:
            return None
        os.close(self._kept.pop())
        try:
            client, _ = sock.accept()
        except BlockingIOError:
            self._hold()
            return None  # the kernel complains also where no client waits
        except OSError:
            self._hold()  # another process was quicker
            self._tell(problem)
            return None
        self._not_told += 1
        self._tell(problem)
        return client

    async def turn_away(self, client: socket.socket, *, answer: bool) -> None:
        """Close it; answer: with a 503 in plain HTTP before, else without a word."""
        try:
            with client:
                if answer:
                    await _answer(client)
        finally:
            self._hold()

    def close(self) -> None:
        """Let go of the descriptors."""
        while self._kept:
            os.close(self._kept.pop())

    def _hold(self) -> None:
        with suppress(OSError):  # another was quicker: what is kept is filled up the next time
            while len(self._kept) < _KEPT:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _tell(self, problem: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            log.error("cannot accept connections", problem=problem, turned_away=self._not_told)
            self._logged_at, self._not_told = now, 0


async def _answer(client: socket.socket) -> None:
    """Say it and wait for the client to have read it: it would be lost if we closed on what it still sends.
    Only for a moment, for others wait meanwhile."""
    client.setblocking(False)
    error = HttpError(503, "too many connections; try again later")
    with suppress(OSError), trio.move_on_after(_READ_ON_SECONDS):
        client.send(render_error(error))
        client.shutdown(socket.SHUT_WR)
        while True:
            await trio.lowlevel.wait_readable(client)
            if not client.recv(16 * 1024):
                return
