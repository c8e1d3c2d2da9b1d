"""The function that reads JSON out of a text: JSON inside of JSON."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from kiwi_gw.query.functions.base import typed
from kiwi_gw.query.functions.cost import FunctionCost, ResultKind
from kiwi_gw.query.limits import MAX_JSON, MAX_STEPS, MAX_TEXT
from kiwi_gw.query.values import RecordError, Value, convert
from kiwi_gw.query.values.types import STRING

_STEP: Final = re.compile(r"\.([^.\[*]+)|\[(\d{1,9})\]|\['([^'?]+)'\]|(\.\*|\[\*\]|\['\*'\])")
_ALL: Final = -1
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


@lru_cache(maxsize=32)
def _steps(path: str) -> tuple[str | int, ...] | None:
    """Read a path like `$.a[0]['b'][*]`; None: it is not a path."""
    if not path.startswith("$"):
        return None
    found: list[str | int] = []
    place = 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None or len(found) == MAX_STEPS:
            return None
        member = step[1] or step[3]
        found.append(member if member is not None else int(step[2]) if step[2] else _ALL)
        place = step.end()
    return tuple(found)


def _decoded(text: str) -> Value:
    """Decode JSON text; None: it is not JSON.

    Raises:
        RecordError: the text is too long to be read: its values may take some thirty times as much room.
    """
    if len(text) > MAX_JSON:
        raise RecordError(f"a JSON text of more than {MAX_JSON} characters")
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _get_json_object(text: str, path: str) -> str | None:
    # Only a record has a longer one, and that is not kept: it may be as long as an event.
    steps = _steps(path) if len(path) <= MAX_TEXT else _steps.__wrapped__(path)
    if steps is None:
        return None
    found = [_decoded(text)]
    several = False
    for step in steps:
        if step == _ALL:
            several = True
            found = [item for each in found if isinstance(each, list) for item in each]
        elif isinstance(step, str):
            found = [each[step] for each in found if isinstance(each, dict) and step in each]
        else:
            found = [each[step] for each in found if isinstance(each, list) and step < len(each)]
        if not found:
            return None
    if several and len(found) > 1:
        return _encode(found).decode()
    (value,) = found[:1]
    if several and isinstance(value, str):
        return _encode(value).decode()
    if value is None:
        # Only as a member of an object null is NULL.
        return "null" if (steps and isinstance(steps[-1], int)) or (not steps and _is_null(text)) else None
    return _text(value)


def _is_null(text: str) -> bool:
    return text.strip(" \t\r\n") == "null"


def _text(value: Value) -> str | None:
    return _encode(value).decode() if isinstance(value, list | dict) else convert.to_string(value)


# A control character is six in JSON.
_JSON: Final = FunctionCost(ResultKind.TEXT, factor=6, plus=64, pace=4)

FUNCTIONS: Final = (
    typed(
        "get_json_object(s, path)",
        (STRING, STRING),
        STRING,
        _get_json_object,
        "what is at a path like $.a[0].b in a JSON text",
        cost=_JSON,
    ),
)
