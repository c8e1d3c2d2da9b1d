"""Slow is not dead: who is looked for, and who is let go.

A connection is alive if since the last look it sent a byte, took a byte (of more than our pings) or answered
a ping. Pings go only to connections to which nothing was sent for `ping_interval_ms`; one that stays silent
for `dead_after_ms`, counted from the last sign of life, is cut. A full socket gets no ping; it is cut after
`stall_timeout_ms` without one byte taken, by default never.

While events flow, "took a byte" only means that our own kernel did. So a client that sends nothing is looked
at below that, too: a machine that answers nothing at all for `vanished_after_ms`, although it was sent
something, is gone. A client that only does not read is not: its machine answers for it.

Where this process has stood still (it was stopped, or its machine was), what clients said meanwhile has not
been read yet, so nobody is judged before the next look.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import structlog

from kiwi_gw.codes import CloseCode, RefusalCode
from kiwi_gw.config import LimitSettings
from kiwi_gw.model import Identity, Refusal
from kiwi_gw.runtime.connection import Connection

log = structlog.get_logger(__name__)

EXPIRED = Refusal(RefusalCode.TOKEN_EXPIRED, "the credentials have expired", retry=True)

_PING = b"\x89\x00"
_ROUND = 1.0  # seconds between two looks at the same connection
_AT_ONCE = 100
_PARTS = 8  # of a round, so that many connections do not hold up the others' events
_TURN = 16  # connections, a quarter of a millisecond, until others have their turn
_JUST_NOW = _ROUND
_STOOD_STILL = 1.0  # seconds by which a look comes too late


def unexpired(answer: Identity | Refusal) -> Identity | Refusal:
    """Return who a client is, or EXPIRED where the credentials have expired."""
    expires_at = answer.expires_at if isinstance(answer, Identity) else None
    return answer if expires_at is None or expires_at > time.time() else EXPIRED


class Keepalive:
    """Looks at every connection about once a second.

    limits: may be replaced at any time. unresponsive, stalled, vanished: how many connections were cut.
    """

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self._began = 0.0
        self._left: list[Connection] = []
        self._share = 0
        self._put_off = False
        self.unresponsive = 0
        self.stalled = 0
        self.vanished = 0

    def look(
        self, connections: Iterable[Connection], now: float, wall: float, late: float = 0.0
    ) -> Iterator[None]:
        """Look at a part of them, and yield where others may have their turn. Call it four times a second.
        now: monotonic seconds, `wall`: seconds since the epoch (only tokens know that clock). late: by how
        many seconds it comes too late."""
        self._put_off = late >= _STOOD_STILL and not self._put_off
        if self._put_off:
            return
        if not self._left and now - self._began >= _ROUND:
            self._began = now
            self._left = list(connections)
            self._share = max(_AT_ONCE, len(self._left) // _PARTS)
        part, self._left = self._left[: self._share], self._left[self._share :]
        for number, connection in enumerate(part, 1):
            self._look_at(connection, now, wall)
            if number % _TURN == 0:
                yield

    def _look_at(self, connection: Connection, now: float, wall: float) -> None:
        writer, liveness = connection.writer, connection.liveness
        if writer.close_code is not None:
            return  # it has ended, or it is closing, which has its own deadline
        expires_at = connection.identity.expires_at
        if expires_at is not None and wall >= expires_at:
            connection.dismiss(EXPIRED)
            return
        self.tell_of_expiry(connection, wall)
        limits = self.limits
        if self._has_vanished(connection, now):
            self.vanished += 1
            _cut(connection, "unresponsive", "its machine answers nothing")
            return
        if writer.full:
            stall = limits.stall_timeout_ms / 1000
            if stall and now - writer.taken_at >= stall:
                self.stalled += 1
                _cut(connection, "stalled", "it takes nothing")
            return
        if liveness.silence_seconds is not None:
            _look_for_silence(connection, liveness.silence_seconds, now)
        if writer.sent_bytes != liveness.pinged_bytes:
            liveness.pinged_bytes = writer.sent_bytes
            liveness.taken_at = writer.taken_at
        alive_at = max(connection.heard_at, liveness.taken_at)
        if liveness.pinged_at > alive_at and now - alive_at >= limits.dead_after_ms / 1000:
            self.unresponsive += 1
            _cut(connection, "unresponsive", "it says nothing and answers no ping")
        elif now - writer.taken_at >= limits.ping_interval_ms / 1000:
            if liveness.pinged_at <= alive_at:
                liveness.pinged_at = now
            if liveness.awaits_pong_of is None:
                liveness.awaits_pong_of = now
            writer.control(_PING)
            liveness.pinged_bytes = writer.sent_bytes

    def tell_of_expiry(self, connection: Connection, wall: float) -> None:
        """Say that its credentials expire soon, once for each time at which some do."""
        expires_at = connection.identity.expires_at
        notice = self.limits.expiry_notice_ms / 1000
        if expires_at is None or not 0 < expires_at - wall <= notice:
            return
        if connection.liveness.expiry_announced != expires_at:
            connection.liveness.expiry_announced = expires_at
            connection.expiring(expires_at - wall)

    def _has_vanished(self, connection: Connection, now: float) -> bool:
        limit = self.limits.vanished_after_ms / 1000
        writer, liveness = connection.writer, connection.liveness
        # Asking costs a system call: not for those who speak, or had answered everything that was sent.
        answers = now - connection.heard_at < _JUST_NOW or (
            writer.sent_bytes == liveness.answered_bytes and not writer.full
        )
        if not limit or answers:
            liveness.unanswered_at = None
            return False
        silence = writer.unanswered()
        if silence is None:
            liveness.unanswered_at = None
            liveness.answered_bytes = writer.sent_bytes
            return False
        since = liveness.unanswered_at
        if since is None:
            # After an idle hour the last answer is an hour old the moment something is sent.
            liveness.unanswered_at = now - silence if silence < 2 * _ROUND else now
            return False
        liveness.unanswered_at = max(since, now - silence)
        return now - liveness.unanswered_at >= limit


def _look_for_silence(connection: Connection, seconds: float, now: float) -> None:
    """Tell its session if the client was sent nothing but pings and pongs for so long."""
    writer, liveness = connection.writer, connection.liveness
    said = writer.sent_bytes - writer.unsaid_bytes
    if said != liveness.said_bytes:
        liveness.said_bytes, liveness.said_at = said, now
    elif now - liveness.said_at >= seconds:
        connection.silent()


def _cut(connection: Connection, reason: str, why: str) -> None:
    log.info("connection is given up", conn_id=connection.number, remote=connection.remote, why=why)
    connection.abort(CloseCode.DEAD, reason)
