"""Read what a Kiwi client sends, strictly (Kiwi protocol, commands).

What is not a JSON object ends the connection; an object that is not a command is answered with a notice, and
a command whose members are wrong with its error. Of a member that comes twice the last one counts.

A command that is as it must be is decoded at once. Everything else is read a second time, member by member,
to find out what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import msgspec
from msgspec import Raw

from kiwi_gw.codes import CloseCode
from kiwi_gw.decoding import sentence
from kiwi_gw.dialects.kiwi.members import COMMANDS, shown, unknown
from kiwi_gw.dialects.kiwi.messages import ClientMessage
from kiwi_gw.dialects.kiwi.nesting import TooManyBrackets, outline
from kiwi_gw.errors import ConnectionEnd

MAX_REASON_BYTES: Final = 123
TOO_DEEP: Final = "The message is nested too deeply"

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class InvalidCommand:
    """A command whose members are wrong. type: one of COMMANDS. malformed: it has members that there are not,
    or is nested too deeply; else a member has a value that it cannot have."""

    type: str
    source_id: str
    message: str
    malformed: bool


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """A JSON object that is no command. type: what it says it is; None: it says nothing of that."""

    message: str
    type: str | None = None


Received = ClientMessage | InvalidCommand | InvalidMessage

_read_command: Callable[[str | bytes], ClientMessage] = msgspec.json.Decoder(ClientMessage).decode
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def read(message: str, *, check_members: bool = True) -> Received:
    """Read the command in a text frame. check_members: refuse members that there are not. Raises
    ConnectionEnd (1008) for text that is no JSON object."""
    try:
        return _read_command(message)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return _look_closer(message, check_members=check_members)


def _look_closer(message: str, *, check_members: bool) -> Received:
    try:
        members, too_deep = _read(message)
    except _HalfACharacterError:
        return InvalidMessage("the message has half of a surrogate pair in it")
    except TooManyBrackets:
        return InvalidMessage("the message is nested too deeply")
    if "type" not in members:
        return InvalidMessage("the message has no type")
    kind = _text(members["type"])
    if kind not in COMMANDS:
        known = f"the type is none of {', '.join(COMMANDS)}"
        return InvalidMessage(known, None if kind is None else shown(kind))
    strange = unknown(kind, members) if check_members else None
    source_id = _text(members["sourceId"]) if "sourceId" in members else None
    if not source_id:  # one that is too long is one that no source has
        words = f"{kind} has no sourceId"
        if "sourceId" in members:
            words = f"the sourceId of {kind} is not a string of 1 or more characters"
        return InvalidMessage(words if strange is None else f"{words}; {strange}", kind)
    if too_deep or strange is not None:
        return InvalidCommand(kind, source_id, TOO_DEEP if too_deep else cast(str, strange), malformed=True)
    struct = COMMANDS[kind]
    named = {name: members[name] for name in ("type", *struct.__struct_encode_fields__) if name in members}
    try:
        return _read_command(_encode(named))  # without members that there are not, and each once
    except msgspec.ValidationError as error:
        return InvalidCommand(kind, source_id, sentence(error, struct), malformed=False)
    except RecursionError:
        return InvalidCommand(kind, source_id, TOO_DEEP, malformed=True)


def _text(raw: Raw) -> str | None:
    """Return the text of a JSON string; None: it is none."""
    try:
        return _read_string(raw)
    except msgspec.MsgspecError:
        return None


def bad_request(words: str) -> ConnectionEnd:
    """Close reasons end up in logs and terminals: `words` must be printable ASCII."""
    return ConnectionEnd(CloseCode.POLICY_VIOLATION, f"bad_request: {words}"[:MAX_REASON_BYTES])


class _HalfACharacterError(Exception):
    """A string of the message escapes half of a surrogate pair: JSON, but no text."""


def _read(message: str) -> tuple[dict[str, Raw], bool]:
    """Return the members, and whether it is nested too deeply to have more than their outline."""
    try:
        return _members(message), False
    except RecursionError:
        return _members(_outline(message)), True


def _members(message: str) -> dict[str, Raw]:
    """Return the members by name; of one that comes twice the last."""
    try:
        return _read_members(message)
    except msgspec.ValidationError:
        raise bad_request("the message is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        # A backslash that is escaped begins nothing.
        whole, halves = _SURROGATE.subn(r"\\ufffd", message.replace("\\\\", "xx"))
        if not halves:
            raise bad_request("the message is not JSON") from None
        _members(whole)  # it may be no JSON for another reason, too
        raise _HalfACharacterError from error


def _outline(message: str) -> str:
    short = outline(message)
    if short is None:
        raise bad_request("the message is not JSON")
    return short
