"""What names mean in a statement: members of the value, unless they begin with the name of another facet."""

from __future__ import annotations

from typing import Final

from kiwi_gw.query.errors import QueryError, did_you_mean
from kiwi_gw.query.functions.unsupported import AGGREGATES, WINDOWS
from kiwi_gw.query.sql.forms import Form
from kiwi_gw.query.sql.tokens import Kind, SqlToken
from kiwi_gw.query.tree import Path

MORE_THAN_ONE: Final = "needs more than one record: declare a spark source, or use SQL v2"
"""What is said of a statement that does not look at one record at a time."""

META: Final = "_meta"
META_ROOTS: Final = {
    "offset": "offset",
    "partition": "partition",
    "timestamp": "timestamp",
    "__keysize": "key_size",
    "__valuesize": "value_size",
}
"""The members of `_meta`, in their order, and the roots of trees that they are."""

ROOTS: Final = frozenset(("value", "key", "headers", *META_ROOTS.values()))
"""What a statement sees of a record."""

FACETS: Final = {"_value": "value", "_key": "key"}
"""Facets that may have members of any name."""

_ROOT_OF: Final = {
    **FACETS,
    "_headers": "headers",
    "_offset": "offset",
    "_partition": "partition",
    "_ts": "timestamp",
}
DIRECTIVES: Final = ("_ktype", "_vtype", "_sample", "_sampleWindow")
"""Names that say how to read, and are no values."""


class RecordNames:
    """Implement `kiwi_gw.query.sql.names.Names`. A name in backticks is always a member of the value."""

    def root(self, token: SqlToken) -> Path:
        """Return what a name means."""
        name = token.text
        if token.kind is Kind.WORD and (name == META or name in DIRECTIVES):
            return Path(name, (), token.start)  # see `misplaced`
        if token.kind is Kind.WORD and name in _ROOT_OF:
            return Path(_ROOT_OF[name], (), token.start)
        return Path("value", (name,), token.start)

    def member(self, of: Path, step: str | int) -> Path:
        """Return what is inside of it. Raises QueryError: `_meta` has no such member."""
        if of.root != META:
            return Path(of.root, (*of.steps, step), of.position)
        if (root := META_ROOTS.get(str(step))) is None:
            hint = did_you_mean(str(step), META_ROOTS)
            raise QueryError(f"_meta has no {step!r}{hint}: it has {', '.join(META_ROOTS)}", of.position)
        return Path(root, (), of.position)

    def form(self, token: SqlToken) -> Form | None:
        """Raise QueryError for a function of more than one record."""
        if token.text.lower() in AGGREGATES | WINDOWS:
            raise QueryError(MORE_THAN_ONE, token.start)
        return None


def misplaced(path: Path) -> str | None:
    """Say what is wrong with a path that is no value; None: it is one. Its root may be one of a
    `GroupedStatement`."""
    root = path.root.rpartition(".")[2]
    if root == META:
        return f"_meta is no value: one of {', '.join(META_ROOTS)} must follow"
    if root in ("_ktype", "_vtype"):
        return f"{root} has a place only in a term {root}='JSON' that AND joins to all others"
    if root in DIRECTIVES:
        return f"{root} has a place only in a term {root}=10 that AND joins to all others"
    return None
