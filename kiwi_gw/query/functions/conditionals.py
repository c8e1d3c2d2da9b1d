"""Choices between values."""

from __future__ import annotations

import math
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function
from kiwi_gw.query.functions.cost import FIXED, LOOKS
from kiwi_gw.query.functions.operators import comparison
from kiwi_gw.query.values import Value, compare
from kiwi_gw.query.values.convert import to_double
from kiwi_gw.query.values.implicit_casts import conversion
from kiwi_gw.query.values.types import ANY, BOOLEAN, NULL, common


def _extreme(name: str, usage: str, sign: int, summary: str) -> Function:
    def bind(arguments: Arguments) -> Binding:
        met = common(tuple(argument.type for argument in arguments), promote=False)
        if met is None or not (met.atomic or met in (ANY, NULL)):
            listed = ", ".join(dict.fromkeys(str(argument.type) for argument in arguments))
            raise QueryError(f"{name} of {listed}: there is no type for all of them", arguments[0].position)
        wants = tuple(None if met in (ANY, NULL, each.type) else met for each in arguments)

        def call(*values: Value) -> Value:
            best: Value = None
            for value in values:
                if value is None:
                    continue
                if isinstance(value, list | dict):
                    return None  # they have no order, also alone
                if best is None:
                    best = value
                    continue
                if isinstance(value, str) is not isinstance(best, str):
                    return None
                found = compare.order(value, best)
                if found is None:
                    return None
                if found == sign:
                    best = value
            # Numbers meet in the wider type, whichever is chosen.
            return float(best) if type(best) is int and any(type(each) is float for each in values) else best

        return Binding(met, call, wants, strict=False)

    return Function(name, (2, None), usage, summary, bind, cost=LOOKS)


_EQUALITY: Final = comparison("nullif", compare.same)


def _nullif(arguments: Arguments) -> Binding:
    """Compare as `=` does, in the type of both; the result is the first as it was."""
    assert _EQUALITY.bind is not None  # noqa: S101
    equality = _EQUALITY.bind(arguments)
    casts = [
        conversion(argument.type, want) if want is not None else _as_it_is
        for argument, want in zip(arguments, equality.wants, strict=True)
    ]

    def call(value: Value, against: Value) -> Value:
        if value is None or against is None:
            return value
        same = equality.call(casts[0](value), casts[1](against))
        # None: they cannot be compared, which Spark refuses but for two arrays or objects.
        return None if same or (same is None and type(value) is not type(against)) else value

    return Binding(arguments[0].type, call, (None, None), strict=False)


def _as_it_is(value: Value) -> Value:
    return value


def _isnan(arguments: Arguments) -> Binding:
    return Binding(BOOLEAN, _is_nan, (None,), strict=False)


def _is_nan(value: Value) -> bool:
    number = None if value is None else to_double(value)
    return number is not None and math.isnan(number)


FUNCTIONS: Final = (
    Function("case", (2, None), "", "", cost=FIXED),
    Function("if", (3, 3), "if(condition, x, y)", "x where the condition is true, else y", cost=FIXED),
    Function("coalesce", (1, None), "coalesce(x, ...)", "the first that is not NULL", cost=FIXED),
    Function("ifnull", (2, 2), "ifnull(x, y)", "y where x is NULL", cost=FIXED),
    Function("nvl", (2, 2), "nvl(x, y)", "y where x is NULL", cost=FIXED),
    Function("nullif", (2, 2), "nullif(x, y)", "NULL where x = y, else x", _nullif, cost=LOOKS),
    Function("isnan", (1, 1), "isnan(x)", "whether a number is NaN", _isnan, cost=LOOKS),
    _extreme("greatest", "greatest(x, y, ...)", 1, "the largest; NULLs do not count"),
    _extreme("least", "least(x, y, ...)", -1, "the smallest; NULLs do not count"),
)
