"""Types of expressions, as far as they are known before there is a record.

Without a schema a path is ANY: its type is that of the value of each record. Spark's names, in capitals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """Describe a type. kind: its name. item: of an ARRAY, and of the values of a MAP. fields: of an OBJECT
    with a schema, in order; by_name: the same."""

    kind: str
    item: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()
    by_name: dict[str, Type] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", dict(self.fields))

    @property
    def dynamic(self) -> bool:
        return self.kind == "ANY"

    @property
    def integer(self) -> bool:
        return self.kind in ("INT", "BIGINT")

    @property
    def numeric(self) -> bool:
        return self.kind in _NUMBERS

    @property
    def atomic(self) -> bool:
        """Return whether it is one value: not an array, an object or of unknown type."""
        return self.kind not in {"ARRAY", "OBJECT", "MAP", "ANY", "NULL"}

    def __str__(self) -> str:
        if self.kind == "ARRAY" and self.item is not None:
            return f"ARRAY<{self.item}>"
        if self.kind == "MAP":
            return f"MAP<STRING, {self.item}>"
        return self.kind


# From narrow to wide: two different ones meet in the wider.
_NUMBERS: Final = ("INT", "BIGINT", "DOUBLE")

NULL: Final = Type("NULL")
ANY: Final = Type("ANY")
BOOLEAN: Final = Type("BOOLEAN")
INT: Final = Type("INT")
BIGINT: Final = Type("BIGINT")
DOUBLE: Final = Type("DOUBLE")
STRING: Final = Type("STRING")
DATE: Final = Type("DATE")
TIMESTAMP: Final = Type("TIMESTAMP")
ARRAY: Final = Type("ARRAY", ANY)
OBJECT: Final = Type("OBJECT")

# What CAST can make.
CASTS: Final = {each.kind: each for each in (BOOLEAN, INT, BIGINT, DOUBLE, STRING, DATE, TIMESTAMP)}


def wider(one: Type, other: Type) -> Type | None:
    """Choose of two numeric types the one that holds both."""
    if one.numeric and other.numeric:
        return max(one, other, key=lambda each: _NUMBERS.index(each.kind))
    return None


def compared(one: Type, other: Type) -> Type | None:
    """Choose the type in which two values are compared; ANY: that of the values; None: they cannot be."""
    if one == NULL or other == NULL:
        return NULL
    if one.dynamic or other.dynamic:
        return ANY
    if not (one.atomic and other.atomic):
        return None
    if one == other:
        return one
    if one == STRING or other == STRING:
        return other if one == STRING else one
    if {one, other} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    return wider(one, other)


def common(types: tuple[Type, ...], *, promote: bool = True) -> Type | None:
    """Choose the type that fits several values (the branches of CASE); None: there is none.

    promote: numbers, dates and strings meet in STRING.
    """
    result = NULL
    # Strings first, as the order of the others must not matter.
    for each in sorted(types, key=lambda each: each != STRING) if promote else types:
        found = _pair(result, each, promote)
        if found is None:
            return None
        result = found
    return result


def _pair(one: Type, other: Type, promote: bool) -> Type | None:
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if one.dynamic or other.dynamic:
        return ANY
    if promote and STRING in (one, other):
        plain = other if one == STRING else one
        return STRING if plain.atomic and plain != BOOLEAN else None
    if {one, other} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    return wider(one, other)
