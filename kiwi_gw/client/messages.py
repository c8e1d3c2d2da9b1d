"""What a server of the Kiwi protocol says, from the client's side: text in, messages out. No I/O.

Both wires are read: the documented one, and the original server's, which wraps its responses in
`{"type": "COMMAND_RESPONSE", "data": {"type": ...}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kiwi_gw.dialects.kiwi.messages import (
    AnyNotice,
    ClientMessage,
    CommandResponse,
    Notice,
    Refused,
    RequestError,
    ServerMessage,
    Subscribed,
    SubscribeError,
    SubscribeOk,
)
from kiwi_gw.errors import KiwiError
from kiwi_gw.struct_errors import wrong_member

Data = Mapping[str, Any]


class MalformedMessage(KiwiError):  # noqa: N818  (it states what the server is)
    """Report that the server sent something that is not a message of the Kiwi protocol."""


@dataclass(frozen=True, slots=True)
class Event:
    """Hold a RESULT. frame: the message as it came, a JSON text. data: its `data`."""

    frame: str
    data: Data


@dataclass(frozen=True, slots=True)
class Noticed:
    """Hold a NOTICE. frame: as it came."""

    frame: str
    data: AnyNotice


@dataclass(frozen=True, slots=True)
class UnknownMessage:
    """Hold a message of a type that this client does not know. To be ignored, as protocols grow."""

    type: str
    data: Data = field(default_factory=dict)


Message = Event | Noticed | UnknownMessage | ServerMessage


class _Envelope(msgspec.Struct):
    type: str
    data: dict[str, Any]


_read_envelope = msgspec.json.Decoder(_Envelope).decode


def encode(command: ClientMessage) -> str:
    """Write a command as the text of a frame."""
    return msgspec.json.encode(command).decode()


def parse(frame: str | bytes) -> Message:
    """Read one frame. Raises MalformedMessage if it is not an object with a `type` and a `data`."""
    if isinstance(frame, bytes):
        raise MalformedMessage("the server sent a binary frame; this is not the Kiwi protocol")
    try:
        message = _read_envelope(frame)
    except msgspec.ValidationError:
        raise MalformedMessage(
            "the server sent JSON without 'type' and 'data'; this is not the Kiwi protocol"
        ) from None
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        raise MalformedMessage(
            "the server sent something that is not JSON; this is not the Kiwi protocol"
        ) from None
    if message.type == "RESULT":
        return Event(frame, message.data)
    match _known(message.type, message.data):
        case None:
            return UnknownMessage(message.type, message.data)
        case Notice(data):
            return Noticed(frame, data)
        case CommandResponse() as response:
            return _unwrapped(response)
        case known:
            return known


def _known(kind: str, data: dict[str, Any]) -> ServerMessage | None:
    """Make the message of a type that is known. A member that is not as it must be counts as absent."""
    while True:
        try:
            found: ServerMessage = msgspec.convert({"type": kind, "data": data}, ServerMessage)
        except msgspec.ValidationError as error:
            name = wrong_member(error).removeprefix("data.")
            if name not in data:
                return None
            data = {each: value for each, value in data.items() if each != name}
        else:
            return found


def _unwrapped(response: CommandResponse) -> ServerMessage:
    """Return the answer of an original server as the message that a client waits for."""
    data = response.data
    refused = Refused(data.source_id, data.error or "no reason given")
    match data.type:
        case "SUBSCRIBE_OK":
            return SubscribeOk(Subscribed(data.source_id))
        case "SUBSCRIBE_ERROR":
            return SubscribeError(refused)
        case "REQUEST_ERROR":
            return RequestError(refused)
        case _:
            return response
