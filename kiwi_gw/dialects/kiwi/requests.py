"""What a Kiwi client says: SUBSCRIBE, UNSUBSCRIBE and REQUEST, read strictly (Kiwi protocol, commands).

What is not a command at all ends the connection. A command whose other members are wrong is answered
with its error, so those arrive here as they were written (`Raw`) and are read by `integer` and `text`.
Unknown members are ignored; of a member that comes twice the last one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.kiwi.nesting import TooMuch, outline
from kiwi_gw.errors import ConnectionEnd

POLICY_VIOLATION: Final = 1008
UNSUPPORTED_DATA: Final = 1003
MAX_REASON_BYTES: Final = 123

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON client holds exactly."""

TYPES: Final = ("SUBSCRIBE", "UNSUBSCRIBE", "REQUEST")

_ABSENT = Raw()
_INTEGER = re.compile(rb"[1-9][0-9]{0,15}")


class _Members(msgspec.Struct, rename="camel", gc=False):
    type: Raw = _ABSENT
    source_id: Raw = _ABSENT
    mode: Raw = _ABSENT
    n: Raw = _ABSENT
    buffer_capacity: Raw = _ABSENT
    overflow: Raw = _ABSENT
    begin: Raw = msgspec.field(default=_ABSENT, name="from")
    on_missing: Raw = _ABSENT
    positions_every_ms: Raw = _ABSENT
    where: Raw = _ABSENT
    select: Raw = _ABSENT


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """One command. `type` is one of TYPES. The optional members are as they were written, None: absent.

    begin: the member `from`. too_deep: it is nested so deeply that only type and source_id were read.
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
    too_deep: bool = False


_read_members = msgspec.json.Decoder(_Members).decode
_read_string = msgspec.json.Decoder(str).decode


def read(message: str) -> ClientCommand:
    """The command in a text frame. Raises ConnectionEnd (1008) for anything that is none."""
    too_deep = False
    try:
        members = _members(message)
    except RecursionError:
        members, too_deep = _members(_outline(message)), True
    if members.type is _ABSENT:
        raise bad_request("the message has no type")
    kind = text(members.type)
    if kind not in TYPES:
        raise bad_request(f"the type is none of {', '.join(TYPES)}: {_shown(members.type)}")
    if members.source_id is _ABSENT:
        raise bad_request(f"{kind} has no sourceId")
    source_id = text(members.source_id)
    if not source_id:  # one that is too long is one that no source has
        raise bad_request(f"sourceId is not a string of 1 or more characters: {_shown(members.source_id)}")
    return ClientCommand(
        kind,
        source_id,
        _present(members.mode),
        _present(members.n),
        _present(members.buffer_capacity),
        _present(members.overflow),
        _present(members.begin),
        _present(members.on_missing),
        _present(members.positions_every_ms),
        _present(members.where),
        _present(members.select),
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


def _members(message: str) -> _Members:
    try:
        return _read_members(message)
    except msgspec.ValidationError:
        raise bad_request("the message is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise bad_request("the message is not JSON") from None


def _outline(message: str) -> str:
    try:
        short = outline(message)
    except TooMuch:
        raise bad_request("the message is nested too deeply") from None
    if short is None:
        raise bad_request("the message is not JSON")
    return short


def _present(raw: Raw) -> Raw | None:
    return None if raw is _ABSENT else raw


def _shown(raw: Raw) -> str:
    written = bytes(raw)[:64].decode(errors="replace").encode("ascii", "backslashreplace").decode()
    return "".join(char if char.isprintable() else " " for char in written)
