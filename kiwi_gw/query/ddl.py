"""Spark's DDL: `a INT, b STRUCT<c: STRING, d: ARRAY<DOUBLE>>`, as the text of a schema."""

from __future__ import annotations

import re
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH
from kiwi_gw.query.values.types import ANY, BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Type

_TOKEN: Final = re.compile(r"\s*(?:`([^`]+)`|(\w+)|([<>,:()])|(\S))")
_TYPES: Final = {
    "STRING": STRING, "INT": INT, "INTEGER": INT, "BIGINT": BIGINT, "LONG": BIGINT, "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN, "DATE": DATE, "TIMESTAMP": TIMESTAMP, "VARIANT": ANY,
    # Spark's narrow ones are read as the next that is here.
    "FLOAT": DOUBLE, "REAL": DOUBLE, "SMALLINT": INT, "SHORT": INT, "TINYINT": INT, "BYTE": INT,
}  # fmt: skip


def parse_ddl(text: str) -> Type:
    """Read top-level fields of an object, or one type alone.

    Raises:
        QueryError: the text is not a schema; with the position.
    """
    return _DdlReader(text).whole()


class _DdlReader:
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
