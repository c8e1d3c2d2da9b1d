"""Finds out which records need be read: what a condition says of their place and time.

Only terms that AND joins to all others count, and only comparisons with whole numbers: what any of them does
not let pass, the condition does not. They stay in the condition: too much may be read, never too little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kiwi_gw.dialects.lenses.sql.directives import terms_of
from kiwi_gw.dialects.lenses.sql.statement import Narrowed
from kiwi_gw.query.tree import Constant, FunctionCall, Literal, Node, Path

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARED: Final = ("=", "<=>", *_MIRRORED)


def narrowed(where: Node | None, prefix: str = "") -> Narrowed:
    """Return what need be read for a condition; None: there is none. prefix: of the roots of the paths that
    count, see `GroupedStatement`."""
    places: dict[str, _Range] = {root: _Range() for root in ("offset", "timestamp", "partition")}
    for term in () if where is None else terms_of(where):
        found = _comparison(term, prefix)
        if found is not None:
            root, name, values = found
            places[root].restrict(name, values)
    offset, time = places["offset"], places["timestamp"]
    return Narrowed(offset.first, offset.last, time.first, time.last, places["partition"].numbers)


class _Range:
    """The whole numbers that some terms let pass. numbers: only these, of those that are listed; None: no
    term lists any."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.listed: frozenset[int] | None = None

    @property
    def numbers(self) -> frozenset[int] | None:
        if self.listed is None:
            return None
        first, last = self.first, self.last
        return frozenset(n for n in self.listed if n >= max(0, first or 0) and (last is None or n <= last))

    def restrict(self, name: str, values: Sequence[int]) -> None:
        match name:
            case "<":
                self._below(values[0] - 1)
            case "<=":
                self._below(values[0])
            case ">":
                self._above(values[0] + 1)
            case ">=":
                self._above(values[0])
            case "between":
                self._above(values[0])
                self._below(values[1])
            case _:
                self._above(min(values))
                self._below(max(values))
                some = frozenset(values)
                self.listed = some if self.listed is None else self.listed & some

    def _above(self, number: int) -> None:
        self.first = number if self.first is None else max(self.first, number)

    def _below(self, number: int) -> None:
        self.last = number if self.last is None else min(self.last, number)


def _comparison(term: Node, prefix: str) -> tuple[str, str, list[int]] | None:
    """Take a comparison apart: the root, the operator as if the root were on its left, the numbers."""
    if not isinstance(term, FunctionCall):
        return None
    name, arguments = term.name, term.arguments
    if name in _COMPARED and isinstance(arguments[0], Literal):
        name, arguments = _MIRRORED.get(name, name), arguments[::-1]
    if name not in (*_COMPARED, "in", "between"):
        return None
    numbers = [_number(each) for each in arguments[1:]]
    path, known = arguments[0], [each for each in numbers if each is not None]
    if not isinstance(path, Path) or path.steps or len(known) != len(numbers):
        return None
    root = path.root.removeprefix(prefix)
    return (root, name, known) if root in _PLACES else None


_PLACES: Final = ("offset", "timestamp", "partition")


def _number(node: Node) -> int | None:
    value: Constant = node.value if isinstance(node, Literal) else None
    return value if type(value) is int else None
