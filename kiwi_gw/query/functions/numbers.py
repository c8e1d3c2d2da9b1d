"""Functions on numbers. What Java's mathematics calls NaN is NaN here, and not an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, typed
from kiwi_gw.query.functions.cost import LOOKS
from kiwi_gw.query.functions.operators import arithmetical, narrowed
from kiwi_gw.query.values import Value, arithmetic, convert
from kiwi_gw.query.values.types import ANY, BIGINT, DOUBLE, INT, NULL, STRING

_EXACTLY: Final = Context(prec=800)


def _quiet(call: Callable[..., float]) -> Callable[..., float]:
    """Give a function of `math` Java's answers where it has none."""

    def answered(*arguments: float) -> float:
        try:
            return call(*arguments)
        except ValueError:
            return math.nan

    return answered


def _atan2(y: float, x: float) -> float:
    """Return the angle of a point, with 0.0 for -0.0."""
    return math.atan2(y + 0.0, x + 0.0)


def _real(usage: str, call: Callable[..., float], summary: str, count: int = 1) -> Function:
    return typed(usage, (DOUBLE,) * count, DOUBLE, _quiet(call), summary)


def power(base: float, exponent: float) -> float:
    """Raise to a power, as Java's Math.pow."""
    if abs(base) == 1 and (math.isinf(exponent) or exponent != exponent):
        return math.nan
    if base == 1 and exponent != exponent:
        return math.nan
    odd = math.isfinite(exponent) and exponent == int(exponent) and int(exponent) % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:
            return -math.inf if math.copysign(1, base) < 0 and odd else math.inf
        return math.nan


def _sign(number: float) -> float:
    return number if number == 0 or number != number else math.copysign(1.0, number)


def _round(value: Value, scale: int = 0) -> Value:
    """Round as Spark does: the type stays. A scale below 0 rounds to tens, hundreds and so on."""
    number = arithmetic.number(value)
    if type(number) is int:
        if scale >= 0:
            return number
        return 0 if scale < -20 else convert.wrap(int(_scaled(Decimal(number), scale)))
    if number is None or not math.isfinite(number) or scale > 330:
        return number
    if scale < -330:
        return 0.0
    # As the digits that it is written with say, and not the last bit.
    return float(_scaled(Decimal(repr(number)), scale)) + 0.0


def _scaled(number: Decimal, scale: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_EXACTLY)


def _bind_round(arguments: Arguments) -> Binding:
    type_ = DOUBLE if arguments[0].type == STRING else arguments[0].type
    if not (type_.numeric or type_ in (ANY, NULL)):
        raise QueryError(f"round of {type_} is not possible", arguments[0].position)
    first = DOUBLE if arguments[0].type == STRING else None
    wants = (first, *(None if each.type == INT else INT for each in arguments[1:]))
    return Binding(type_, narrowed(_round, type_), wants)


def _whole(name: str, call: Callable[[float], int], summary: str) -> Function:
    """Make floor or ceil: BIGINT, which stops at its ends."""

    def answered(value: Value) -> int | None:
        number = arithmetic.number(value)
        if type(number) is float:
            return convert.to_bigint(float(call(number)) if math.isfinite(number) else number)
        return number if type(number) is int else None

    def bind(arguments: Arguments) -> Binding:
        (argument,) = arguments
        if not (argument.type.numeric or argument.type in (ANY, NULL, STRING)):
            raise QueryError(f"{name} of {argument.type} is not possible", argument.position)
        return Binding(BIGINT, answered, (None,))

    return Function(name, (1, 1), f"{name}(x)", summary, bind, cost=LOOKS)


FUNCTIONS: Final = (
    _whole("ceil", math.ceil, "the next whole number above"),
    _whole("ceiling", math.ceil, "the next whole number above"),
    _whole("floor", math.floor, "the next whole number below"),
    Function(
        "round", (1, 2), "round(x[, digits])", "rounded; halves go away from 0", _bind_round, cost=LOOKS
    ),
    typed("sign(x)", (DOUBLE,), DOUBLE, _sign, "-1.0, 0.0 or 1.0"),
    _real("sqrt(x)", math.sqrt, "the square root; NaN below 0"),
    typed("power(x, y)", (DOUBLE, DOUBLE), DOUBLE, power, "x to the power of y"),
    typed("pow(x, y)", (DOUBLE, DOUBLE), DOUBLE, power, "x to the power of y"),
    _real("sin(x)", math.sin, "the sine"),
    _real("cos(x)", math.cos, "the cosine"),
    _real("asin(x)", math.asin, "the angle of a sine"),
    _real("acos(x)", math.acos, "the angle of a cosine"),
    _real("atan2(y, x)", _atan2, "the angle of a point", 2),
    _real("radians(x)", math.radians, "degrees in radians"),
    arithmetical("mod", arithmetic.modulo, "mod(x, y)", "the remainder of x / y, as x % y"),
    arithmetical("pmod", arithmetic.positive_modulo, "pmod(x, y)", "the remainder, not below 0"),
    typed("pi()", (), DOUBLE, lambda: math.pi, "the number"),
)
