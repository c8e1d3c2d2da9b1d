"""Read what a Zetta client sends: subscribe, unsubscribe and ping (Multiplexed WebSocket Streams).

JSON in a text or a binary frame. Whatever is wrong with it becomes a `RequestError` with the error in words;
nothing here raises. Unknown members are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.zetta.messages import ClientMessage, PingRequest, Subscribe, Unsubscribe
from kiwi_gw.struct_errors import given, sentence

BAD_REQUEST: Final = 400
NOT_SUPPORTED: Final = 405
SERVER_ERROR: Final = 500

MAX_TOPIC: Final = 8_192
"""Bytes of the longest topic, as it is written in JSON: 4 KiB of query fit in, with its pattern."""

_INTEGER = re.compile(rb"0|[1-9][0-9]{0,18}")
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class RequestError:
    """Hold an error, to be answered. topic: what the request has as its topic, as it is written there; None:
    the answer has no such member."""

    code: int
    message: str
    topic: bytes | None


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """Hold a subscribe. written: the topic as JSON, exactly as it came. limit: None for all events."""

    topic: str
    written: bytes
    limit: int | None


@dataclass(frozen=True, slots=True)
class EndRequest:
    """Hold an unsubscribe. number: None if no subscription can have that id."""

    number: int | None


Request = TopicRequest | EndRequest | PingRequest | RequestError

_STRUCTS: Final[dict[str, type[ClientMessage]]] = {
    "subscribe": Subscribe,
    "unsubscribe": Unsubscribe,
    "ping": PingRequest,
}
_read_message: Callable[[str | bytes], ClientMessage] = msgspec.json.Decoder(ClientMessage).decode
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def read(message: str | bytes) -> Request:
    """Read a whole message."""
    try:
        return _request(_read_message(message if isinstance(message, str) else str(message, "utf-8")))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _look_closer(message)


def _look_closer(message: str | bytes) -> Request:
    """Find out what is wrong with a message, if anything is. Of a repeated member the last one counts."""
    try:
        members = _read_members(message if isinstance(message, str) else str(message, "utf-8"))
    except msgspec.ValidationError:
        return RequestError(BAD_REQUEST, "the message is not a JSON object", None)
    except RecursionError:
        return RequestError(BAD_REQUEST, "the message is nested too deeply", None)
    except (msgspec.DecodeError, ValueError):
        return RequestError(BAD_REQUEST, "the message is not JSON", None)
    topic = bytes(members["topic"]) if "topic" in members else b"null"
    shown = None if len(topic) > MAX_TOPIC or topic == b"null" else topic
    if "type" not in members:
        return RequestError(BAD_REQUEST, "the message has no type", shown)
    kind = _text(members["type"])
    struct = _STRUCTS.get(kind or "")
    if struct is None:
        return RequestError(NOT_SUPPORTED, f"the type is none of {', '.join(_STRUCTS)}", shown)
    named = {name: members[name] for name in ("type", *struct.__struct_encode_fields__) if name in members}
    try:
        return _request(_read_message(_encode(named)))
    except msgspec.ValidationError as error:
        first = struct.__struct_encode_fields__[0]
        words = sentence(error, struct) if first in members else f"{kind} has no {first}"
        return RequestError(BAD_REQUEST, words, shown)


def _request(message: ClientMessage) -> Request:
    match message:
        case Subscribe():
            return _subscribe(message)
        case Unsubscribe(written):
            return _unsubscribe(bytes(written))
        case PingRequest():
            return message


def _subscribe(message: Subscribe) -> Request:
    written = bytes(message.topic)
    if len(written) > MAX_TOPIC:
        return RequestError(BAD_REQUEST, f"the topic is longer than {MAX_TOPIC} bytes", None)
    text = _text(message.topic)
    if text is None:
        return RequestError(BAD_REQUEST, "the topic is not a string", None if written == b"null" else written)
    return TopicRequest(text, written, given(message.limit))


def _unsubscribe(written: bytes) -> Request:
    if _NUMBER.fullmatch(written) is None:
        return RequestError(BAD_REQUEST, "subscriptionId is not a number", None)
    if _INTEGER.fullmatch(written):
        return EndRequest(int(written))
    value = float(written)  # of any length: no longer than the message
    return EndRequest(int(value) if value.is_integer() else None)


def _text(raw: Raw) -> str | None:
    """Return the text of a JSON string; None for others, and for one with half a character in it."""
    try:
        return _read_string(raw)
    except (msgspec.MsgspecError, ValueError):
        return None
