"""What topics mean, as plainly as it can be said: one level after the other, every choice tried.

For patterns that Python's `re` understands as RE2 does, and texts without quotes.
"""

from __future__ import annotations

import fnmatch
import re


def slowly(pattern: str, concrete: str) -> bool:
    """Whether a pattern without a query means the concrete topic."""
    return _levels(_split(pattern), concrete.split("/"))


def _levels(pattern: list[str], concrete: list[str]) -> bool:
    if not pattern:
        return not concrete
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        if not rest:
            return len(concrete) >= 1
        return any(_levels(rest, concrete[taken:]) for taken in range(len(concrete) + 1))
    return bool(concrete) and _level(first, concrete[0]) and _levels(rest, concrete[1:])


def _level(pattern: str, name: str) -> bool:
    if pattern.startswith("{"):
        return re.search(pattern[1:-1], name) is not None
    return fnmatch.fnmatchcase(name, pattern)


def _split(pattern: str) -> list[str]:
    levels, inside = [""], 0
    for character in pattern:
        inside += {"{": 1, "}": -1}.get(character, 0)
        if character == "/" and not inside:
            levels.append("")
        else:
            levels[-1] += character
    return levels
