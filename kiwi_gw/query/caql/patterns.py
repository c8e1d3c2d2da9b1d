"""The patterns of CaQL: `contains` and `like` are regular expressions, in any case, not anchored."""

from __future__ import annotations

from kiwi_gw.query.patterns import Matches, regex
from kiwi_gw.query.patterns import searcher as regex_searcher


def searcher(word: str, pattern: str) -> Matches:
    """Make what `contains` or `like` does with a text. Raises `kiwi_gw.query.patterns.PatternError`."""
    return regex_searcher(like(pattern) if word == "like" else pattern, any_case=True)


def steps(word: str, pattern: str) -> int:
    """Count the steps of the pattern's program: the time to make it grows with them. Raises PatternError."""
    return regex(like(pattern) if word == "like" else pattern, any_case=True).steps


def like(pattern: str) -> str:
    """Make the regular expression that `like` means: every `%` that is neither escaped nor one of a class
    (`[%]`) is any run of characters."""
    parts: list[str] = []
    index, in_class = 0, False
    while index < len(pattern):
        here = pattern[index]
        step = 1
        if here == "\\":
            step = 2
        elif in_class:
            in_class = here != "]"
        elif here == "[":
            in_class = True
            # A bracket that stands first in a class is one of its characters.
            step = 1 + pattern.startswith("^", index + 1)
            step += pattern.startswith("]", index + step)
        parts.append("(?s:.*)" if here == "%" and not in_class else pattern[index : index + step])
        index += step
    return "".join(parts)
