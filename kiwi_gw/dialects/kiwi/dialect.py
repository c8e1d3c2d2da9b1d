"""The Kiwi WebSocket protocol as a dialect of the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

from kiwi_gw.core.commands import Session
from kiwi_gw.dialects.base import SessionLimits
from kiwi_gw.dialects.kiwi.members import UnknownMembers
from kiwi_gw.dialects.kiwi.replies import REPLIES
from kiwi_gw.dialects.kiwi.results import MAX_EVENT_BYTES, Envelope, kiwi_wire
from kiwi_gw.dialects.kiwi.session import KiwiSession
from kiwi_gw.model import Identity

MAX_MESSAGE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class KiwiDialect:
    """Implements `kiwi_gw.dialects.base.Dialect`.

    envelope: `flat` as the document says, `nested` as the original server does.
    max_event_bytes: larger frames are given up and announced (`limits.event_bytes`). unknown_members: what
    becomes of a command with members that there are not. clock: monotonic seconds.
    """

    envelope: Envelope = "flat"
    max_event_bytes: int = MAX_EVENT_BYTES
    max_message_bytes: int = MAX_MESSAGE_BYTES
    unknown_members: UnknownMembers = "refuse"
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.envelope not in get_args(Envelope):
            raise ValueError(
                f"envelope must be one of {', '.join(get_args(Envelope))}, not {self.envelope!r}"
            )

    @property
    def name(self) -> str:
        return "kiwi"

    @property
    def paths(self) -> tuple[str, ...]:
        return ("/", "/kiwi")

    @property
    def subprotocols(self) -> tuple[str, ...]:
        return ("kiwi-gw",)

    def session(self, head_query: str, identity: Identity, limits: SessionLimits) -> Session:
        wire = partial(kiwi_wire, envelope=self.envelope, max_event_bytes=self.max_event_bytes)
        return KiwiSession(wire, REPLIES[self.envelope], limits, self.unknown_members, self.clock)
