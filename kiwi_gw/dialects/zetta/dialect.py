"""The Zetta protocol, multiplexed WebSocket streams, as a dialect of the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api import Document, Route, SessionLimits, WebSocketRoute
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.zetta import siren
from kiwi_gw.dialects.zetta.session import ZettaSession
from kiwi_gw.dialects.zetta.topic_streams import TopicStream, same_topics
from kiwi_gw.model import HeadCredential, Identity, SourceInfo


def _wall() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ZettaDialect:
    """Implement `kiwi_gw.dialect_api.Dialect`.

    server: the first level of topics of sources that name none of their own. wall: ms since the epoch.
    clock: monotonic seconds.
    """

    server: str = "kiwi-gw"
    max_event_bytes: int = MAX_EVENT_BYTES
    wall: Callable[[], int] = _wall
    clock: Callable[[], float] = time.monotonic
    _streams: dict[str, tuple[SourceInfo, TopicStream]] = field(default_factory=dict, compare=False)

    @property
    def routes(self) -> Sequence[Route]:
        return (WebSocketRoute("/events"),)

    @property
    def documents(self) -> Mapping[str, Document]:
        return {siren.MEDIA_TYPE: siren.root}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        return ZettaSession(
            self.stream,
            limits,
            self.wall,
            self.clock,
            multiple=filters_multiple(head.query),
            max_event_bytes=self.max_event_bytes,
        )

    def stream(self, info: SourceInfo) -> TopicStream:
        """Return the topics of a source: one object for all clients, for as long as they stay the same."""
        found = self._streams.get(info.id)
        if found is None or not (found[0] is info or same_topics(found[0], info)):
            found = self._streams[info.id] = info, TopicStream(info, self.server, self.wall)
        return found[1]


def filters_multiple(query: str) -> bool:
    """Return whether the query of the request asks for `filterMultiple`; of several the last one counts."""
    given = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "filterMultiple"]
    return bool(given) and given[-1] in ("true", "1")
