"""A declared schema of the value, in Spark's DDL, and what it makes of a decoded value.

As `from_json` in the mode PERMISSIVE: a member of another type than declared is NULL, and the rest stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

import msgspec

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH
from kiwi_gw.query.recent import Recent
from kiwi_gw.query.tree import Path
from kiwi_gw.query.values import Value, convert
from kiwi_gw.query.values.types import (
    ANY,
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Type,
)

_TOKEN: Final = re.compile(r"\s*(?:`([^`]+)`|(\w+)|([<>,:()])|(\S))")
_TYPES: Final = {
    "STRING": STRING, "INT": INT, "INTEGER": INT, "BIGINT": BIGINT, "LONG": BIGINT, "DOUBLE": DOUBLE,
    "FLOAT": FLOAT, "REAL": FLOAT, "BOOLEAN": BOOLEAN, "DATE": DATE, "TIMESTAMP": TIMESTAMP,
    "SMALLINT": SMALLINT, "SHORT": SMALLINT, "TINYINT": TINYINT, "BYTE": TINYINT, "BINARY": BINARY,
    "VARIANT": ANY,
}  # fmt: skip
_MOST, _LONGEST, _APART = 20, 24, 4
"""Members that a mistake names, or that are compared; characters of a name that are, and in how many they may
differ."""
_KEPT: Final = 4 * 1024 * 1024
"""Characters of the schemas that are kept. Sources have them, clients choose none."""
_SPECIAL: Final = {
    "NaN": math.nan, "+INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf, "INF": math.inf,
    "-INF": -math.inf, "-Infinity": -math.inf,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schema:
    """The type of `value`."""

    value: Type

    @staticmethod
    def parse(ddl: str) -> Schema:
        """`a INT, b STRUCT<c: STRING, d: ARRAY<DOUBLE>>`: top-level fields of an object, or one type alone.

        Raises:
            QueryError: the text is no such schema; with the position.
        """
        return Schema(_Reader(ddl).whole())

    @staticmethod
    def known(ddl: str) -> Schema:
        """The same, parsed once for all who ask for it: a large one takes tens of milliseconds."""
        return _known.get(ddl, len(ddl), lambda: Schema.parse(ddl))

    def at(self, path: Path) -> Type:
        """The type of what is there; ANY below what has no schema.

        Raises:
            QueryError: the schema has nothing there.
        """
        if path.root != "value":
            return ANY
        type_ = self.value
        said = path.root
        for step in path.steps:
            if type_ == ANY:
                return ANY
            found = _step(type_, step)
            if found is None:
                raise QueryError(f"{said} has no {step!r}{_instead(type_, step)}", path.position)
            type_, said = found, f"{said}.{step}" if isinstance(step, str) else f"{said}[{step}]"
        return type_


def _instead(type_: Type, step: str | int) -> str:
    """What there is, the nearest first; of many members some."""
    names = [name for name, _ in type_.fields]
    if not names:
        return f": it is {type_}"
    meant = str(step)[:_LONGEST]  # a name that is longer is compared with none
    alike = [name for name in names if abs(len(name) - len(meant)) < _APART][:_MOST]
    near = get_close_matches(meant, alike, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{hint}: it has {', '.join(names[:_MOST])}{more}"


def _step(type_: Type, step: str | int) -> Type | None:
    if isinstance(step, int):
        return type_.item if type_.kind == "ARRAY" else None
    if type_.kind == "MAP":
        return type_.item
    return type_.by_name.get(step)


_known: Final[Recent[Schema]] = Recent(_KEPT)


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = [
            (found[1] or found[2] or found[3] or found[4], bool(found[1]), found.start(found.lastindex or 0))
            for found in _TOKEN.finditer(text)
        ]
        self._end = len(text)
        self._place = 0

    def whole(self) -> Type:
        alone = len(self._tokens) == 1 or self._ahead(1) == "<"
        type_ = self._type(0) if alone else Type("OBJECT", None, self._fields(0))
        if self._place < len(self._tokens):
            raise self._wrong(f"{self._next()!r} is one too many")
        return type_

    def _ahead(self, more: int = 0) -> str:
        place = self._place + more
        return self._tokens[place][0] if place < len(self._tokens) else ""

    def _next(self) -> str:
        if self._place == len(self._tokens):
            raise self._wrong("it ends too early")
        self._place += 1
        return self._tokens[self._place - 1][0]

    def _wrong(self, message: str) -> QueryError:
        place = self._tokens[self._place - 1][2] if 0 < self._place <= len(self._tokens) else self._end
        return QueryError(f"the schema: {message}", place)

    def _take(self, token: str) -> None:
        if (found := self._next()) != token:
            raise self._wrong(f"{found!r} instead of {token!r}")

    def _fields(self, depth: int) -> tuple[tuple[str, Type], ...]:
        fields: dict[str, Type] = {}
        while True:
            name = self._next()
            if not (name.isidentifier() or self._tokens[self._place - 1][1] or name.isalnum()):
                raise self._wrong(f"{name!r} is no name")
            if name in fields:
                raise self._wrong(f"{name} is there twice")
            if self._ahead() == ":":
                self._next()
            fields[name] = self._type(depth)
            if self._ahead().upper() == "NOT" and self._ahead(1).upper() == "NULL":
                self._place += 2
            if self._ahead() != ",":
                return tuple(fields.items())
            self._next()

    def _type(self, depth: int) -> Type:
        if depth > MAX_DEPTH:
            raise self._wrong(f"more than {MAX_DEPTH} deep")
        name = self._next().upper()
        if name in _TYPES:
            return _TYPES[name]
        if name == "ARRAY":
            self._take("<")
            item = self._type(depth + 1)
            self._take(">")
            return Type("ARRAY", item)
        if name == "STRUCT":
            self._take("<")
            fields = self._fields(depth + 1)
            self._take(">")
            return Type("OBJECT", None, fields)
        if name == "MAP":
            self._take("<")
            if self._type(depth + 1) != STRING:
                raise self._wrong("the keys of a MAP are of STRING")
            self._take(",")
            item = self._type(depth + 1)
            self._take(">")
            return Type("MAP", item)
        if name in {"DECIMAL", "DEC", "NUMERIC"}:
            raise self._wrong("DECIMAL is not here; DOUBLE is")
        raise self._wrong(f"there is no type {name}")


class _WrongError(Exception):
    """A value is not of the type that its place in the schema has."""


Coercion = Callable[[Value], Value]


@lru_cache(maxsize=1024)
def coercion(type_: Type) -> Coercion:
    """What makes a decoded value into one of the type; None for what is of another."""
    strictly = _strictly(type_)

    def coerce(value: Value) -> Value:
        if value is None:
            return None
        try:
            return strictly(value)
        except _WrongError:
            return None

    return coerce


def _strictly(type_: Type) -> Coercion:
    """The same for values that are not None; raises _WrongError for what is of another type."""
    if type_.kind == "ARRAY":
        item = _nullable(type_.item or ANY)

        def array(value: Value) -> Value:
            if not isinstance(value, list):
                raise _WrongError
            return [item(each) for each in value]

        return array
    if type_.kind == "MAP":
        each_value = _nullable(type_.item or ANY)

        def mapping(value: Value) -> Value:
            if not isinstance(value, dict):
                raise _WrongError
            return {name: each_value(each) for name, each in value.items()}

        return mapping
    if type_.kind == "OBJECT":
        members = tuple((name, coercion(each)) for name, each in type_.fields)

        def structure(value: Value) -> Value:
            if not isinstance(value, dict):
                raise _WrongError
            return {name: convert_one(value.get(name)) for name, convert_one in members}

        return structure
    return _ATOMS.get(type_.kind, lambda value: value)


def _nullable(type_: Type) -> Coercion:
    strictly = _strictly(type_)
    return lambda value: None if value is None else strictly(value)


def _integer(bits: int) -> Coercion:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def integer(value: Value) -> Value:
        if type(value) is int and low <= value <= high:
            return value
        raise _WrongError

    return integer


def _double(value: Value) -> Value:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str and value in _SPECIAL:
        return _SPECIAL[value]
    raise _WrongError


def _string(value: Value) -> Value:
    if type(value) is str:
        return value
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return convert.to_string(value)


def _boolean(value: Value) -> Value:
    if type(value) is bool:
        return value
    raise _WrongError


def _read(conversion: Coercion, *kinds: type) -> Coercion:
    def read(value: Value) -> Value:
        found = conversion(value) if type(value) in kinds else None
        if found is None:
            raise _WrongError
        return found

    return read


_ATOMS: Final[dict[str, Coercion]] = {
    "TINYINT": _integer(8),
    "SMALLINT": _integer(16),
    "INT": _integer(32),
    "BIGINT": _integer(64),
    "DOUBLE": _double,
    "FLOAT": lambda value: convert.to_float(_double(value)),
    "STRING": _string,
    "BOOLEAN": _boolean,
    "DATE": _read(convert.to_date, str),
    "TIMESTAMP": _read(convert.to_timestamp, str, int),
    "BINARY": _read(convert.to_binary, str),
}
