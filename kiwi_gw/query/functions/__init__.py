"""The functions and operators of queries, by their canonical names.

A room (a module of this package) has a tuple `FUNCTIONS`; whatever lies here is found.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Function
from kiwi_gw.query.functions.elsewhere import reason


@cache
def rooms() -> dict[str, tuple[Function, ...]]:
    """The functions by their rooms, in the order of the rooms' names."""
    found: dict[str, tuple[Function, ...]] = {}
    for module in iter_modules(__path__):
        functions = getattr(import_module(f"{__name__}.{module.name}"), "FUNCTIONS", None)
        if functions is not None:
            found[module.name] = functions
    return found


@cache
def registry() -> dict[str, Function]:
    """Every function and operator."""
    return {function.name: function for room in rooms().values() for function in room}


def function(name: str, position: int | None = None) -> Function:
    """
    Raises:
        QueryError: there is none of that name; it says where it belongs, if it does somewhere.
    """
    found = registry().get(name)
    if found is None:
        raise QueryError(reason(name), position)
    return found
