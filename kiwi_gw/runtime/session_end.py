"""The end of a session: who wants to know is told, and nothing is asked of it from then on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from kiwi_gw.core.commands import Command, HasEnd, Session
from kiwi_gw.core.notices import Notice

log = structlog.get_logger(__name__)


class _EndedSession:
    """Implements `Session`, for a connection that has none any more."""

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        return ()

    def notice(self, notice: Notice) -> Iterable[Command]:
        return ()


ENDED_SESSION: Final = _EndedSession()


def end_session(session: Session) -> Session:
    """Tell a session that it is over, if it wants to know. Returns what takes its place."""
    if isinstance(session, HasEnd):
        try:
            session.ended()
        except Exception as error:
            log.error("session failed at its end", exc_info=error)
    return ENDED_SESSION
