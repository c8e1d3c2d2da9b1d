"""What a message looks like: for people, for scripts, or the bare value. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import UNSET, to_builtins

from kiwi_gw.client.messages import Data
from kiwi_gw.client.watch import NotResumed, Reconnecting, SubscriptionOpened
from kiwi_gw.dialects.kiwi.messages import (
    AnyNotice,
    Draining,
    Error,
    Lag,
    QueryHint,
    SourceDegraded,
    SourceRestored,
    SubscriptionClosed,
    TokenExpiring,
)
from kiwi_gw.struct_errors import given
from kiwi_gw.terminal import escape, escape_json

Paint = Callable[[str, str], str]
"""(text, colour) -> the text, coloured where that is wanted."""


def plain(text: str, colour: str) -> str:
    return text


class EventLines:
    """Events as lines for people.

    An event that has a place is `time  place  key  value`: a partition and an offset (Kafka), or a batch and
    a row of it. The others are compact JSON. Control characters of the events are escaped.
    """

    def __init__(self, paint: Paint = plain) -> None:
        self._paint = paint
        self._widths = [0, 0]

    def __call__(self, data: Data) -> str:
        at = _place(data)
        if not at:
            shown = {k: v for k, v in data.items() if k not in ("sourceId", "sourceType")}
            return escape_json(_compact(shown or data))
        place = self._padded(0, at)
        key = self._padded(1, _text(data, "key", "-"))
        time = _time(data.get("timestamp"))
        return f"{self._paint(time, 'bright_black')}  {self._paint(place, 'cyan')}  {key}  {_value(data)}"

    def _padded(self, column: int, text: str) -> str:
        # Columns grow to what was seen, but one huge key must not push all others to the right.
        self._widths[column] = max(self._widths[column], min(len(text), 24))
        return text.ljust(self._widths[column])


def _place(data: Data) -> str:
    for within, number in (("partition", "offset"), ("batch", "row")):
        if data.get(within) is not None and data.get(number) is not None:
            return escape(f"{data[within]}:{data[number]}")
    return ""


def raw(data: Data) -> bytes:
    """Return the bare value of an event: Kafka's bytes as they were, empty for a tombstone; else JSON."""
    payload = data.get("payload")
    if isinstance(payload, str):
        try:
            return base64.b64decode(payload, validate=True)
        except binascii.Error:
            return payload.encode(errors="backslashreplace")
    if "payload" in data or "value" in data:
        value = data.get("value")
        if value is None:
            return b""
        return (value if isinstance(value, str) else _compact(value)).encode(errors="backslashreplace")
    if "count" in data:
        return str(data["count"]).encode()
    return _compact(data).encode(errors="backslashreplace")


def say_notice(notice: AnyNotice, verbose: bool) -> str:
    """Say what a notice means to people."""
    match notice:
        case Lag():
            return say_lag(notice, verbose)
        case SubscriptionClosed():
            return say_closed(notice, verbose)
        case SourceDegraded(message=message):
            return f"the source is in trouble: {message}"
        case SourceRestored():
            return "the source works again"
        case Draining(retry_after_ms=after):
            when = f"; it wants us back in {after / 1000:.1f} s" if after else ""
            return f"the server is going away{when}"
        case QueryHint(message=message) | Error(message=message):
            return message
        case TokenExpiring(expires_in_ms=left):
            return f"the token expires in {left / 1000:.1f} s"
        case _:
            return _compact(to_builtins(notice))


def say_lag(lag: Lag, verbose: bool) -> str:
    parts = [f"{lag.count} events behind"]
    if lag.dropped is None:
        parts.append("what came meanwhile, if anything, is not known")
    elif lag.dropped is not UNSET and lag.dropped:
        parts.append(f"{lag.dropped} of them given up")
    if verbose and (ranges := given(lag.ranges)):
        parts.append(_compact(ranges))
    return f"lag: {', '.join(parts)}"


def say_closed(closed: SubscriptionClosed, verbose: bool) -> str:
    text = f"subscription closed: {closed.message}"
    if reason := given(closed.reason):
        text += f" ({reason})"
    if verbose and (positions := given(closed.positions)):
        text += f" at {_compact(positions)}"
    return text


def say_subscribed(subscribed: SubscriptionOpened, source: str, mode: str, verbose: bool) -> str:
    text = f"connected to {subscribed.address}, {mode} subscription to {source}"
    if subscribed.resumed is not None:
        text += ", resumed where it was"
        if verbose:
            text += f" at {_compact(subscribed.resumed)}"
        if subscribed.repeats:
            text += f" (up to {subscribed.repeats} events come again)"
    elif verbose and (positions := given(subscribed.data.positions)):
        text += f" from {_compact(positions)}"
    return text


def say_not_resumed(not_resumed: NotResumed) -> str:
    return f"cannot resume: {not_resumed.why}; going on with what comes now"


def say_reconnecting(reconnecting: Reconnecting) -> str:
    return f"{reconnecting.why}; trying again in {reconnecting.seconds:.1f} s"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(data: Data, name: str, missing: str) -> str:
    value = data.get(name)
    if isinstance(value, str):
        return escape(value)
    if value is not None:
        return escape_json(_compact(value))
    encoded = data.get(f"{name}Base64")
    return f"base64:{escape(encoded)}" if isinstance(encoded, str) else missing


def _value(data: Data) -> str:
    if data.get("value") is not None:
        return _text(data, "value", "")
    payload = data.get("payload")
    if payload is None:
        return "-" if "payload" not in data and "value" not in data else "(tombstone)"
    # Not text, or a server that sends the payload only (the original's wire).
    try:
        return escape(base64.b64decode(str(payload), validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        return f"base64:{escape(str(payload))}"


def _time(timestamp: object) -> str:
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        try:
            moment = datetime.fromtimestamp(timestamp / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return str(timestamp)
        return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
    return "-"
