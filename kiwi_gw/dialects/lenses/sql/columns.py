"""Reads the columns of a statement, and what they are called."""

from __future__ import annotations

from kiwi_gw.dialects.lenses.sql.names import FACETS, META, META_ROOTS
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.cursor import Cursor
from kiwi_gw.query.sql.parser import Parser
from kiwi_gw.query.sql.tokens import Kind, SqlToken
from kiwi_gw.query.tree import Column, Path


def read_columns(parser: Parser) -> tuple[Column, ...] | None:
    """Read columns from behind SELECT on. None: `*`.

    Raises:
        QueryError: they are none, or two have one name; with the position.
    """
    cursor = parser.cursor
    first = cursor.here
    if cursor.take("*"):
        if cursor.here.upper == ",":
            raise QueryError("* is all of a record, and goes alone", first.start)
        return None
    columns = _Columns()
    while True:
        if cursor.here.upper == "*":
            cursor.wrong("* is all of a record, and goes alone")
        if (facet := _facet(cursor)) is not None:
            columns.add_facet(facet)
        else:
            _read_one(parser, columns)
        if not cursor.take(","):
            return tuple(columns.found)


class _Columns:
    """Gather columns; no two have one name."""

    def __init__(self) -> None:
        self.found: list[Column] = []
        self._names: set[str] = set()

    def add(self, column: Column, name: str, position: int) -> None:
        if name in self._names:
            raise QueryError(f"two columns are called {name!r}: give one another name with AS", position)
        self._names.add(name)
        self.found.append(column)

    def add_facet(self, token: SqlToken) -> None:
        """Add the members of a facet. Which those of the value or the key are, each record says."""
        place = token.start
        if token.text == META:
            for name, root in META_ROOTS.items():
                self.add(Column((name,), Path(root, (), place)), name, place)
            return
        value = Path(FACETS[token.text], (), place)
        self.add(Column((), value, spread=True), f"{token.text}.*", place)


def _facet(cursor: Cursor) -> SqlToken | None:
    """Read `_value.*` and the like, if that comes."""
    token = cursor.here
    if token.kind is Kind.WORD and cursor.ahead().upper == "." and cursor.ahead(2).upper == "*":
        if token.text not in (*FACETS, META):
            raise QueryError(f"only {', '.join((*FACETS, META))} may be followed by .*", token.start)
        cursor.skip(3)
        return token
    return None


def _read_one(parser: Parser, columns: _Columns) -> None:
    cursor, first = parser.cursor, parser.cursor.here
    value = parser.one()
    parser.nodes.use(value)
    tokens = cursor.since(first)
    if cursor.take("AS"):
        name = cursor.here
        if name.kind not in (Kind.WORD, Kind.NAME):
            cursor.wrong("a name must follow, in backquotes if it has more than letters and digits")
        cursor.skip()
        columns.add(Column((name.text,), value), name.text, name.start)
    else:
        called = _name(tokens, is_path=isinstance(value, Path)) or parser.written(first)
        columns.add(Column((called,), value), called, first.start)


def _name(tokens: list[SqlToken], *, is_path: bool) -> str | None:
    """Return the last member that is written, or the name of the function. None: it is neither."""
    if is_path:
        names = [token.text for token in tokens if token.kind in (Kind.WORD, Kind.NAME, Kind.STRING)]
        return names[-1]
    if len(tokens) > 1 and tokens[0].kind is Kind.WORD and _closing(tokens) == len(tokens) - 1:
        return tokens[0].text.lower()
    return None


def _closing(tokens: list[SqlToken]) -> int | None:
    """Return where the parenthesis that is opened behind the first word is closed; None: there is none."""
    depth = 0
    for index, token in enumerate(tokens[1:], start=1):
        depth += (token.upper == "(") - (token.upper == ")")
        if depth == 0:
            return index if token.upper == ")" else None
    return None
