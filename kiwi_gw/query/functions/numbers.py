"""Functions on numbers. What Java's mathematics calls NaN is NaN here, and not an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.functions.cost import LOOKS, Cost, Makes, Work
from kiwi_gw.query.functions.operators import arithmetical
from kiwi_gw.query.values import Value, arithmetic, convert
from kiwi_gw.query.values.roots import cube_root
from kiwi_gw.query.values.types import ANY, BIGINT, BITS, DOUBLE, FLOAT, INT, NULL, STRING

_EXACTLY: Final = Context(prec=800)


def _quiet(call: Callable[..., float]) -> Callable[..., float]:
    """The function of `math`, with Java's answers where it has none."""

    def answered(*arguments: float) -> float:
        try:
            return call(*arguments)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return answered


def _atan2(y: float, x: float) -> float:
    """Of 0.0 where there is -0.0."""
    return math.atan2(y + 0.0, x + 0.0)


def _real(usage: str, call: Callable[..., float], summary: str, count: int = 1) -> Function:
    return plain(usage, (DOUBLE,) * count, DOUBLE, _quiet(call), summary)


def _logarithm(call: Callable[[float], float], above: float = 0.0) -> Callable[[float], float | None]:
    """NULL, and not NaN, for what has none."""
    return lambda number: None if number <= above else call(number)


_ln = _logarithm(math.log)


def _log(one: float, other: float | None = None) -> float | None:
    """Natural, or the second argument's to the base of the first."""
    if other is None:
        return _ln(one)
    if one <= 0 or other <= 0:
        return None
    below = math.log(one)
    above = math.log(other)
    return (
        above / below
        if below
        else math.nan
        if above == 0 or above != above
        else math.copysign(math.inf, above)
    )


def power(base: float, exponent: float) -> float:
    """As Math.pow."""
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


def _rounder(name: str, usage: str, summary: str, mode: str) -> Function:
    """round and bround: the type stays; a scale below 0 rounds to tens, hundreds and so on."""

    def call(value: Value, scale: int = 0) -> Value:
        number = arithmetic.number(value)
        if type(number) is int:
            if scale >= 0:
                return number
            if scale < -20:
                return 0
            return convert.wrap(int(_scaled(Decimal(number), scale, mode)))
        if number is None or not math.isfinite(number) or scale > 330:
            return number
        if scale < -330:
            return 0.0
        # As the digits that it is written with say, and not the last bit.
        return float(_scaled(Decimal(repr(number)), scale, mode)) + 0.0

    def bind(arguments: Arguments) -> Binding:
        type_ = DOUBLE if arguments[0].type == STRING else arguments[0].type
        if not (type_.numeric or type_ in (ANY, NULL)):
            raise QueryError(f"{name} of {type_} is not possible", arguments[0].position)
        first = DOUBLE if arguments[0].type == STRING else None
        wants = (first, *(None if each.type == INT else INT for each in arguments[1:]))
        bits = BITS.get(type_.kind, 64)
        if type_ == FLOAT:
            return Binding(FLOAT, lambda *values: convert.to_float(call(*values)), wants)
        if bits < 64:

            def narrow(*values: Value) -> Value:
                found = call(*values)  # type: ignore[arg-type]
                return convert.wrap(found, bits) if type(found) is int else found

            return Binding(type_, narrow, wants)
        return Binding(type_, call, wants)

    return Function(name, (1, 2), usage, summary, bind, cost=LOOKS)


def _scaled(number: Decimal, scale: int, mode: str) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-scale), rounding=mode, context=_EXACTLY)


def _rint(number: float) -> float:
    return math.copysign(float(round(number)), number) if math.isfinite(number) else number


def _whole(name: str, call: Callable[[float], int], summary: str) -> Function:
    """floor and ceil: BIGINT, which stops at its ends."""

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
    _rounder("round", "round(x[, digits])", "rounded; halves go away from 0", ROUND_HALF_UP),
    _rounder("bround", "bround(x[, digits])", "rounded; halves go to the even digit", ROUND_HALF_EVEN),
    plain("sign(x)", (DOUBLE,), DOUBLE, _sign, "-1.0, 0.0 or 1.0"),
    plain("signum(x)", (DOUBLE,), DOUBLE, _sign, "-1.0, 0.0 or 1.0"),
    _real("sqrt(x)", math.sqrt, "the square root; NaN below 0"),
    _real("cbrt(x)", cube_root, "the cube root"),
    _real("exp(x)", math.exp, "e to the power of x"),
    _real("expm1(x)", math.expm1, "that less 1"),
    plain("ln(x)", (DOUBLE,), DOUBLE, _ln, "the natural logarithm; NULL for x <= 0"),
    plain(
        "log([base, ]x)", (DOUBLE, DOUBLE), DOUBLE, _log, "the logarithm, natural without a base", optional=1
    ),
    plain("log10(x)", (DOUBLE,), DOUBLE, _logarithm(math.log10), "the logarithm to base 10"),
    plain("log2(x)", (DOUBLE,), DOUBLE, _logarithm(math.log2), "the logarithm to base 2"),
    plain("log1p(x)", (DOUBLE,), DOUBLE, _logarithm(math.log1p, -1.0), "the natural logarithm of x + 1"),
    plain("power(x, y)", (DOUBLE, DOUBLE), DOUBLE, power, "x to the power of y"),
    plain("pow(x, y)", (DOUBLE, DOUBLE), DOUBLE, power, "x to the power of y"),
    _real("sin(x)", math.sin, "the sine"),
    _real("cos(x)", math.cos, "the cosine"),
    _real("tan(x)", math.tan, "the tangent"),
    _real("asin(x)", math.asin, "the angle of a sine"),
    _real("acos(x)", math.acos, "the angle of a cosine"),
    _real("atan(x)", math.atan, "the angle of a tangent"),
    _real("atan2(y, x)", _atan2, "the angle of a point", 2),
    _real("degrees(x)", math.degrees, "radians in degrees"),
    _real("radians(x)", math.radians, "degrees in radians"),
    _real("hypot(x, y)", math.hypot, "the length of a hypotenuse", 2),
    arithmetical("mod", arithmetic.modulo, "mod(x, y)", "the remainder of x / y, as x % y"),
    arithmetical("pmod", arithmetic.positive_modulo, "pmod(x, y)", "the remainder, not below 0"),
    plain("rint(x)", (DOUBLE,), DOUBLE, _rint, "the nearest whole number; halves go to the even one"),
    plain(
        "bin(n)",
        (BIGINT,),
        STRING,
        lambda number: f"{number & (1 << 64) - 1:b}",
        "in binary digits",
        cost=Cost(Makes.TEXT, Work.CONSTANT, factor=0, plus=64),
    ),
    plain("pi()", (), DOUBLE, lambda: math.pi, "the number"),
    plain("e()", (), DOUBLE, lambda: math.e, "the number"),
)
