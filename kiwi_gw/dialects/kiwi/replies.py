"""What the gateway says in Kiwi, in both envelopes (Kiwi protocol, responses and notices).

`type` is the first member of every message, and the document's members come before ours.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from kiwi_gw.core.notices import (
    CredentialsExpiring,
    Draining,
    Ended,
    Granted,
    Lagged,
    Opened,
    PositionsAre,
    SourceTroubled,
)
from kiwi_gw.dialects.frames import text_frame
from kiwi_gw.dialects.kiwi.results import Envelope
from kiwi_gw.model import Mode, ValueAs

_encode = msgspec.json.Encoder().encode

Data = dict[str, object]


class Replies(Protocol):
    """One whole frame each; None where the envelope has no such message. `command` is the client's type.
    position: of the mistake in the client's query. filtered: whether the client has a filter."""

    def ok(self, command: str, source_id: str) -> bytes: ...

    def subscribed(
        self, source_id: str, mode: Mode, opened: Opened, value_as: ValueAs | None = None
    ) -> bytes: ...

    def granted(self, source_id: str, granted: Granted) -> bytes: ...

    def error(self, command: str, source_id: str, error: str, position: int | None = None) -> bytes: ...

    def misunderstood(self, message: str, command: str | None) -> bytes: ...

    def lag(self, source_id: str, lagged: Lagged, *, filtered: bool = False) -> bytes: ...

    def positions(self, source_id: str, positions: PositionsAre) -> bytes | None: ...

    def closed(self, source_id: str, ended: Ended) -> bytes: ...

    def troubled(self, source_id: str, troubled: SourceTroubled) -> bytes | None: ...

    def query_hint(self, source_id: str, words: str) -> bytes | None: ...

    def draining(self, draining: Draining) -> bytes | None: ...

    def expiring(self, expiring: CredentialsExpiring) -> bytes | None: ...


class FlatReplies:
    """The messages of the document, with our further members behind its own."""

    def ok(self, command: str, source_id: str) -> bytes:
        return _message(f"{command}_OK", {"sourceId": source_id})

    def subscribed(
        self, source_id: str, mode: Mode, opened: Opened, value_as: ValueAs | None = None
    ) -> bytes:
        data: Data = {
            "sourceId": source_id,
            "mode": mode.value,
            "positions": opened.positions,
            "overflow": opened.overflow.value,
            "bufferCapacity": opened.buffer_capacity,
        }
        # Of events that have a value.
        return _message("SUBSCRIBE_OK", data if value_as is None else {**data, "valueAs": value_as})

    def granted(self, source_id: str, granted: Granted) -> bytes:
        return _message("REQUEST_OK", {"sourceId": source_id, "n": granted.n, "credits": granted.credits})

    def error(self, command: str, source_id: str, error: str, position: int | None = None) -> bytes:
        data: Data = {"sourceId": source_id, "error": _clean(error)}
        return _message(f"{command}_ERROR", data if position is None else {**data, "position": position})

    def misunderstood(self, message: str, command: str | None) -> bytes:
        return _message("NOTICE", {"type": "ERROR", "message": message, "command": command})

    def lag(self, source_id: str, lagged: Lagged, *, filtered: bool = False) -> bytes:
        data: Data = {
            "type": "LAG",
            "sourceId": source_id,
            "count": lagged.count,
            "behind": lagged.behind,
            "dropped": lagged.dropped,
            "ranges": lagged.source.codec.dump_ranges(lagged.ranges),
            "positions": lagged.positions,
        }
        # It counts events of the source, whether the filter lets them through or not.
        return _message("NOTICE", {**data, "filtered": True} if filtered else data)

    def positions(self, source_id: str, positions: PositionsAre) -> bytes | None:
        data: Data = {"type": "POSITIONS", "sourceId": source_id, "positions": positions.positions}
        return _message("NOTICE", data)

    def closed(self, source_id: str, ended: Ended) -> bytes:
        data: Data = {
            "type": "SUBSCRIPTION_CLOSED",
            "sourceId": source_id,
            "message": _clean(ended.message),
            "reason": ended.reason.value,
            "positions": ended.positions,
            "dropped": ended.dropped,
        }
        return _message("NOTICE", data)

    def troubled(self, source_id: str, troubled: SourceTroubled) -> bytes | None:
        if not troubled.message:
            return _message("NOTICE", {"type": "SOURCE_RESTORED", "sourceId": source_id})
        words = _clean(troubled.message)
        return _message("NOTICE", {"type": "SOURCE_DEGRADED", "sourceId": source_id, "message": words})

    def query_hint(self, source_id: str, words: str) -> bytes | None:
        return _message("NOTICE", {"type": "QUERY_HINT", "sourceId": source_id, "message": _clean(words)})

    def draining(self, draining: Draining) -> bytes | None:
        return _message("NOTICE", {"type": "DRAINING", "retryAfterMs": draining.retry_after_ms})

    def expiring(self, expiring: CredentialsExpiring) -> bytes | None:
        return _message("NOTICE", {"type": "TOKEN_EXPIRING", "expiresInMs": expiring.in_ms})


class NestedReplies:
    """What the original server sends, member for member, so that its clients work unchanged."""

    def ok(self, command: str, source_id: str) -> bytes:
        return _response(f"{command}_OK", {"sourceId": source_id})

    def subscribed(
        self, source_id: str, mode: Mode, opened: Opened, value_as: ValueAs | None = None
    ) -> bytes:
        return self.ok("SUBSCRIBE", source_id)

    def granted(self, source_id: str, granted: Granted) -> bytes:
        return _response("REQUEST_OK", {"sourceId": source_id, "requests": granted.credits})

    def error(self, command: str, source_id: str, error: str, position: int | None = None) -> bytes:
        return _response(f"{command}_ERROR", {"sourceId": source_id, "error": _clean(error)})

    def misunderstood(self, message: str, command: str | None) -> bytes:
        return _message("NOTICE", {"type": "ERROR", "message": message, "command": command})

    def lag(self, source_id: str, lagged: Lagged, *, filtered: bool = False) -> bytes:
        return _message("NOTICE", {"type": "LAG", "sourceId": source_id, "count": lagged.count})

    def positions(self, source_id: str, positions: PositionsAre) -> bytes | None:
        return None

    def closed(self, source_id: str, ended: Ended) -> bytes:
        data: Data = {
            "type": "SUBSCRIPTION_CLOSED",
            "sourceId": source_id,
            "message": _clean(ended.message),
        }
        return _message("NOTICE", data)

    def troubled(self, source_id: str, troubled: SourceTroubled) -> bytes | None:
        return None

    def query_hint(self, source_id: str, words: str) -> bytes | None:
        return None

    def draining(self, draining: Draining) -> bytes | None:
        return None

    def expiring(self, expiring: CredentialsExpiring) -> bytes | None:
        return None


REPLIES: dict[Envelope, Replies] = {"flat": FlatReplies(), "nested": NestedReplies()}


def _message(kind: str, data: Data) -> bytes:
    return text_frame(_encode({"type": kind, "data": data}))


def _response(kind: str, data: Data) -> bytes:
    return _message("COMMAND_RESPONSE", {"type": kind, **data})


def _clean(words: str) -> str:
    # An operating system's error may hold half a character (a file name that is not UTF-8).
    return words.encode(errors="backslashreplace").decode()
