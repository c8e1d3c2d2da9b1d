"""Where the parser is in the tokens of a text."""

from __future__ import annotations

import re
from typing import NoReturn

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.tokens import Kind, SqlToken, behind_blanks, tokenized
from kiwi_gw.query.sql.vocabulary import CLAUSES, IN_SPARK, NO_SUBQUERIES


class Cursor:
    """Go through the tokens of a text, one after the other. here: the next one."""

    def __init__(self, text: str, max_tokens: int, *, semicolons: bool = False) -> None:
        """Begin at the first token. Raises QueryError as `tokenized`."""
        self._text, self._max_tokens, self._semicolons = text, max_tokens, semicolons
        self._tokens = tokenized(text, max_tokens, semicolons=semicolons)
        self._index = 0
        self.here = self._tokens[0]

    @property
    def last(self) -> SqlToken:
        """Return the token before."""
        return self._tokens[self._index - 1]

    def ahead(self, count: int = 1) -> SqlToken:
        """Return a token behind the next one."""
        return self._tokens[min(self._index + count, len(self._tokens) - 1)]

    def skip(self, count: int = 1) -> SqlToken:
        """Go on. Returns the token that was the next one."""
        token = self.here
        self._index += count
        self.here = self._tokens[self._index]
        return token

    def since(self, first: SqlToken) -> list[SqlToken]:
        """Return the tokens from one that was read on, without the next one."""
        begin = self._index
        while begin and self._tokens[begin - 1].start >= first.start:
            begin -= 1
        return self._tokens[begin : self._index]

    def skip_matching(self, pattern: re.Pattern[str]) -> SqlToken | None:
        """Go behind what matches where the next token begins, though it may be no token: a name with signs
        in it. Returns it as a name."""
        found = pattern.match(self._text, behind_blanks(self._text, self.last.end))
        if found is None:
            return None
        name = SqlToken(Kind.NAME, found[0], *found.span())
        rest = tokenized(self._text, self._max_tokens - self._index, found.end(), semicolons=self._semicolons)
        self._tokens[self._index :] = [name, *rest]
        self.here = name
        return self.skip()

    def take(self, *words: str) -> SqlToken | None:
        """Go behind the next token, if it is one of these words or signs."""
        return self.skip() if self.here.upper in words else None

    def expect(self, word: str, message: str = "") -> None:
        """Go behind that word or sign.

        Raises:
            QueryError: something else comes.
        """
        if self.take(word) is None:
            self.wrong(message or f"{word} must follow")

    def expect_end(self) -> None:
        if self.here.kind is not Kind.END:
            self.wrong(f"{self.here} is not expected here")

    def wrong(self, message: str) -> NoReturn:
        """Raise a QueryError for the next token."""
        token = self.here
        if token.upper == "SELECT":
            message = NO_SUBQUERIES
        elif token.upper in CLAUSES:
            message = f"{token.upper} has no place in an expression: {IN_SPARK}"
        raise QueryError(message, token.start)
