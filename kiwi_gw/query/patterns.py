"""Regular expressions of clients, on RE2, which takes linear time whatever the pattern.

What is different from Java's: no look-around, no back references; `$` is the end of the text alone, `.` is
anything but a line feed; `(?i)` knows all of Unicode.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

from kiwi_gw.query.cpu_budget import check_pattern_work
from kiwi_gw.query.limits import (
    MAX_COUNTED,
    MAX_PATTERN,
    MAX_PROGRAM,
    MAX_PROGRAMS,
    MAX_TABLES,
    MAX_TEXT,
)
from kiwi_gw.query.weighted_lru import WeightedLru

Matches = Callable[[str], bool]

# Bytes that RE2 may use for the program of a pattern and for the states that texts bring it into: a client
# has many patterns, and chooses them. A large program leaves a quarter of that to the states, so its pattern
# looks at a text more slowly.
_MEMORY: Final = 20 * 1024
_LEAN: Final = 8 * 1024
# Of the patterns of one query: beyond it they are lean.
_ROOM: Final = 32 * 1024
# A pattern's text and tree.
_A_CHARACTER: Final = 40
# Of patterns that no query holds.
_MOST_RECENT: Final = 1 << 20
_PLAIN: Final = frozenset(r".^$*+?()[]{}|\ ".strip())
# Counts, which RE2 multiplies, and classes with long tables: with either it takes milliseconds to give up.
_COUNTED: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}", re.ASCII)
_TABLES: Final = re.compile(r"\\[pP]|\[:\^")

_TOO_MANY: Final = "the patterns of the query make too large programs together"


class PatternError(Exception):
    """Report a pattern that cannot be used. The message says why."""


class RegexPattern:
    """Hold a regular expression of RE2. steps: the size of its program. bytes: the most that it may hold."""

    __slots__ = ("__weakref__", "bytes", "finditer", "fullmatch", "groups", "search", "steps")

    def __init__(self, made: Any, size: int) -> None:
        self.search, self.fullmatch, self.finditer = made.search, made.fullmatch, made.finditer
        self.groups: int = made.groups
        self.steps: int = made.programsize
        self.bytes = size


class PatternSet:
    """Hold the patterns of the query that is being compiled."""

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, bool, bool], RegexPattern] = {}
        self.bytes = self.steps = 0

    def get(self, pattern: str, any_case: bool, dot_all: bool) -> RegexPattern:
        """Return the pattern, and count it.

        Raises:
            PatternError: it cannot be used, or not beside the others.
        """
        key = pattern, any_case, dot_all
        found = self.patterns.get(key)
        if found is None:
            memory = _LEAN if self.bytes + _MEMORY > _ROOM else _MEMORY
            found = self.patterns[key] = _in_use.get((*key, memory)) or _made(*key, memory)
            self.bytes += found.bytes
            self.steps += found.steps
        if self.steps > MAX_PROGRAMS:
            raise PatternError(_TOO_MANY)
        return found


class _Compiling(threading.local):
    held: PatternSet | None = None


_compiling: Final = _Compiling()
_Key = tuple[str, bool, bool, int]
_in_use: Final[WeakValueDictionary[_Key, RegexPattern]] = WeakValueDictionary()
_recent: Final[WeightedLru[RegexPattern]] = WeightedLru(_MOST_RECENT)


@contextmanager
def one_query() -> Iterator[PatternSet]:
    """Count the patterns that are made in the block as those of one query: what they hold, and their steps,
    as making programs takes time. The yielded set keeps the patterns."""
    held = _compiling.held = PatternSet()
    try:
        yield held
    finally:
        _compiling.held = None


def regex(pattern: str, *, any_case: bool = False, dot_all: bool = False) -> RegexPattern:
    """Return the pattern, made or shared.

    Raises:
        PatternError: RE2 does not support it, or its program would be too large.
    """
    held = _compiling.held
    if held is None:
        # For a record: the one that its query holds, whichever that is.
        found = _in_use.get((pattern, any_case, dot_all, _MEMORY))
        found = found or _in_use.get((pattern, any_case, dot_all, _LEAN))
        return found or _made(pattern, any_case, dot_all, _MEMORY)
    return held.get(pattern, any_case, dot_all)


def _made(pattern: str, any_case: bool, dot_all: bool, memory: int) -> RegexPattern:
    key = pattern, any_case, dot_all, memory
    found = _recent.get(key, memory + _A_CHARACTER * len(pattern), lambda: _compiled(*key))
    _in_use[key] = found
    return found


def _compiled(pattern: str, any_case: bool, dot_all: bool, memory: int) -> RegexPattern:
    import re2  # here: only queries with patterns pay for it

    written = pattern.encode("utf-8", "surrogatepass")
    _check(pattern, len(written))
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    options.case_sensitive = not any_case
    options.dot_nl = dot_all
    try:
        found = re2.compile(written, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it is not one of RE2's"
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if memory == _LEAN and "too large" in said:
            raise PatternError(_TOO_MANY) from None
        raise PatternError(f"the pattern {shown(pattern)} cannot be used: {said}") from None
    finally:
        re2.purge()  # it keeps the last 128 itself
    if found.programsize > MAX_PROGRAM:
        raise PatternError(f"the pattern {shown(pattern)} makes too large a program")
    # What is lean has no room for states.
    room = _MEMORY if memory == _MEMORY else _LEAN // 2
    return RegexPattern(found, room + _A_CHARACTER * len(written))


def _check(pattern: str, size: int) -> None:
    """Check the text of a pattern before RE2 sees it.

    Raises:
        PatternError: RE2 would take long to make a program of it, or to find that it cannot.
    """
    if size > MAX_PATTERN:
        raise PatternError(f"a pattern of more than {MAX_PATTERN} bytes")
    counted = sum(max(int(least), int(most or 0)) for least, most in _COUNTED.findall(pattern))
    if counted > MAX_COUNTED:
        raise PatternError(f"the pattern {shown(pattern)} cannot be used: it counts to {counted}")
    if len(_TABLES.findall(pattern)) > MAX_TABLES:
        raise PatternError(f"the pattern {shown(pattern)} has more than {MAX_TABLES} classes of characters")


def shown(pattern: str) -> str:
    """Write a pattern in a message."""
    return repr(pattern if len(pattern) <= 40 else pattern[:40] + "...")


def is_plain(pattern: str) -> bool:
    """Return whether a regular expression means just itself; looking for it takes no program."""
    return len(pattern) <= MAX_TEXT and not _PLAIN.intersection(pattern)


def searcher(pattern: str, *, any_case: bool = False) -> Matches:
    """Make an RLIKE: whether the pattern is anywhere in a text."""
    if not any_case and is_plain(pattern):
        return lambda text: pattern in text
    expression = regex(pattern, any_case=any_case)
    return charged(expression.search, expression.steps)


def charged(find: Callable[[bytes], object], steps: int) -> Matches:
    """Make the question whether a program of so many steps finds something in a text."""

    def matches(text: str) -> bool:
        check_pattern_work(steps, len(text))
        return find(text.encode("utf-8", "surrogatepass")) is not None

    return matches
