"""The Kiwi WebSocket protocol as a dialect of the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api import Document, Route, SessionLimits, WebSocketRoute
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.kiwi.requests import UnknownMembers
from kiwi_gw.dialects.kiwi.results import Envelope, kiwi_wire
from kiwi_gw.dialects.kiwi.session import KiwiSession
from kiwi_gw.model import HeadCredential, Identity

_SUBPROTOCOLS = ("kiwi-gw",)


@dataclass(frozen=True, slots=True)
class KiwiDialect:
    """Implements `kiwi_gw.dialect_api.Dialect`.

    envelope: `flat` as the document says, `nested` as the original server does.
    max_event_bytes: larger frames are given up and announced (`window.event_bytes`). unknown_members: what
    becomes of a command with members that there are not. clock: monotonic seconds.
    """

    envelope: Envelope = "flat"
    max_event_bytes: int = MAX_EVENT_BYTES
    unknown_members: UnknownMembers = "refuse"
    clock: Callable[[], float] = time.monotonic

    @property
    def routes(self) -> Sequence[Route]:
        return tuple(WebSocketRoute(path, _SUBPROTOCOLS) for path in ("/", "/kiwi"))

    @property
    def documents(self) -> Mapping[str, Document]:
        return {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        wire = partial(kiwi_wire, envelope=self.envelope, max_event_bytes=self.max_event_bytes)
        return KiwiSession(wire, self.envelope, limits, self.unknown_members, self.clock)
