"""Refuses expressions that would make Spark's memory theirs: texts that grow without a bound.

The gateway's own functions have one; Spark's have none, and its memory is that of all queries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Constant, FunctionCall, Literal, Node, walk

MAX_TIMES: Final = 100
"""How much longer `repeat`, or a character that is replaced, makes a text."""

_GROWING: Final = {"repeat": 1, "replace": 2, "regexp_replace": 2}
"""Functions whose results may be much longer than their first argument: which argument says how much."""


def check_growth(nodes: Iterable[Node]) -> None:
    """Raise QueryError, with the position, for a text that may be more than MAX_TIMES as long as a record."""
    for node in nodes:
        for each in walk(node):
            if isinstance(each, FunctionCall) and each.name in _GROWING:
                _check(each)


def _check(call: FunctionCall) -> None:
    for argument in call.arguments:
        for inner in walk(argument):
            if isinstance(inner, FunctionCall) and inner.name in _GROWING:
                raise QueryError(f"{inner.name} has no place in {call.name} here", inner.position)
    for times in call.arguments[_GROWING[call.name] :]:
        if not isinstance(times, Literal) or not _is_little(times.value, call.name):
            what = "number" if call.name == "repeat" else "text"
            wanted = f"a constant {what}, of {MAX_TIMES} at most"
            raise QueryError(f"the last argument of {call.name} is {wanted}", times.position)


def _is_little(value: Constant, name: str) -> bool:
    if name == "repeat":
        return type(value) is int and value <= MAX_TIMES
    return isinstance(value, str) and len(value) <= MAX_TIMES
