"""The error of a query that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from kiwi_gw.errors import KiwiError

_COMPARED, _LONGEST, _APART = 20, 24, 4
"""Names that one is compared with, its characters, and in how many of them they may differ."""


class QueryError(KiwiError):
    """Report a query that cannot be used. The message is for its author.

    position: of the first character that is wrong in the text, from 0; None: it is about all of it.
    part: which text that is, where a query has several (`where`, `select`). words: the message without both.
    """

    def __init__(self, message: str, position: int | None = None, part: str = "") -> None:
        self.words, self.position, self.part = message, position, part
        if part:
            message = f"{part}: {message}"
        super().__init__(message if position is None else f"{message} (at character {position + 1})")


def did_you_mean(meant: str, names: Iterable[str]) -> str:
    """Write ` (did you mean x?)` for the name that is nearest, or nothing, in a bounded time."""
    if len(meant) > _LONGEST:
        return ""
    alike = [name for name in names if abs(len(name) - len(meant)) < _APART][:_COMPARED]
    near = get_close_matches(meant, alike, 1)
    return f" (did you mean {near[0]}?)" if near else ""
