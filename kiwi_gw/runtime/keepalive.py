"""Slow is not dead: who is looked for, and who is let go.

A connection is alive if since the last look it sent a byte, took a byte or answered a ping. Pings go only
to connections to which nothing was sent for `ping_interval_ms`; one that then stays silent for
`dead_after_ms` is cut. A full socket gets no ping; it is cut after `stall_timeout_ms` without one byte
taken, by default never.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import structlog

from kiwi_gw.runtime.connection import Connection

log = structlog.get_logger(__name__)

_PING = b"\x89\x00"
_ALL_WITHIN = 1.0  # seconds in which every connection is looked at once


class Limits(Protocol):
    @property
    def ping_interval_ms(self) -> int: ...

    @property
    def dead_after_ms(self) -> int: ...

    @property
    def stall_timeout_ms(self) -> int: ...


class Keepalive:
    """Looks at every connection about once a second."""

    def __init__(self, limits: Limits) -> None:
        self._ping = limits.ping_interval_ms / 1000
        self._dead = limits.dead_after_ms / 1000
        self._stall = limits.stall_timeout_ms / 1000
        self._last = 0.0
        self.unresponsive = 0
        self.stalled = 0

    def look(self, connections: Iterable[Connection], now: float, wall: float) -> None:
        """now: monotonic seconds, `wall`: seconds since the epoch (only tokens know that clock)."""
        if now - self._last < _ALL_WITHIN:
            return
        self._last = now
        for connection in list(connections):
            self._look_at(connection, now, wall)

    def _look_at(self, connection: Connection, now: float, wall: float) -> None:
        outlet = connection.outlet
        if outlet.close_code is not None:
            return  # closing has its own deadline
        expires_at = connection.identity.expires_at
        if expires_at is not None and wall >= expires_at:
            connection.hang_up(4402, "token_expired")
            return
        if not outlet.idle:
            if self._stall and now - outlet.taken_at >= self._stall:
                self.stalled += 1
                connection.abort(4408, "stalled")
            return
        if connection.pinged_at > connection.heard_at and now - connection.heard_at >= self._dead:
            self.unresponsive += 1
            connection.abort(4408, "unresponsive")
            return
        if now - outlet.taken_at >= self._ping:
            if connection.pinged_at <= connection.heard_at:
                connection.pinged_at = now
            outlet.control(_PING)
