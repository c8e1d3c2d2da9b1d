"""The functions and operators of queries, by their canonical names."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Function
from kiwi_gw.query.functions.unsupported import reason

_MODULES: Final = (
    *("caql", "conditionals", "containers", "dates", "json_text", "numbers", "operators"),
    *("regular_expressions", "strings"),
)


@cache
def modules() -> dict[str, tuple[Function, ...]]:
    """Return the functions by module. The modules are imported with the first query."""
    return {name: import_module(f"{__name__}.{name}").FUNCTIONS for name in _MODULES}


@cache
def registry() -> dict[str, Function]:
    """Return every function and operator by its name."""
    return {function.name: function for listed in modules().values() for function in listed}


def function(name: str, position: int | None = None) -> Function:
    """Find a function or operator.

    Raises:
        QueryError: there is none of that name. It says where the name belongs, if it is one elsewhere.
    """
    found = registry().get(name)
    if found is None:
        raise QueryError(reason(name), position)
    return found
