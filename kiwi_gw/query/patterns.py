"""Patterns of strangers: LIKE, and regular expressions on RE2, which takes linear time whatever the pattern.

What is different from Java's: no look-around, no back references; `$` is the end of the text alone, `.` is
anything but a line feed; `(?i)` knows all of Unicode.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

from kiwi_gw.query.effort import heavy
from kiwi_gw.query.limits import (
    MAX_COUNTED,
    MAX_ITEMS,
    MAX_PATTERN,
    MAX_PROGRAM,
    MAX_PROGRAMS,
    MAX_TABLES,
    MAX_TEXT,
)
from kiwi_gw.query.recent import Recent
from kiwi_gw.query.values import RecordError, items, room

Matches = Callable[[str], bool]

# What RE2 may use for the program of a pattern and for the states that texts bring it into: a client has many
# patterns, and chooses them. A quarter of a program's room is all that one with a large program is left with,
# so it looks at a text more slowly.
_MEMORY: Final = 20 * 1024
_LEAN: Final = 8 * 1024
# Of the patterns of one query: beyond it they are lean.
_ROOM: Final = 32 * 1024
# A pattern's text and tree.
_A_CHARACTER: Final = 40
# Of patterns that no query holds.
_MOST_RECENT: Final = 1 << 20
# A search for all matches looks from each to the end in the worst case: so many characters in all.
_STEPS: Final = 16_000_000
_PLAIN: Final = frozenset(r".^$*+?()[]{}|\ ".strip())
# What RE2 multiplies, and what it has long tables for: either takes it milliseconds to give up.
_COUNTED: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}", re.ASCII)
_TABLES: Final = re.compile(r"\\[pP]|\[:\^")

_TOO_MANY: Final = "the patterns of the query make too large programs together"


class PatternError(Exception):
    """A pattern that cannot be used. The message says why."""


class Pattern:
    """A regular expression of RE2. steps: of its program. bytes: what it may come to hold."""

    __slots__ = ("__weakref__", "bytes", "finditer", "fullmatch", "groups", "search", "steps")

    def __init__(self, made: Any, size: int) -> None:
        self.search, self.fullmatch, self.finditer = made.search, made.fullmatch, made.finditer
        self.groups: int = made.groups
        self.steps: int = made.programsize
        self.bytes = size


class Held:
    """The patterns of the query that is being compiled."""

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, bool, bool], Pattern] = {}
        self.bytes = self.steps = 0

    def get(self, pattern: str, any_case: bool, dot_all: bool) -> Pattern:
        """
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
    held: Held | None = None


_compiling: Final = _Compiling()
_Key = tuple[str, bool, bool, int]
_in_use: Final[WeakValueDictionary[_Key, Pattern]] = WeakValueDictionary()
_recent: Final[Recent[Pattern]] = Recent(_MOST_RECENT)


@contextmanager
def one_query() -> Iterator[Held]:
    """In here patterns are those of one query: what they hold is counted together, and so are their steps, as
    making programs takes time. Whoever keeps what this gives keeps the patterns, too."""
    held = _compiling.held = Held()
    try:
        yield held
    finally:
        _compiling.held = None


def regex(pattern: str, *, any_case: bool = False, dot_all: bool = False) -> Pattern:
    """
    Raises:
        PatternError: RE2 has nothing for it, or its program would be too large.
    """
    held = _compiling.held
    if held is None:
        # For a record: the one that its query holds, whichever that is.
        found = _in_use.get((pattern, any_case, dot_all, _MEMORY))
        found = found or _in_use.get((pattern, any_case, dot_all, _LEAN))
        return found or _made(pattern, any_case, dot_all, _MEMORY)
    return held.get(pattern, any_case, dot_all)


def _made(pattern: str, any_case: bool, dot_all: bool, memory: int) -> Pattern:
    key = pattern, any_case, dot_all, memory
    found = _recent.get(key, memory + _A_CHARACTER * len(pattern), lambda: _compiled(*key))
    _in_use[key] = found
    return found


def _compiled(pattern: str, any_case: bool, dot_all: bool, memory: int) -> Pattern:
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
    return Pattern(found, room + _A_CHARACTER * len(written))


