"""What the names in a text of SQL mean: a language of its own may have other ones for the same record."""

from __future__ import annotations

from typing import Final, Protocol

from kiwi_gw.query.sql.forms import Form
from kiwi_gw.query.sql.tokens import SqlToken
from kiwi_gw.query.tree import Path


class Names(Protocol):
    """Say what the names in a text mean. All of it may raise QueryError, with the place of the name."""

    def root(self, token: SqlToken) -> Path:
        """Return what a name means that stands alone."""

    def member(self, of: Path, step: str | int) -> Path:
        """Return what a member of it is, or an item."""

    def form(self, token: SqlToken) -> Form | None:
        """Look at the name of a function before it is read, and return what reads it; None: it is read as
        every query has it."""


class _AsWritten:
    def root(self, token: SqlToken) -> Path:
        return Path(token.text, (), token.start)

    def member(self, of: Path, step: str | int) -> Path:
        return Path(of.root, (*of.steps, step), of.position)

    def form(self, token: SqlToken) -> Form | None:
        """Accept any."""
        return None


AS_WRITTEN: Final[Names] = _AsWritten()
"""Every name that stands alone is a root of the record."""
