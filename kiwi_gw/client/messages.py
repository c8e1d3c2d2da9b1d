"""The Kiwi WebSocket protocol from the client's side: text in, messages out. No I/O.

Both wires are read: the documented one, and the original server's, which wraps its responses in
`{"type": "COMMAND_RESPONSE", "data": {"type": ...}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kiwi_gw.errors import KiwiError

Data = Mapping[str, object]


class NotKiwi(KiwiError):  # noqa: N818  (it states what the server is)
    """The server sent something that is not a message of the Kiwi protocol."""


@dataclass(frozen=True, slots=True)
class Event:
    """RESULT. frame: the message as it came, a JSON text. data: its `data`."""

    frame: str
    data: Data


@dataclass(frozen=True, slots=True)
class Response:
    """The server's answer to `command` (SUBSCRIBE, REQUEST or UNSUBSCRIBE). error: None where it is _OK."""

    command: str
    data: Data
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """NOTICE LAG: `count` events behind. Ours add `behind`, `dropped` and `ranges`."""

    frame: str
    data: Data


@dataclass(frozen=True, slots=True)
class SubscriptionClosed:
    """NOTICE SUBSCRIPTION_CLOSED. reason: our stable code, empty where the server has none."""

    frame: str
    data: Data
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """NOTICE POSITIONS: where the subscription is, asked for with `positionsEveryMs`."""

    data: Data


@dataclass(frozen=True, slots=True)
class Draining:
    """NOTICE DRAINING: the server is about to close this connection; come back after so many seconds."""

    frame: str
    retry_after: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """NOTICE SOURCE_DEGRADED or SOURCE_RESTORED: what keeps the source from its origin, empty: nothing."""

    frame: str
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message of a type that this client does not know. To be ignored, as protocols grow."""

    type: str
    data: Data = field(default_factory=dict)


Message = Event | Response | Lag | SubscriptionClosed | Standing | Trouble | Draining | Unknown


def subscribe(source_id: str, mode: str, **more: object) -> str:
    """more: further members by their names on the wire; one that is None is left out."""
    given = {name: value for name, value in more.items() if value is not None}
    return json.dumps({"type": "SUBSCRIBE", "sourceId": source_id, "mode": mode, **given})


def request(source_id: str, n: int) -> str:
    return json.dumps({"type": "REQUEST", "sourceId": source_id, "n": n})


def parse(frame: str | bytes) -> Message:
    """One frame of the server. NotKiwi for anything that is not an object with a `type` and a `data`."""
    if isinstance(frame, bytes):
        raise NotKiwi("the server sent a binary frame; this is not the Kiwi protocol")
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        raise NotKiwi("the server sent something that is not JSON; this is not the Kiwi protocol") from None
    kind, data = _typed(message)
    if kind == "RESULT":
        return Event(frame, data)
    if kind == "NOTICE":
        return _notice(frame, data)
    if kind == "COMMAND_RESPONSE":
        kind = str(data.get("type"))
    command, _, outcome = kind.rpartition("_")
    if command and outcome == "OK":
        return Response(command, data)
    if command and outcome == "ERROR":
        return Response(command, data, str(data.get("error") or "no reason given"))
    return Unknown(kind, data)


def _typed(message: object) -> tuple[str, Data]:
    if isinstance(message, dict):
        kind, data = message.get("type"), message.get("data")
        if isinstance(kind, str) and isinstance(data, dict):
            return kind, data
    raise NotKiwi("the server sent JSON without 'type' and 'data'; this is not the Kiwi protocol")


def _notice(frame: str, data: Data) -> Message:
    kind = data.get("type")
    if kind == "LAG":
        return Lag(frame, data)
    if kind == "SUBSCRIPTION_CLOSED":
        message, reason = data.get("message"), data.get("reason")
        return SubscriptionClosed(
            frame, data, str(message or "no reason given"), reason if isinstance(reason, str) else ""
        )
    if kind == "POSITIONS":
        return Standing(data)
    if kind in ("SOURCE_DEGRADED", "SOURCE_RESTORED"):
        fine = kind == "SOURCE_RESTORED"
        return Trouble(frame, "" if fine else str(data.get("message") or "no reason given"))
    if kind == "DRAINING":
        after = data.get("retryAfterMs")
        known = isinstance(after, (int, float)) and not isinstance(after, bool) and after > 0
        return Draining(frame, float(after) / 1000 if known else 0.0)  # type: ignore[arg-type]
    return Unknown(f"NOTICE {kind}", data)
