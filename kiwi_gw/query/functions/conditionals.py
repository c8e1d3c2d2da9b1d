"""Choices between values."""

from __future__ import annotations

import math
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function
from kiwi_gw.query.functions.cost import FIXED, LOOKS
from kiwi_gw.query.values import Value, compare
from kiwi_gw.query.values.convert import to_double
from kiwi_gw.query.values.types import ANY, BOOLEAN, DOUBLE, NULL, common, compared


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


def _nullif(arguments: Arguments) -> Binding:
    one, other = arguments
    met = compared(one.type, other.type)
    if met is None:
        raise QueryError(f"{one.type} and {other.type} cannot be compared by nullif", one.position)

    def call(value: Value, against: Value) -> Value:
        return None if value is None or (against is not None and compare.eq(value, against)) else value

    return Binding(one.type, call, (None, None), strict=False)


def _isnan(arguments: Arguments) -> Binding:
    return Binding(BOOLEAN, _is_nan, (None,), strict=False)


def _is_nan(value: Value) -> bool:
    number = None if value is None else to_double(value)
    return number is not None and math.isnan(number)


def _nanvl(arguments: Arguments) -> Binding:
    wants = tuple(None if argument.type == DOUBLE else DOUBLE for argument in arguments)
    return Binding(DOUBLE, lambda one, other: other if one is not None and one != one else one, wants, False)


FUNCTIONS: Final = (
    Function("case", (2, None), "", "", cost=FIXED),
    Function("if", (3, 3), "if(condition, x, y)", "x where the condition is true, else y", cost=FIXED),
    Function("coalesce", (1, None), "coalesce(x, ...)", "the first that is not NULL", cost=FIXED),
    Function("ifnull", (2, 2), "ifnull(x, y)", "y where x is NULL", cost=FIXED),
    Function("nvl", (2, 2), "nvl(x, y)", "y where x is NULL", cost=FIXED),
    Function("nvl2", (3, 3), "nvl2(x, y, z)", "y where x is not NULL, else z", cost=FIXED),
    Function("nullif", (2, 2), "nullif(x, y)", "NULL where x = y, else x", _nullif, cost=LOOKS),
    Function("isnan", (1, 1), "isnan(x)", "whether a number is NaN", _isnan, cost=LOOKS),
    Function("nanvl", (2, 2), "nanvl(x, y)", "y where x is NaN", _nanvl, cost=LOOKS),
    _extreme("greatest", "greatest(x, y, ...)", 1, "the largest; NULLs do not count"),
    _extreme("least", "least(x, y, ...)", -1, "the smallest; NULLs do not count"),
)
