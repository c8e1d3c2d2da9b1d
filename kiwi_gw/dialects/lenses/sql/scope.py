"""What names mean in a statement that may have several tables.

Theory of operation. Columns are written before the tables that they are of. So names are read as they are
written first, and get their meaning when all of the statement was read:

1. What is the name of a column, alone, is that column: in GROUP BY, HAVING and ORDER BY, outside of
   aggregates. (`columns`)
2. What follows the alias of a table and a dot, or the name of one without alias, is of that table; it means
   what it means in a statement of one table. (`_value.a` is the member `a`, where a table is called so.)
3. Everything else is of the only table. Where there are several it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kiwi_gw.dialects.lenses.sql.aggregates import aggregate_form, is_aggregate
from kiwi_gw.dialects.lenses.sql.grouped import root_of
from kiwi_gw.dialects.lenses.sql.names import RecordNames
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_NODES
from kiwi_gw.query.sql.forms import Form
from kiwi_gw.query.sql.tokens import Kind, SqlToken
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path

_WORD: Final = "?"
_QUOTED: Final = "`"
"""Roots of paths whose first step is the name that was written, as a word or in backticks."""

_RECORD: Final = RecordNames()


class WrittenNames:
    """Implement `kiwi_gw.query.sql.names.Names`: names as they are written. aggregates: whether there was
    one."""

    def __init__(self) -> None:
        self.aggregates = False

    def root(self, token: SqlToken) -> Path:
        return Path(_WORD if token.kind is Kind.WORD else _QUOTED, (token.text,), token.start)

    def member(self, of: Path, step: str | int) -> Path:
        return Path(of.root, (*of.steps, step), of.position)

    def form(self, token: SqlToken) -> Form | None:
        """Return what reads an aggregate."""
        found = aggregate_form(token)
        self.aggregates = self.aggregates or found is not None
        return found


class Scope:
    """Give names their meaning. All of it raises QueryError, with the place of the name."""

    def __init__(self, prefixes: Sequence[str], *, qualified: bool) -> None:
        """Take the prefixes of the tables. qualified: roots are those of a `GroupedStatement`."""
        self._tables = {prefix: index for index, prefix in enumerate(prefixes)}
        self._known = len(prefixes)
        self._qualified = qualified
        self._left = MAX_NODES

    def meant(self, node: Node, columns: Mapping[str, Node] | None = None, tables: int | None = None) -> Node:
        """Give all names in a tree their meaning. columns: those that are known by their names. tables: so
        many are known; None: all."""
        self._known = len(self._tables) if tables is None else tables
        return self._meant(node, columns or {})

    def _meant(self, node: Node, columns: Mapping[str, Node]) -> Node:
        self._count(1, node.position)
        match node:
            case Literal():
                return node
            case Path():
                return self._path(node, columns)
            case Cast(value, to, position):
                return Cast(self._meant(value, columns), to, position)
            case FunctionCall(name, arguments, position):
                inside = {} if is_aggregate(node) else columns
                return FunctionCall(name, tuple(self._meant(each, inside) for each in arguments), position)

    def _path(self, path: Path, columns: Mapping[str, Node]) -> Node:
        if path.root not in (_WORD, _QUOTED):  # one of those that `_meta.*` stands for
            if len(self._tables) > 1:
                raise QueryError("say of which table: name its members", path.position)
            return self._of(0, path)
        name, rest = str(path.steps[0]), path.steps[1:]
        if not rest and name in columns:
            self._count(_size(columns[name]) - 1, path.position)
            return columns[name]
        if rest and (table := self._tables.get(name)) is not None:
            if table >= self._known:
                raise QueryError(f"{name} is joined only later", path.position)
            return self._of(table, _in_record(Kind.WORD, rest, path.position))
        if len(self._tables) > 1:
            if name in self._tables:
                raise QueryError(f"{name} is a table: say what of it, as {name}._value", path.position)
            some = ", ".join(f"{prefix}.{name}" for prefix in self._tables)
            raise QueryError(f"say of which table {name} is: {some}", path.position)
        kind = Kind.WORD if path.root == _WORD else Kind.NAME
        return self._of(0, _in_record(kind, path.steps, path.position))

    def _count(self, nodes: int, position: int) -> None:
        self._left -= nodes
        if self._left < 0:
            raise QueryError("it has too many parts", position)

    def _of(self, table: int, path: Path) -> Path:
        return Path(root_of(table, path.root), path.steps, path.position) if self._qualified else path


def _in_record(kind: Kind, steps: tuple[str | int, ...], position: int) -> Path:
    """Return what steps mean in a record of one table."""
    first = steps[0]
    if not isinstance(first, str):
        return Path("value", steps, position)
    found = _RECORD.root(SqlToken(kind, first, position, position))
    for step in steps[1:]:
        found = _RECORD.member(found, step)
    return found


def _size(node: Node) -> int:
    match node:
        case FunctionCall(_, arguments):
            return 1 + sum(map(_size, arguments))
        case Cast(value):
            return 1 + _size(value)
    return 1


def written_name(node: Node) -> str | None:
    """Return the name that a tree is, as it is written. None: it is more than a name."""
    if isinstance(node, Path) and node.root in (_WORD, _QUOTED) and len(node.steps) == 1:
        return str(node.steps[0])
    return None
