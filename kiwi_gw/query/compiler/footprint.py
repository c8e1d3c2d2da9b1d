"""How many bytes a query keeps: its text, constants, code and the programs of its patterns.

An estimate, a little above what there is: what several queries share counts for each. A test compares it with
what the process takes. The tree is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import getsizeof
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from kiwi_gw.query.patterns import RegexPattern
from kiwi_gw.query.tree import Query

_COUNTED: Final = (
    *(dict, tuple, list, set, frozenset, str, bytes, int, float),
    *(FunctionType, CodeType, CellType),
)


def estimate(query: Query, loops: tuple[Callable[..., Any], ...]) -> dict[str, int]:
    """Estimate the bytes of a query and of the functions made for it, with all that is in their namespaces.
    They are returned by what they are: its text (its key, and that of its filter), its constants and code,
    its patterns."""
    spaces = [loop.__globals__ for loop in loops]
    text = getsizeof(query.key) + (0 if query.where is None else getsizeof(query.where.key))
    found = {"its text": text, "its constants and code": 0, "its patterns": 0}
    seen: set[int] = set()
    waiting: list[object] = [*loops, *spaces]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, RegexPattern):
            found["its patterns"] += one.bytes
        elif isinstance(one, _COUNTED):
            found["its constants and code"] += getsizeof(one)
            waiting += _inside(one, spaces)
    return found


def _inside(one: object, spaces: list[dict[str, Any]]) -> Iterable[object]:
    """List what an object keeps. Anything else in a namespace or a function is the gateway's own."""
    match one:
        case dict():
            return [*one, *(value for name, value in one.items() if name != "__builtins__")]
        case FunctionType():
            cells = one.__closure__ or ()
            own = [one.__code__] if any(one.__globals__ is namespace for namespace in spaces) else []
            return [*own, *cells, *(cell.cell_contents for cell in cells)]
        case CodeType():
            return [one.co_consts, one.co_names, one.co_varnames]
        case tuple() | list() | set() | frozenset():
            return one
    return ()
