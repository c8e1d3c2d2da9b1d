"""Where a SUBSCRIBE begins: its members `from` and `onMissing`, read strictly (ours; the document has none).

    "from": "latest" | "earliest" | "snapshot"
          | {"timestamp": ms} | {"offsets": {"0": 12}} | {"positions": {...}}
    "onMissing": "earliest"

`positions` are what the gateway itself has said in SUBSCRIBE_OK, LAG, POSITIONS or SUBSCRIPTION_CLOSED;
`offsets` are those of partitions, as a client counts them. A partition that is not named begins with its
first event.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.kiwi.requests import MAX_INTEGER, text
from kiwi_gw.model import AtPositions, AtTime, Start, StartAt

WRONG_FROM: Final = (
    'from must be "latest", "earliest", "snapshot", {"timestamp": ms}, {"offsets": {"0": 12}} '
    'or {"positions": ...}'
)
WRONG_TIMESTAMP: Final = f"from.timestamp must be an integer from 0 to {MAX_INTEGER}: ms since the epoch"
WRONG_OFFSETS: Final = 'from.offsets must be an object of partition numbers and offsets, as in {"0": 12}'
WRONG_POSITIONS: Final = "from.positions must be an object that the gateway has sent as positions"
WRONG_ON_MISSING: Final = 'onMissing must be "earliest"; without it what is gone is refused'
LONE_ON_MISSING: Final = "onMissing goes with from.offsets or from.positions"

_NAMES = {start.value: start for start in StartAt}
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_value = msgspec.json.Decoder().decode
_partition = re.compile(r"0|[1-9][0-9]{0,9}").fullmatch


class Wrong(ValueError):  # noqa: N818  (it states what the member is)
    """The member is not as it must be. The message is a sentence for the client."""


def beginning(begin: Raw | None, on_missing: Raw | None) -> Start:
    """Where to begin. Raises Wrong."""
    if on_missing is not None and text(on_missing) != StartAt.EARLIEST.value:
        raise Wrong(WRONG_ON_MISSING)
    start = StartAt.LATEST if begin is None else _start(begin, skip_missing=on_missing is not None)
    if on_missing is not None and not isinstance(start, AtPositions):
        raise Wrong(LONE_ON_MISSING)
    return start


def _start(begin: Raw, *, skip_missing: bool) -> Start:
    name = text(begin)
    if name is not None:
        if name not in _NAMES:
            raise Wrong(WRONG_FROM)
        return _NAMES[name]
    try:
        members = _members(begin)
    except (msgspec.MsgspecError, RecursionError):
        raise Wrong(WRONG_FROM) from None
    if len(members) != 1:
        raise Wrong(WRONG_FROM)
    ((kind, value),) = members.items()
    match kind:
        case "timestamp":
            return AtTime(_timestamp(value))
        case "offsets":
            return AtPositions(_offsets(value), skip_missing)
        case "positions":
            return AtPositions(_object(value, WRONG_POSITIONS), skip_missing)
    raise Wrong(WRONG_FROM)


def _timestamp(raw: Raw) -> int:
    value = _read(raw, WRONG_TIMESTAMP)
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise Wrong(WRONG_TIMESTAMP)
    return value


def _offsets(raw: Raw) -> dict[str, object]:
    offsets = _object(raw, WRONG_OFFSETS)
    for partition, offset in offsets.items():
        if not _partition(partition) or type(offset) is not int or not 0 <= offset <= MAX_INTEGER:
            raise Wrong(WRONG_OFFSETS)
    return offsets


def _object(raw: Raw, wrong: str) -> dict[str, object]:
    value = _read(raw, wrong)
    if not isinstance(value, dict):
        raise Wrong(wrong)
    return value


def _read(raw: Raw, wrong: str) -> object:
    try:
        return _value(raw)
    except (msgspec.MsgspecError, RecursionError):
        raise Wrong(wrong) from None
