"""What a few bytes may become by an Avro schema, whose author need not be a friend.

Theory of operation. Nulls take no bytes, and neither do records of nothing else: one that names another
twenty times, which does the same, six levels deep, is 64 million values of no bytes. Names of members, and
symbols of enums, are written for every value and take a byte at most. So a schema is measured: of each type
the least bytes, and the values and characters of JSON that come with them. Where a choice or a repetition
begins (a union, an array, a map) at least one byte is taken, and another part begins. If no part makes too
much of its bytes, no datum does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MOST_VALUES: Final = 8
MOST_CHARACTERS: Final = 256
"""Of JSON, and values, that a schema may make of one byte. Usual ones make about two values, and of names of
fields 40 characters."""
RECORD_BYTES: Final = 64
"""That a datum counts more than it has: reading a record from Kafka takes about as long."""

_ENDLESS: Final = "it has an array of what takes no bytes: a datum of a few could hold any number"
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}
_SCALAR_CHARACTERS: Final = 5
_BRACKETS: Final = 2
_AROUND_NAME: Final = 4
"""Quotes, a colon and a comma."""


class _Size(NamedTuple):
    """What one part takes and becomes: at least so many bytes, so many values and characters with them."""

    bytes: int
    values: int = 1
    characters: int = _SCALAR_CHARACTERS


def check_bounds(schema: Any, named: Mapping[str, Any]) -> None:
    """Raise ValueError, in words, for a schema by which few bytes become much. schema, named: as `avro.parse`
    returns them."""
    sizes = _Sizes(named)
    sizes.begin(schema, RECORD_BYTES)
    sizes.check()


class _Sizes:
    """Measure the parts of one schema."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, _Size] = {}
        self._parts: list[tuple[Any, int]] = []  # with the bytes that are taken before each

    def of(self, schema: Any) -> _Size:
        """Measure a part, and note those that begin within it."""
        match schema:
            case str() if schema in self._named:
                return self._of_name(schema, self._named[schema])
            case str():
                return _Size(_LEAST_BYTES.get(schema, 1))
            case list():
                for branch in schema:
                    self.begin(branch, 1)
                return _Size(1)
            case {"type": "array", "items": inner}:
                self.begin(inner, 0)
                return _Size(1)
            case {"type": "map", "values": inner}:
                self.begin(inner, 1)
                return _Size(1)
            case {"type": "record" | "error" | "enum" | "fixed", "name": name}:
                return self._of_name(name, schema)
            case {"type": inner}:
                return self.of(inner)
        raise ValueError(f"this is no Avro schema: {schema!r:.40}")

    def begin(self, part: Any, before: int) -> None:
        """Note a part that begins somewhere, behind so many bytes of its own."""
        self._parts.append((part, before))

    def check(self) -> None:
        """Raise ValueError for a part that makes too much of its bytes."""
        for part, before in self._parts:  # which grows meanwhile
            size = self.of(part)
            taken = size.bytes + before
            if not taken:
                raise ValueError(_ENDLESS)
            for most, found, what in (
                (MOST_VALUES, size.values, "values"),
                (MOST_CHARACTERS, size.characters, "characters"),
            ):
                if found > most * taken:
                    raise ValueError(f"a datum of {size.bytes} bytes would be {min(found, 10**9):,} {what}")

    def _of_name(self, name: str, schema: Any) -> _Size:
        """Measure a named type. One that holds itself otherwise than by choice or repetition has no value."""
        if name in self._known:
            return self._known[name]
        self._known[name] = _Size(0)
        match schema:
            case {"type": "enum", "symbols": symbols}:
                size = _Size(1, characters=max(map(len, symbols), default=0) + _BRACKETS)
            case {"type": "fixed", "size": count}:
                size = _Size(count)
            case {"fields": fields}:
                parts = [self.of(field["type"]) for field in fields]
                names = sum(len(field["name"]) + _AROUND_NAME for field in fields)
                size = _Size(
                    sum(part.bytes for part in parts),
                    1 + sum(part.values for part in parts),
                    _BRACKETS + names + sum(part.characters for part in parts),
                )
            case _:
                size = self.of(schema)
        self._known[name] = size
        return size
