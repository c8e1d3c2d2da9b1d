"""What a Kiwi client says: SUBSCRIBE, UNSUBSCRIBE and REQUEST, read strictly (Kiwi protocol, commands).

What is no JSON object ends the connection; an object that is no command is answered with a notice. A
command whose other members are wrong is answered with its error, so those arrive here as they were written
(`Raw`) and are read by `integer` and `text`. Of a member that comes twice the last one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.kiwi.members import MEMBERS, TYPES, shown, unknown
from kiwi_gw.dialects.kiwi.nesting import TooMuch, outline
from kiwi_gw.errors import ConnectionEnd

POLICY_VIOLATION: Final = 1008
UNSUPPORTED_DATA: Final = 1003
MAX_REASON_BYTES: Final = 123

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON client holds exactly."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_INTEGER = re.compile(rb"[1-9][0-9]{0,15}")


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """One command. `type` is one of TYPES. The optional members are as they were written, None: absent.

    begin: the member `from`. unknown: what is wrong with the names of its members, if anything. too_deep: it
    is nested so deeply that only type and source_id were read.
    """

    type: str
    source_id: str
    mode: Raw | None
    n: Raw | None
    buffer_capacity: Raw | None
    overflow: Raw | None
    begin: Raw | None
    on_missing: Raw | None
    positions_every_ms: Raw | None
    where: Raw | None = None
    select: Raw | None = None
    value_as: Raw | None = None
    unknown: str | None = None
    too_deep: bool = False


@dataclass(frozen=True, slots=True)
class Misunderstood:
    """A JSON object that is no command. type: what it says it is; None: it says nothing of that."""

    message: str
    type: str | None = None
    too_deep: bool = False


_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_string = msgspec.json.Decoder(str).decode


def read(message: str, *, check_members: bool = True) -> ClientCommand | Misunderstood:
    """The command in a text frame. check_members: say what is wrong with their names. Raises ConnectionEnd
    (1008) for text that is no JSON object."""
    try:
        members, too_deep = _read(message)
    except _HalfACharacterError:
        return Misunderstood("the message has half of a surrogate pair in it")
    except TooMuch:
        return Misunderstood("the message is nested too deeply", None, True)
    if "type" not in members:
        return Misunderstood("the message has no type", None, too_deep)
    kind = text(members["type"])
    if kind not in MEMBERS:
        known = f"the type is none of {', '.join(TYPES)}"
        return Misunderstood(known, None if kind is None else shown(kind), too_deep)
    strange = unknown(kind, members) if check_members else None
    source_id = text(members["sourceId"]) if "sourceId" in members else None
    if not source_id:  # one that is too long is one that no source has
        words = f"{kind} has no sourceId"
        if "sourceId" in members:
            words = f"the sourceId of {kind} is not a string of 1 or more characters"
        return Misunderstood(words if strange is None else f"{words}; {strange}", kind, too_deep)
    given = members.get
    return ClientCommand(
        kind,
        source_id,
        given("mode"),
        given("n"),
        given("bufferCapacity"),
        given("overflow"),
        given("from"),
        given("onMissing"),
        given("positionsEveryMs"),
        given("where"),
        given("select"),
        given("valueAs"),
        strange,
        too_deep,
    )


def integer(raw: Raw | None) -> int | None:
    """A JSON integer from 1 to 2^53-1, written as one: not `true`, `10.0`, `1e3` or `"5"`. Else None."""
    if raw is None:
        return None
    written = bytes(raw)
    if _INTEGER.fullmatch(written) is None:
        return None
    value = int(written)
    return value if value <= MAX_INTEGER else None


def text(raw: Raw) -> str | None:
    """A JSON string. Else None."""
    try:
        return _read_string(raw)
    except msgspec.MsgspecError:
        return None


def bad_request(words: str) -> ConnectionEnd:
    """Close reasons end up in logs and terminals: `words` must be printable ASCII."""
    return ConnectionEnd(POLICY_VIOLATION, f"bad_request: {words}"[:MAX_REASON_BYTES])


class _HalfACharacterError(Exception):
    """A string of the message escapes half of a surrogate pair: JSON, but no text."""


def _read(message: str) -> tuple[dict[str, Raw], bool]:
    """The members, and whether it is nested too deeply to have more than their outline."""
    try:
        return _members(message), False
    except RecursionError:
        return _members(_outline(message)), True


def _members(message: str) -> dict[str, Raw]:
    """By name; of one that comes twice the last."""
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
