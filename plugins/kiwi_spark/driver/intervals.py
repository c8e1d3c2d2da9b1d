"""Lengths of time, as people write them and as Spark reads them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}


def interval(text: str) -> str:
    """An interval as Spark reads it, which knows no `500 ms`."""
    return re.sub(r"(?<=\d)\s*([a-z]+)\b", lambda unit: f" {_UNITS.get(unit[1], unit[1])}", text)
