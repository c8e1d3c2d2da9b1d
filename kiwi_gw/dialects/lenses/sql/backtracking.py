"""Refuses patterns that would take Spark for ever.

Spark's patterns are Java's, which try one way after the other: where a repetition is in another, or many
follow each other, 40 characters may take years, and nothing stops a thread that is at it. The gateway's own
are RE2's, which takes the same time for every text. So patterns of a statement for Spark are constants,
without a repetition or a choice in what is repeated, and with few repetitions. A client that also writes long
texts can still make it slow: the square of their length, and more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import FunctionCall, Literal, Node, walk

MAX_REPETITIONS: Final = 4
"""Of one pattern: `*`, `+`, `?`, `{2,5}`; `%` of LIKE."""

_MATCHED: Final = frozenset(("rlike", "regexp_like", "regexp_extract", "regexp_replace", "split"))
_LIKES: Final = frozenset(("like", "ilike"))
_PIECE: Final = re.compile(
    r"""(?P<literal>\\Q.*?(?:\\E|$))
    |(?P<escape>\\.)
    |(?P<class>\[\^?\]?(?:\[:\^?\w*:\]|\\.|[^\]\\])*\])
    |(?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:?))?)
    |(?P<close>\))
    |(?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)


def check_patterns(nodes: Iterable[Node]) -> None:
    """Raise QueryError for a pattern in trees that may take for ever, with the position."""
    for node in nodes:
        for each in walk(node):
            if isinstance(each, FunctionCall) and each.name in _MATCHED | _LIKES and len(each.arguments) > 1:
                _check(each.name, each.arguments[1])


def _check(name: str, pattern: Node) -> None:
    if not isinstance(pattern, Literal):
        raise QueryError(f"the pattern of {name} is a constant here", pattern.position)
    if not isinstance(pattern.value, str):
        return
    wrong = _of_like(pattern.value) if name in _LIKES else _of_expression(pattern.value)
    if wrong:
        raise QueryError(wrong, pattern.position)


def _of_like(pattern: str) -> str:
    return "" if len(re.findall("%+", pattern)) <= MAX_REPETITIONS else _too_many("%")


def _of_expression(pattern: str) -> str:
    """Say what is wrong with a regular expression that RE2 takes; empty: nothing."""
    count = 0
    varies = [False]
    """Of what is open: whether its length may vary, or its way."""
    last = False
    """The same of what was closed just before."""
    for piece in _PIECE.finditer(pattern):
        kind, closed, last = piece.lastgroup, last, False
        if kind == "open":
            varies.append(False)
        elif kind == "close" and len(varies) > 1:
            last = varies.pop()
            varies[-1] = varies[-1] or last
        elif kind == "repeat":
            if closed and piece[0][0] != "?":
                return "a pattern here repeats nothing that has a repetition or a choice in itself"
            count += not re.fullmatch(r"\{\d+\}[?+]?", piece[0])
            varies[-1] = True
        elif piece[0] == "|":
            varies[-1] = True
    return "" if count <= MAX_REPETITIONS else _too_many("repetitions")


def _too_many(what: str) -> str:
    return f"a pattern here has no more than {MAX_REPETITIONS} {what}"
