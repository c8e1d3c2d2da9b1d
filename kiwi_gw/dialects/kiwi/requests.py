"""Read what a Kiwi client sends, strictly (Kiwi protocol, commands).

What is not a JSON object ends the connection; an object that is not a command is answered with a notice, and
a command whose members are wrong with its error. Of a member that comes twice the last one counts.

A command that is as it must be is decoded at once. Everything else is read a second time, member by member,
to find out what is wrong with it. What is said of that is short: replies wait in memory for slow readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Final, Literal, Protocol, cast, get_args

import msgspec
from msgspec import UNSET, Raw

from kiwi_gw.codes import CloseCode
from kiwi_gw.core.commands import Open
from kiwi_gw.dialects.kiwi.messages import ClientMessage, StartPoint, Subscribe
from kiwi_gw.dialects.kiwi.nesting import TooManyBrackets, outline
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.model import AtPositions, AtTime, SourceInfo, Start, StartAt, Until, ValueAs, WireFormat
from kiwi_gw.struct_errors import given, sentence

UnknownMembers = Literal["refuse", "ignore"]

COMMANDS: Final[dict[str, type[ClientMessage]]] = {
    str(one.__struct_config__.tag): one for one in get_args(ClientMessage)
}
"""By type."""
TYPES: Final = {kind: name for name, kind in COMMANDS.items()}

MAX_REASON_BYTES: Final = 123
_NAMED: Final = 3
_SHOWN: Final = 32
"""Characters of a name that a client made up."""
_APART: Final = 4
"""Characters by which a name may be longer or shorter than one that was meant: others are not compared."""
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


class WireFactory(Protocol):
    """Makes the wire format of a source. Raises SubscribeRefused."""

    def __call__(self, source: SourceInfo, *, value_as: ValueAs | None = None) -> WireFormat: ...


def open_command(command: Subscribe, wire: WireFactory) -> Open:
    """Make the command to the core. wire: makes the format of events as the client wants them."""
    every = given(command.positions_every_ms)
    return Open(
        command.source_id,
        command.source_id,
        partial(wire, value_as=given(command.value_as)),
        command.mode,
        overflow=given(command.overflow),
        buffer_capacity=given(command.buffer_capacity),
        start=_start(command),
        until=None if command.until is UNSET else Until.END,
        positions_every=None if every is None else every / 1000,
    )


def _start(command: Subscribe) -> Start:
    """Say where to begin. `positions` are what the gateway itself has sent, `offsets` those of partitions, as
    a client counts them. A partition that is not named begins with its first event."""
    point = StartAt.LATEST if command.start is UNSET else command.start
    if not isinstance(point, StartPoint):
        return point
    timestamp, offsets, positions = given(point.timestamp), given(point.offsets), given(point.positions)
    if timestamp is not None:
        return AtTime(timestamp)
    skip_missing = given(command.on_missing) is not None
    return AtPositions(dict(offsets if offsets is not None else positions or {}), skip_missing)


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
        return InvalidMessage(known, None if kind is None else _shown(kind))
    strange = _unknown(kind, members) if check_members else None
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


def _unknown(command: str, members: Iterable[str]) -> str | None:
    """Say what is wrong with the names of a command's members, in a sentence. None: nothing.

    `SUBSCRIBE has no member "mod" (did you mean "mode"?)`
    """
    known = ("type", *COMMANDS[command].__struct_encode_fields__)
    strange = [name for name in members if name not in known]
    if not strange:
        return None
    named = [_named(name, known) for name in strange[:_NAMED]]
    more = len(strange) - len(named)
    rest = f", nor {more} more that it was given" if more else ""
    return f"{command} has no member {', '.join(named)}{rest}; it has {', '.join(known)}"


def _shown(name: str) -> str:
    """Cut what a client sent to what fits into a sentence."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _named(name: str, known: tuple[str, ...]) -> str:
    alike = {each.lower(): each for each in known if abs(len(each) - len(name)) <= _APART}
    near = get_close_matches(name.lower(), list(alike), 1)
    return f'"{_shown(name)}"' + (f' (did you mean "{alike[near[0]]}"?)' if near else "")
