"""The numbers of Spark's SQL."""

from __future__ import annotations

import math
import re
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.vocabulary import NO_DECIMALS
from kiwi_gw.query.tree import Literal

_NUMBER: Final = re.compile(
    r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?(?P<suffix>L|D|BD)?",
    re.IGNORECASE,
)


def number(text: str, position: int) -> tuple[Literal, str | None]:
    """Read a number as Spark writes it, and the type that its suffix casts it to. What has a point but no
    suffix is a DOUBLE here.

    Raises:
        QueryError: it is not a number, or too large.
    """
    found = _NUMBER.fullmatch(text.removeprefix("-"))
    if found is None:
        raise QueryError(f"{text.removeprefix('-')} is not a number", position)
    suffix = (found["suffix"] or "").upper()
    if suffix == "BD":
        raise QueryError(NO_DECIMALS, position)
    digits = text[: -len(suffix) or None]
    if suffix != "D" and digits.removeprefix("-").isdigit():
        if not -(1 << 63) <= (value := int(digits)) < 1 << 63:
            raise QueryError(f"{text} is too large", position)
        return Literal(value, position), "BIGINT" if suffix else None
    if suffix == "L":
        raise QueryError(f"{text} is not a whole number", position)
    if math.isinf(real := float(digits)):
        raise QueryError(f"{text} is too large", position)
    return Literal(real, position), None
