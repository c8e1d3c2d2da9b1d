"""What a Zetta client says: subscribe, unsubscribe and ping (Multiplexed WebSocket Streams).

JSON in a text or a binary frame. Whatever is wrong with it becomes a `Bad` with what the error message says;
nothing here raises. Numbers, and what is given back as it came, stay as they were written (`Raw`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

BAD_REQUEST: Final = 400
NOT_SUPPORTED: Final = 405
SERVER_ERROR: Final = 500

MAX_TOPIC: Final = 8_192
"""Bytes of the longest topic, as it is written in JSON: 4 KiB of query fit in, with its pattern."""

_ABSENT = Raw()
_INTEGER = re.compile(rb"0|[1-9][0-9]{0,18}")
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Bad:
    """An error, to be answered. topic: what the request has as its topic, as it is written there; None: the
    answer has no such member."""

    code: int
    message: str
    topic: bytes | None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """written: the topic as JSON, exactly as it came. limit: None for all events."""

    topic: str
    written: bytes
    limit: int | None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """number: None if no subscription can have that id."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Ping:
    """data: as it came, None if the ping has none."""

    data: bytes | None


Request = Subscribe | Unsubscribe | Ping | Bad


class _Members(msgspec.Struct, gc=False):
    type: Raw = _ABSENT
    topic: Raw = _ABSENT
    subscription_id: Raw = msgspec.field(default=_ABSENT, name="subscriptionId")
    limit: Raw = _ABSENT
    data: Raw | UnsetType = UNSET


_read_members = msgspec.json.Decoder(_Members).decode
_read_string = msgspec.json.Decoder(str).decode


def read(message: str | bytes) -> Request:
    """What a whole message asks for."""
    try:
        members = _read_members(message if isinstance(message, str) else str(message, "utf-8"))
    except msgspec.ValidationError:
        return Bad(BAD_REQUEST, "the message is not a JSON object", None)
    except RecursionError:
        return Bad(BAD_REQUEST, "the message is nested too deeply", None)
    except (msgspec.DecodeError, ValueError):
        return Bad(BAD_REQUEST, "the message is not JSON", None)
    topic = None if members.topic is _ABSENT else bytes(members.topic)
    shown = None if topic is None or len(topic) > MAX_TOPIC or topic == b"null" else topic
    if members.type is _ABSENT:
        return Bad(BAD_REQUEST, "the message has no type", shown)
    match _text(members.type):
        case "subscribe":
            return _subscribe(members, topic, shown)
        case "unsubscribe":
            return _unsubscribe(members, shown)
        case "ping":
            return Ping(None if members.data is UNSET else bytes(members.data))
        case _:
            return Bad(NOT_SUPPORTED, "the type is none of subscribe, unsubscribe, ping", shown)


def _subscribe(members: _Members, topic: bytes | None, shown: bytes | None) -> Request:
    if topic is None:
        return Bad(BAD_REQUEST, "subscribe has no topic", None)
    if len(topic) > MAX_TOPIC:
        return Bad(BAD_REQUEST, f"the topic is longer than {MAX_TOPIC} bytes", shown)
    text = _text(members.topic)
    if text is None:
        return Bad(BAD_REQUEST, "the topic is not a string", shown)
    limit = None
    if members.limit is not _ABSENT:
        limit = _whole(members.limit)
        if limit is None:
            return Bad(BAD_REQUEST, "limit is not an integer from 0 to 2^63 - 1", shown)
    return Subscribe(text, topic, limit)


def _unsubscribe(members: _Members, shown: bytes | None) -> Request:
    written = bytes(members.subscription_id)
    if members.subscription_id is _ABSENT:
        return Bad(BAD_REQUEST, "unsubscribe has no subscriptionId", shown)
    if _NUMBER.fullmatch(written) is None:
        return Bad(BAD_REQUEST, "subscriptionId is not a number", shown)
    if _INTEGER.fullmatch(written):
        return Unsubscribe(int(written))
    value = float(written)  # of any length: no longer than the message
    return Unsubscribe(int(value) if value.is_integer() else None)


def _whole(raw: Raw) -> int | None:
    written = bytes(raw)
    if _INTEGER.fullmatch(written) is None:
        return None
    value = int(written)
    return value if value < 2**63 else None


def _text(raw: Raw) -> str | None:
    """A JSON string that is text: one with half a character in it is none."""
    try:
        return _read_string(raw)
    except (msgspec.MsgspecError, ValueError):
        return None
