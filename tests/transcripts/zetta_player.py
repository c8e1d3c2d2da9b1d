"""Plays a recorded exchange against a Zetta session over real feeds, comparing the exact text of every frame.

Its lines, beside remarks (see `recorded`):

    @ query filterMultiple=true     of the request's target; first
    @ limits {"subscriptions": 2}   what differs from the default `SessionLimits`; first
    @ window 4                      events that a source keeps; first
    @ now 2.5                       the time of what follows, in seconds
    + arms {"topic": ".."}          a source with this `zetta` block appears, or another one under the id
    > {"type": ...}                 a text frame of the client
    >> 00ff                         a binary frame of the client, in hex
    ! arms [["1", 5], ["2", "x"]]   a batch of the source: keys and values
    ! arms ended                    also `failed WORDS`, `altered WORDS`
    ! stalls                        the client takes no byte; `! reads` it takes them again
    ! waits 1                       so many seconds go by
    < {"type": ...}                 a text frame of the gateway
    < close 1008 the reason         it closes the connection

The first level of sources that name no topic is `hub`, their type `fake`; the time of day is always the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.model import CloseReason
from tests.transcripts.recorded import texts
from tests.unit.dialects.zetta.bench import Client, Sources


@dataclass
class Player:
    """One client and its sources."""

    query: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    window: int = 65_536
    _sources: Sources | None = None
    _client: Client | None = None
    _read: int = 0

    @property
    def sources(self) -> Sources:
        if self._sources is None:
            limits = HubLimits(window_events=self.window, last_values=True)
            self._sources = Sources(limits)
        return self._sources

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self.sources.client(self.query, SessionLimits(**self.limits))
        return self._client

    def play(self, line: str) -> list[str]:
        """What a line brings about, as lines."""
        mark, _, rest = line.partition(" ")
        match mark:
            case "@":
                self._set(rest)
            case "+":
                name, _, block = rest.partition(" ")
                self.sources.source(name, **json.loads(block or "{}"))
            case ">":
                self.client.raw(rest)
            case ">>":
                self.client.raw(bytes.fromhex(rest))
            case "!":
                self._happened(rest)
            case _:
                raise ValueError(f"not a line of a transcript: {line!r}")
        return self._said()

    def _set(self, words: str) -> None:
        name, _, value = words.partition(" ")
        match name:
            case "query":
                self.query = value
            case "limits":
                self.limits = json.loads(value)
            case "window":
                self.window = int(value)
            case "now":
                self.sources.clock.now = float(value)
            case _:
                raise ValueError(f"no setting is called {name!r}")

    def _happened(self, words: str) -> None:
        name, _, rest = words.partition(" ")
        what, _, message = rest.partition(" ")
        writer = self.client.writer
        match name, what:
            case "stalls", "":
                writer.take = lambda size: 0
            case "reads", "":
                writer.take = lambda size: size
                writer.drain()
            case "waits", seconds:
                self.client.pass_time(float(seconds))
            case source, "ended":
                self.sources.hubs[source].ended()
            case source, "failed":
                self.sources.hubs[source].failed(message)
            case source, "altered":
                self.sources.hubs[source].removed(CloseReason.ALTERED, message, 5)
            case source, _:
                rows = json.loads(rest)
                self.sources.send(source, *(row[1] for row in rows), keys=[row[0] for row in rows])

    def _said(self) -> list[str]:
        if self._client is None:
            return []
        data = bytes(self.client.writer.wire[self._read :])
        self._read += len(data)
        lines = [f"< {text}" for text in texts(data)]
        if self.client.hung_up is not None:
            lines.append(f"< close {self.client.hung_up.code} {self.client.hung_up.reason}")
            self.client.hung_up = None
        return lines
