"""Durations and sizes as people write them in the configuration."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_DURATION = r"^[0-9]+ ?(ms|s|m|h)$"
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SIZE = r"^[0-9]+ ?(B|KiB|MiB|GiB)$"
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def _quantity(value: object, pattern: str, units: dict[str, int], wanted: str) -> object:
    if isinstance(value, bool) or value is None:
        raise ValueError(f"must be {wanted}")
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    match = re.fullmatch(pattern, text)
    if match is None:
        raise ValueError(f"must be {wanted}, not {value!r}")
    return int(text.removesuffix(match[1])) * units[match[1]]


def _milliseconds(value: object) -> object:
    return _quantity(value, _DURATION, _MILLISECONDS, "milliseconds or a duration like '500ms', '10s', '5m'")


def _bytes(value: object) -> object:
    return _quantity(value, _SIZE, _BYTES, "a number of bytes or a size like '64KiB', '8MiB', '1GiB'")


Milliseconds = Annotated[
    int,
    BeforeValidator(
        _milliseconds,
        json_schema_input_type=Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=_DURATION)],
    ),
    Field(ge=0),
]
"""A duration in milliseconds. The file may say `10000` or `10s` (units: ms, s, m, h)."""

Bytes = Annotated[
    int,
    BeforeValidator(
        _bytes, json_schema_input_type=Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=_SIZE)]
    ),
    Field(ge=0),
]
"""A size in bytes. The file may say `65536` or `64KiB` (units: B, KiB, MiB, GiB)."""
