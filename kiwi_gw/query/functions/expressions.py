"""Functions with regular expressions of RE2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kiwi_gw.query import patterns
from kiwi_gw.query.functions.base import Function
from kiwi_gw.query.functions.cost import MATCHES, Cost, Makes, Work
from kiwi_gw.query.functions.patterned import patterned
from kiwi_gw.query.patterns import PatternError, shown
from kiwi_gw.query.values import Value
from kiwi_gw.query.values.types import BOOLEAN, INT, STRING, Type


def _like(text: str, pattern: str) -> bool:
    return patterns.searcher(pattern)(text)


def _extract(text: str, pattern: str, group: int = 1) -> str:
    expression = patterns.regex(pattern)
    if not 0 <= group <= expression.groups:
        raise PatternError(f"the pattern {shown(pattern)} has no group {group}")
    found = patterns.first(pattern, text)
    return str(found.group(group) or "") if found is not None else ""


def _replace(text: str, pattern: str, new: str) -> str:
    return patterns.replace(text, pattern, new)


def _split(text: str, pattern: str, limit: int = -1) -> list[Value]:
    return patterns.split(text, pattern, limit)


def _substr(text: str, pattern: str) -> str | None:
    found = patterns.first(pattern, text)
    # A match of nothing is none, as in Spark.
    return str(found.group()) if found is not None and found.group() else None


def _instr(text: str, pattern: str) -> int:
    found = patterns.first(pattern, text)
    return 0 if found is None else int(found.start()) + 1


def _count(text: str, pattern: str) -> int:
    return sum(1 for _ in patterns.spans(pattern, text))


def _function(
    usage: str,
    wants: tuple[Type, ...],
    result: Type,
    call: Callable[..., Value],
    summary: str,
    cost: Cost,
    optional: int = 0,
) -> Function:
    """Its second argument is a pattern; what is constant is tried with an empty text."""
    kinds = [int if want == INT else str for want in wants[1:]]

    def trial(pattern: str, *others: Value) -> None:
        if not (call in (_like, _split) and patterns.is_plain(pattern)):
            patterns.regex(pattern)
        if all(map(isinstance, (pattern, *others), kinds)):
            call("", pattern, *others)

    return patterned(
        usage, wants, result, call, summary, pattern=1, trial=trial, optional=optional, cost=cost
    )


_S = STRING
_PART: Final = Cost(Makes.TEXT, Work.PATTERN)

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
        _replace,
        "every match by new; $1 in it is a group",
        Cost(Makes.TEXT, Work.PATTERN, factor=None),
    ),
    _function(
        "split(s, pattern[, limit])",
        (_S, _S, INT),
        Type("ARRAY", STRING),
        _split,
        "the pieces between the matches, at most limit",
        Cost(Makes.ITEMS, Work.PATTERN, plus=1),
        1,
    ),
    _function("regexp_count(s, pattern)", (_S, _S), INT, _count, "the number of matches", MATCHES),
    _function(
        "regexp_substr(s, pattern)",
        (_S, _S),
        STRING,
        _substr,
        "the first match; NULL: there is none",
        _PART,
    ),
    _function(
        "regexp_instr(s, pattern)",
        (_S, _S),
        INT,
        _instr,
        "the place of the first match; 0: there is none",
        MATCHES,
    ),
)
