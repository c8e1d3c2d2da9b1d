"""Read what a client of Lenses v1 sends. What is wrong with it is said by its member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw, Struct

from kiwi_gw.dialects.lenses.v1.messages import CONTENTS, Content, Int64, Request
from kiwi_gw.struct_errors import sentence, wrong_member

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""No JSON, half a character, or nested too deeply."""

_read_request = msgspec.json.Decoder(Request).decode
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_number = msgspec.json.Decoder(Int64).decode
_read_content = {name: msgspec.json.Decoder(kind).decode for name, kind in CONTENTS.items()}


@dataclass(frozen=True, slots=True)
class WrongRequest:
    """Say why it is none. number: its `correlationId`; None: it has none that can be read."""

    number: int | None
    message: str


def read(message: str) -> Request | WrongRequest:
    """Read the envelope of a request."""
    try:
        return _read_request(message)
    except msgspec.ValidationError as error:
        return WrongRequest(_number(message), _words(error, Request))
    except _UNREADABLE:
        return WrongRequest(None, "a JSON object is needed")


def read_content(request: Request) -> Content | WrongRequest:
    """Read what the `content` of a request holds."""
    try:
        return _read_content[request.type](request.content)
    except msgspec.ValidationError as error:
        words = f"content: {_words(error, CONTENTS[request.type])}"
    except _UNREADABLE:
        words = "content must be a string that holds JSON"
    return WrongRequest(request.correlation_id, words)


def _words(error: msgspec.ValidationError, kind: type[Struct]) -> str:
    return sentence(error, kind) if wrong_member(error) else "a JSON object is needed"


def _number(message: str) -> int | None:
    """Find the id in a message that is no request otherwise."""
    try:
        return _read_number(_read_members(message)["correlationId"])
    except (KeyError, *_UNREADABLE):
        return None
