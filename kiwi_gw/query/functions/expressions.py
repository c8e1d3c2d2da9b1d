"""Functions with regular expressions of RE2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kiwi_gw.query import patterns
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.patterns import PatternError, shown
from kiwi_gw.query.types import BOOLEAN, INT, STRING, Type
from kiwi_gw.query.values import RecordError, Value, bounded


def _like(text: str, pattern: str) -> bool:
    return patterns.searcher(pattern)(text)


def _extract(text: str, pattern: str, group: int = 1) -> str:
    expression = patterns.regex(pattern)
    if not 0 <= group <= expression.groups:
        raise PatternError(f"the pattern {shown(pattern)} has no group {group}")
    found = patterns.first(pattern, text)
    return bounded(found.group(group) or "") if found is not None else ""


def _replace(text: str, pattern: str, new: str) -> str:
    return bounded(patterns.replace(text, pattern, new))


def _split(text: str, pattern: str, limit: int = -1) -> list[Value]:
    return patterns.split(text, pattern, limit)


def _substr(text: str, pattern: str) -> str | None:
    found = patterns.first(pattern, text)
    # A match of nothing is none, as in Spark.
    return bounded(found.group()) if found is not None and found.group() else None


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
    optional: int = 0,
) -> Function:
    """Its second argument is a pattern; what is constant is tried at once."""

    def told(*arguments: Value) -> Value:
        try:
            return call(*arguments)
        except PatternError as error:
            raise RecordError(str(error)) from None

    made = plain(usage, wants, result, told, summary, optional=optional)
    plainly = made.bind

    def bind(arguments: Arguments) -> Binding:
        if plainly is None:
            raise TypeError(usage)
        pattern = arguments[1]
        if isinstance(pattern.constant, str):
            constants = [argument.constant for argument in arguments[1:]]
            try:
                patterns.regex(pattern.constant)
                if all(
                    isinstance(constant, kind)
                    for constant, kind in zip(constants, _kinds(wants), strict=False)
                ):
                    call("", *constants)
            except PatternError as error:
                raise QueryError(str(error), pattern.position) from None
            except RecordError:
                pass  # what is wrong with a longer text, its records will say
        return plainly(arguments)

    return Function(made.name, made.arguments, usage, summary, bind, wants, result)


def _kinds(wants: tuple[Type, ...]) -> list[type]:
    return [int if want == INT else str for want in wants[1:]]


_S = STRING

FUNCTIONS: Final = (
    _function("regexp_like(s, pattern)", (_S, _S), BOOLEAN, _like, "whether the pattern is in s, as RLIKE"),
    _function(
        "regexp_extract(s, pattern[, group])",
        (_S, _S, INT),
        STRING,
        _extract,
        "the group (1) of the first match; empty: there is none",
        1,
    ),
    _function(
        "regexp_replace(s, pattern, new)",
        (_S, _S, _S),
        STRING,
        _replace,
        "every match by new; $1 in it is a group",
    ),
    _function(
        "split(s, pattern[, limit])",
        (_S, _S, INT),
        Type("ARRAY", STRING),
        _split,
        "the pieces between the matches, at most limit",
        1,
    ),
    _function("regexp_count(s, pattern)", (_S, _S), INT, _count, "the number of matches"),
    _function("regexp_substr(s, pattern)", (_S, _S), STRING, _substr, "the first match; NULL: there is none"),
    _function(
        "regexp_instr(s, pattern)", (_S, _S), INT, _instr, "the place of the first match; 0: there is none"
    ),
)
