"""What a listener does when the descriptors are used up: one is kept for telling clients so.

Without it a client would wait in the backlog, connected and not answered, for as long as the others stay.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

import structlog
import trio

from kiwi_gw.edge.answers import HttpError, render_error

log = structlog.get_logger(__name__)

_READ_ON_SECONDS = 0.05
_PAUSE_SECONDS = 0.1
_LOG_SECONDS = 1.0
_NONE = -1


class LastResort:
    """Turns clients away one by one, with the descriptor that it keeps for that."""

    def __init__(self) -> None:
        self._reserve = _NONE
        self._one_at_a_time = trio.Lock()
        self._logged_at = -_LOG_SECONDS
        self._not_told = 0
        self._hold()

    async def turn_away(self, sock: socket.socket, problem: str, *, answer: bool) -> bool:
        """After `accept` of this listening socket has failed for want of descriptors: whether a client was
        turned away. False: nobody waits, or there was no way, and a moment has passed.

        answer: with a 503 in plain HTTP; else without a word. problem: what the log says.
        """
        async with self._one_at_a_time:
            self.close()
            try:
                client, _ = sock.accept()
            except BlockingIOError:
                return False  # the kernel complains also where nobody waits
            except OSError:
                self._tell(problem)  # somebody was quicker
                await trio.sleep(_PAUSE_SECONDS)
                return False
            else:
                with client:
                    self._not_told += 1
                    self._tell(problem)
                    if answer:
                        await _answer(client)
                return True
            finally:
                self._hold()

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._reserve != _NONE:
            os.close(self._reserve)
            self._reserve = _NONE

    def _hold(self) -> None:
        if self._reserve == _NONE:
            with suppress(OSError):  # somebody was quicker: `turn_away` tries again
                self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _tell(self, problem: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            log.error("cannot accept connections", problem=problem, turned_away=self._not_told)
            self._logged_at, self._not_told = now, 0


async def _answer(client: socket.socket) -> None:
    """Say it and wait for the client to have read it: it would be lost if we closed on what it still sends.
    Only for a moment, for the others wait meanwhile."""
    client.setblocking(False)
    error = HttpError(503, "too many connections; try again later")
    with suppress(OSError), trio.move_on_after(_READ_ON_SECONDS):
        client.send(render_error(error))
        client.shutdown(socket.SHUT_WR)
        while True:
            await trio.lowlevel.wait_readable(client)
            if not client.recv(16 * 1024):
                return
