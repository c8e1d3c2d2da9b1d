"""LIKE: patterns of `%` and `_`. What has no `_` needs no regular expression."""

from __future__ import annotations

from functools import lru_cache

from kiwi_gw.query.limits import MAX_TEXT
from kiwi_gw.query.patterns import Matches, PatternError, charged, regex, shown


@lru_cache(maxsize=32)
def liker(pattern: str, escape: str = "\\") -> Matches:
    """Make a LIKE: `%` is any run of characters, `_` is one; after the escape each is itself."""
    if len(pattern) > MAX_TEXT:
        raise PatternError(f"a pattern of more than {MAX_TEXT} characters")
    pieces: list[str] = [""]
    one = False
    signs: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in {"%", "_", escape} or not following:
                raise PatternError(
                    f"the pattern {shown(pattern)}: after {escape} comes %, _ or {escape} itself"
                )
            pieces[-1] += following
        elif character == "%" or character == "_":
            one = one or character == "_"
            signs.append(character)
            pieces.append("")
        else:
            pieces[-1] += character
    if one:
        return _by_regex(pieces, signs)
    return _by_pieces(pieces)


def _by_pieces(pieces: list[str]) -> Matches:
    """Look for pieces one after the other: what has no `_` needs no regular expression."""
    first, last, middle = pieces[0], pieces[-1], [piece for piece in pieces[1:-1] if piece]
    if len(pieces) == 1:
        return lambda text: text == first
    if not middle:
        least = len(first) + len(last)
        if not first:
            return lambda text: text.endswith(last)
        if not last:
            return lambda text: text.startswith(first)
        return lambda text: len(text) >= least and text.startswith(first) and text.endswith(last)
    if len(middle) == 1 and not first and not last:
        only = middle[0]
        return lambda text: only in text

    def matches(text: str) -> bool:
        end = len(text) - len(last)
        if end < len(first) or not text.startswith(first) or not text.endswith(last):
            return False
        place = len(first)
        for piece in middle:
            place = text.find(piece, place, end)
            if place < 0:
                return False
            place += len(piece)
        return True

    return matches


def _by_regex(pieces: list[str], signs: list[str]) -> Matches:
    import re2

    parts = [re2.escape(pieces[0])]
    for sign, piece in zip(signs, pieces[1:], strict=True):
        parts += [".*" if sign == "%" else ".", re2.escape(piece)]
    expression = regex("".join(parts), dot_all=True)
    return charged(expression.fullmatch, expression.steps)
