"""The JSON text of what a projection makes of an event."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from kiwi_gw.query.limits import MAX_PROJECTION
from kiwi_gw.query.values import RecordError, Value

_encode: Final = msgspec.json.Encoder().encode


def encode_result(result: Value) -> bytes:
    """Make the JSON text of a projection.

    Raises:
        RecordError: it would be longer than MAX_PROJECTION.
    """
    text = _encode(result)
    if len(text) > MAX_PROJECTION:
        raise RecordError(f"a result of more than {MAX_PROJECTION} bytes")
    if b"null" in text:  # it may stand for a number that JSON does not have
        text = _encode(_finite(result))
    return text


def _finite(value: Value) -> Value:
    """Replace numbers that JSON does not have by texts."""
    if type(value) is float:
        return value if math.isfinite(value) else "NaN" if value != value else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value


def check_weight(*values: Value) -> None:
    """Check that these columns are not too large to become one text together.

    Raises:
        RecordError: they are.
    """
    size = 0
    for value in values:
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list | dict):
            size += len(_encode(value))
        if size > MAX_PROJECTION:
            raise RecordError(f"a result of more than {MAX_PROJECTION} bytes")