def _check(pattern: str, size: int) -> None:
    """
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
    """A pattern in a message."""
    return repr(pattern if len(pattern) <= 40 else pattern[:40] + "...")


def is_plain(pattern: str) -> bool:
    """Whether a regular expression means just itself; looking for it takes no program."""
    return len(pattern) <= MAX_TEXT and not _PLAIN.intersection(pattern)


def searcher(pattern: str, *, any_case: bool = False) -> Matches:
    """RLIKE: whether the pattern is anywhere in a text."""
    if not any_case and is_plain(pattern):
        return lambda text: pattern in text
    expression = regex(pattern, any_case=any_case)
    search, steps = expression.search, expression.steps

    def matches(text: str) -> bool:
        heavy(steps, len(text))
        return search(text.encode("utf-8", "surrogatepass")) is not None

    return matches


@lru_cache(maxsize=32)
def liker(pattern: str, escape: str = "\\") -> Matches:
    """LIKE: `%` is any run of characters, `_` is one; after the escape each is itself."""
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
    """What has no `_` needs no regular expression: the pieces come one after the other."""
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
    fullmatch, steps = expression.fullmatch, expression.steps

    def matches(text: str) -> bool:
        heavy(steps, len(text))
        return fullmatch(text.encode("utf-8", "surrogatepass")) is not None

    return matches


def spans(pattern: str, text: str) -> Iterator[Any]:
    """All matches from left to right, as long as looking for them stays cheap.

    Raises:
        RecordError: so many matches in so long a text could take too long.
    """
    left = _STEPS
    expression = regex(pattern)
    heavy(expression.steps, len(text))
    for match in expression.finditer(text):
        left -= len(text) - match.start()
        if left < 0:
            raise RecordError("too many matches in too long a text")
        heavy(expression.steps, len(text) - match.start())
        yield match


def first(pattern: str, text: str) -> Any:
    """The first match, or None. Raises RecordError: looking for it could take too long."""
    expression = regex(pattern)
    heavy(expression.steps, len(text))
    return expression.search(text)


def split(text: str, pattern: str, limit: int) -> list[object]:
    """As Java does: at most `limit` pieces, if that is above 0; nothing empty before a first empty match."""
    if not pattern:
        count = limit if 0 < limit < len(text) else len(text)
        items(count)
        return [*text[: count - 1], text[count - 1 :]] if text else [""]
    if is_plain(pattern):
        items(min(text.count(pattern) + 1, limit if limit > 0 else MAX_ITEMS + 1))
        return list(text.split(pattern, limit - 1 if limit > 0 else -1))
    pieces: list[object] = []
    place = 0
    for match in spans(pattern, text):
        if 0 < limit <= len(pieces) + 1:
            break
        if match.end() == 0:
            continue
        pieces.append(text[place : match.start()])
        items(len(pieces) + 1)
        place = match.end()
    return [*pieces, text[place:]]


def replace(text: str, pattern: str, template: str) -> str:
    """Every match replaced; `$1` in the template is a group, a backslash takes a sign as it is."""
    parts = _template(template, regex(pattern).groups)
    pieces: list[str] = []
    place = size = 0
    for match in spans(pattern, text):
        new = [part if isinstance(part, str) else match.group(part) or "" for part in parts]
        pieces += [text[place : match.start()], *new]
        size += match.start() - place + sum(map(len, new))
        room(size)
        place = match.end()
    pieces.append(text[place:])
    return "".join(pieces)


@lru_cache(maxsize=32)
def _template(template: str, groups: int) -> list[str | int]:
    if len(template) > MAX_TEXT:
        raise PatternError(f"a replacement of more than {MAX_TEXT} characters")
    parts: list[str | int] = [""]
    place = 0
    while place < len(template):
        character = template[place]
        place += 1
        if character == "\\" and place < len(template):
            character = template[place]
            place += 1
        elif character == "$":
            digits = 0
            while place + digits < len(template) and template[place + digits] in "0123456789":
                # One more digit counts if there is a group of that number, as in Java.
                if digits and int(template[place : place + digits + 1]) > groups:
                    break
                digits += 1
            if not digits or int(template[place : place + digits]) > groups:
                raise PatternError(f"the replacement {shown(template)} has no such group")
            parts += [int(template[place : place + digits]), ""]
            place += digits
            continue
        elif character == "\\":
            raise PatternError(f"the replacement {shown(template)} ends in a backslash")
        last = parts.pop()
        parts.append(f"{last}{character}")
    return parts
