"""Slow is not dead: who is looked for, and who is let go.

A connection is alive if since the last look it sent a byte, took a byte (of more than our pings) or answered
a ping. Pings go only to connections to which nothing was sent for `ping_interval_ms`; one that stays silent
for `dead_after_ms`, counted from the last sign of life, is cut. A full socket gets no ping; it is cut after
`stall_timeout_ms` without one byte taken, by default never.

While events flow, "took a byte" only means that our own kernel did. So whoever sends nothing is looked at
below that, too: a machine that answers nothing at all for `vanished_after_ms`, although it was sent
something, is gone. A client that only does not read is not: its machine answers for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import structlog

from kiwi_gw.runtime.connection import Connection

log = structlog.get_logger(__name__)

_PING = b"\x89\x00"
_ROUND = 1.0  # seconds between two looks at the same connection
_AT_ONCE = 100
_PARTS = 8  # of a round, so that many connections do not hold up the others' events
_JUST_NOW = _ROUND


class Limits(Protocol):
    @property
    def ping_interval_ms(self) -> int: ...

    @property
    def dead_after_ms(self) -> int: ...

    @property
    def stall_timeout_ms(self) -> int: ...

    @property
    def vanished_after_ms(self) -> int: ...

    @property
    def expiry_notice_ms(self) -> int: ...


class Keepalive:
    """Looks at every connection about once a second.

    limits: may be replaced at any time. unresponsive, stalled, vanished: how many connections were cut.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._began = 0.0
        self._left: list[Connection] = []
        self._share = 0
        self.unresponsive = 0
        self.stalled = 0
        self.vanished = 0

    def look(self, connections: Iterable[Connection], now: float, wall: float) -> None:
        """Call it about ten times a second. now: monotonic seconds, `wall`: seconds since the epoch (only
        tokens know that clock)."""
        if not self._left and now - self._began >= _ROUND:
            self._began = now
            self._left = list(connections)
            self._share = max(_AT_ONCE, len(self._left) // _PARTS)
        part, self._left = self._left[: self._share], self._left[self._share :]
        for connection in part:
            self._look_at(connection, now, wall)

    def _look_at(self, connection: Connection, now: float, wall: float) -> None:
        outlet, signs = connection.outlet, connection.signs
        if outlet.close_code is not None:
            return  # it has ended, or it is closing, which has its own deadline
        expires_at = connection.identity.expires_at
        if expires_at is not None and wall >= expires_at:
            connection.hang_up(4402, "token_expired")
            return
        self.tell_of_expiry(connection, wall)
        limits = self.limits
        if self._has_vanished(connection, now):
            self.vanished += 1
            _cut(connection, "unresponsive", "its machine answers nothing")
            return
        if outlet.full:
            stall = limits.stall_timeout_ms / 1000
            if stall and now - outlet.taken_at >= stall:
                self.stalled += 1
                _cut(connection, "stalled", "it takes nothing")
            return
        if outlet.sent_bytes != signs.pinged_bytes:
            signs.pinged_bytes = outlet.sent_bytes
            signs.taken_at = outlet.taken_at
        alive_at = max(connection.heard_at, signs.taken_at)
        if signs.pinged_at > alive_at and now - alive_at >= limits.dead_after_ms / 1000:
            self.unresponsive += 1
            _cut(connection, "unresponsive", "it says nothing and answers no ping")
        elif now - outlet.taken_at >= limits.ping_interval_ms / 1000:
            if signs.pinged_at <= alive_at:
                signs.pinged_at = now
            if signs.awaits_pong_of is None:
                signs.awaits_pong_of = now
            outlet.control(_PING)
            signs.pinged_bytes = outlet.sent_bytes

    def tell_of_expiry(self, connection: Connection, wall: float) -> None:
        """Say that its credentials expire soon, once for each time at which some do."""
        expires_at = connection.identity.expires_at
        notice = self.limits.expiry_notice_ms / 1000
        if expires_at is None or not 0 < expires_at - wall <= notice:
            return
        if connection.signs.told_of_expiry != expires_at:
            connection.signs.told_of_expiry = expires_at
            connection.expiring(expires_at - wall)

    def _has_vanished(self, connection: Connection, now: float) -> bool:
        limit = self.limits.vanished_after_ms / 1000
        outlet, signs = connection.outlet, connection.signs
        # Asking costs a system call: not for those who speak, or had answered everything that was sent.
        answers = now - connection.heard_at < _JUST_NOW or (
            outlet.sent_bytes == signs.answered_bytes and not outlet.full
        )
        if not limit or answers:
            signs.unanswered_at = None
            return False
        silence = outlet.unanswered()
        if silence is None:
            signs.unanswered_at = None
            signs.answered_bytes = outlet.sent_bytes
            return False
        # After an idle hour the last answer is an hour old the moment something is sent: count from when
        # it was first seen to be missing.
        since = signs.unanswered_at
        signs.unanswered_at = now if since is None else max(since, now - silence)
        return now - signs.unanswered_at >= limit


def _cut(connection: Connection, reason: str, why: str) -> None:
    log.info("connection is given up", conn_id=connection.number, remote=connection.remote, why=why)
    connection.abort(4408, reason)
