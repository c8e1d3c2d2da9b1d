"""Functions with regular expressions of RE2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from kiwi_gw.query import patterns
from kiwi_gw.query.cpu_budget import check_pattern_work
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Function, typed
from kiwi_gw.query.functions.cost import MATCHES, FunctionCost, ResultKind, WorkGrowth
from kiwi_gw.query.limits import MAX_ITEMS, MAX_TEXT
from kiwi_gw.query.patterns import PatternError, shown
from kiwi_gw.query.values import RecordError, Value, check_count, check_length
from kiwi_gw.query.values.types import BOOLEAN, INT, STRING, Type

# Characters in all: in the worst case a search for all matches looks from each one to the end.
_STEPS: Final = 16_000_000


def _like(text: str, pattern: str) -> bool:
    return patterns.searcher(pattern)(text)


def _extract(text: str, pattern: str, group: int = 1) -> str:
    expression = patterns.regex(pattern)
    if not 0 <= group <= expression.groups:
        raise PatternError(f"the pattern {shown(pattern)} has no group {group}")
    found = _first(pattern, text)
    return str(found.group(group) or "") if found is not None else ""


def spans(pattern: str, text: str) -> Iterator[Any]:
    """Find all matches from left to right, as long as looking for them stays cheap.

    Raises:
        RecordError: so many matches in so long a text could take too long.
    """
    left = _STEPS
    expression = patterns.regex(pattern)
    check_pattern_work(expression.steps, len(text))
    for match in expression.finditer(text):
        left -= len(text) - match.start()
        if left < 0:
            raise RecordError("too many matches in too long a text")
        check_pattern_work(expression.steps, len(text) - match.start())
        yield match


def _first(pattern: str, text: str) -> Any:
    """Find the first match, or None. Raises RecordError: looking for it could take too long."""
    expression = patterns.regex(pattern)
    check_pattern_work(expression.steps, len(text))
    return expression.search(text)


def split(text: str, pattern: str, limit: int = -1) -> list[Value]:
    """Split as Java: at most `limit` pieces, if that is above 0; nothing empty before a first empty match."""
    if not pattern:
        count = limit if 0 < limit < len(text) else len(text)
        check_count(count)
        return [*text[: count - 1], text[count - 1 :]] if text else [""]
    if patterns.is_plain(pattern):
        if len(text) >= MAX_ITEMS:
            check_count(min(text.count(pattern) + 1, limit if limit > 0 else MAX_ITEMS + 1))
        return list(text.split(pattern, limit - 1 if limit > 0 else -1))
    pieces: list[Value] = []
    place = 0
    for match in spans(pattern, text):
        if 0 < limit <= len(pieces) + 1:
            break
        if match.end() == 0:
            continue
        pieces.append(text[place : match.start()])
        check_count(len(pieces) + 1)
        place = match.end()
    return [*pieces, text[place:]]


def replace(text: str, pattern: str, template: str) -> str:
    """Replace every match; `$1` in the template is a group, a backslash takes a sign as it is."""
    parts = _template(template, patterns.regex(pattern).groups)
    pieces: list[str] = []
    place = size = 0
    for match in spans(pattern, text):
        new = [part if isinstance(part, str) else match.group(part) or "" for part in parts]
        pieces += [text[place : match.start()], *new]
        size += match.start() - place + sum(map(len, new))
        check_length(size)
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


def _function(
    usage: str,
    wants: tuple[Type, ...],
    result: Type,
    call: Callable[..., Value],
    summary: str,
    cost: FunctionCost,
    optional: int = 0,
) -> Function:
    """Make a function whose second argument is a pattern; constants are tried with an empty text."""
    kinds = [int if want == INT else str for want in wants[1:]]

    def try_constants(arguments: Arguments) -> None:
        pattern, *others = (argument.constant for argument in arguments[1:])
        if not isinstance(pattern, str):
            return
        try:
            if not (call in (_like, split) and patterns.is_plain(pattern)):
                patterns.regex(pattern)
            if all(map(isinstance, (pattern, *others), kinds)):
                call("", pattern, *others)
        except PatternError as error:
            raise QueryError(str(error), arguments[1].position) from None
        except RecordError:
            pass  # what is wrong with a longer text, its records will say

    def evaluated(*arguments: Value) -> Value:
        try:
            return call(*arguments)
        except PatternError as error:
            raise RecordError(str(error)) from None

    return typed(usage, wants, result, evaluated, summary, optional=optional, tried=try_constants, cost=cost)


_S = STRING
_PART: Final = FunctionCost(ResultKind.TEXT, WorkGrowth.PATTERN)

FUNCTIONS: Final = (
    _function(
        "regexp_like(s, pattern)", (_S, _S), BOOLEAN, _like, "whether the pattern is in s, as RLIKE", MATCHES
    ),
    _function(
        "regexp_extract(s, pattern[, group])",
        (_S, _S, INT),
        STRING,
        _extract,
        "the group (1) of the first match; empty: there is none",
        _PART,
        1,
    ),
    _function(
        "regexp_replace(s, pattern, new)",
        (_S, _S, _S),
        STRING,
        replace,
        "every match by new; $1 in it is a group",
        FunctionCost(ResultKind.TEXT, WorkGrowth.PATTERN, factor=None),
    ),
    _function(
        "split(s, pattern[, limit])",
        (_S, _S, INT),
        Type("ARRAY", STRING),
        split,
        "the pieces between the matches, at most limit",
        FunctionCost(ResultKind.ITEMS, WorkGrowth.PATTERN, plus=1),
        1,
    ),
)
