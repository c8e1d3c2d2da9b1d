"""What is wrong with a query."""

from __future__ import annotations

from kiwi_gw.errors import KiwiError


class QueryError(KiwiError):
    """A query that cannot be used. The message is for whoever wrote it.

    position: of the first character that is wrong in the text, from 0; None: it is about all of it.
    part: which text that is, where a query has several (`where`, `select`). words: the message without both.
    """

    def __init__(self, message: str, position: int | None = None, part: str = "") -> None:
        self.words, self.position, self.part = message, position, part
        if part:
            message = f"{part}: {message}"
        super().__init__(message if position is None else f"{message} (at character {position + 1})")
