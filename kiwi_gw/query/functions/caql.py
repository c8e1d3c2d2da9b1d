"""The comparisons of CaQL. They know true and false and nothing else.

No value is made another type to be compared: `"5"` is not 5, and nothing is above or below a value of another
type; 1 and 1.0 are one number. A comparison with a member that is missing is false, `!=` and `not like` too;
one with null is a comparison with null.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from kiwi_gw.query.caql.patterns import searcher
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import VARIABLE, Argument, Arguments, Binding, Function
from kiwi_gw.query.functions.cost import FIXED, LOOKS, MATCHES
from kiwi_gw.query.patterns import Matches, PatternError
from kiwi_gw.query.values import MISSING, RecordError, Value
from kiwi_gw.query.values.types import BOOLEAN

Compare = Callable[[Any, Any], bool]


def _number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        return all(map(_same, left, right))
    if isinstance(left, dict):
        if not isinstance(right, dict) or left.keys() != right.keys():
            return False
        return all(_same(value, right[name]) for name, value in left.items())
    if type(left) is type(right) or (_number(left) and _number(right)):
        return bool(left == right)
    return False


def equal(left: Value, right: Value) -> bool:
    if left is MISSING or right is MISSING:
        return False
    try:
        return _same(left, right)
    except RecursionError:
        raise RecordError("two values that are nested too deeply to be compared") from None


def unequal(left: Value, right: Value) -> bool:
    return left is not MISSING and right is not MISSING and not equal(left, right)


def _ordered(compare: Compare) -> Compare:
    def ordered(left: Value, right: Value) -> bool:
        if (_number(left) and _number(right)) or (type(left) is str and type(right) is str):
            return compare(left, right)
        return False

    return ordered


_COMPARISONS: Final[dict[str, Compare]] = {
    "=": equal,
    "<>": unequal,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
}
_ORDERS: Final[dict[str, Compare]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _with_constant(sign: str, constant: Any) -> Compare:
    """Make the comparison with a constant on its right: most are, and these cost half."""
    if _number(constant):
        if sign in _ORDERS:
            compare = _ORDERS[sign]
            return lambda left, _: (type(left) is float or type(left) is int) and compare(left, constant)
        if sign == "=":
            return lambda left, _: type(left) is not bool and left == constant
    elif type(constant) is str:
        if sign in _ORDERS:
            compare = _ORDERS[sign]
            return lambda left, _: type(left) is str and compare(left, constant)
        if sign == "=":
            return lambda left, _: left == constant
        return lambda left, _: left is not MISSING and left != constant
    return _COMPARISONS[sign]


def _comparison(sign: str) -> Function:
    def bind(arguments: Arguments) -> Binding:
        constant = arguments[1].constant
        call = _COMPARISONS[sign] if constant is VARIABLE else _with_constant(sign, constant)
        return _binding(call, 2)

    return Function(f"caql.{sign}", (2, 2), "", "compares two values of one type", bind, cost=LOOKS)


def _pattern(word: str, *, negated: bool) -> Function:
    name = f"caql.{'not_' if negated else ''}{word}"

    def bind(arguments: Arguments) -> Binding:
        search = _search(word, arguments[1])
        if negated:
            return _binding(
                lambda value, _: value is not MISSING and not (type(value) is str and search(value)), 2
            )
        return _binding(lambda value, _: type(value) is str and search(value), 2)

    return Function(name, (2, 2), "", "looks for a regular expression, in any case", bind, cost=MATCHES)


def _search(word: str, argument: Argument) -> Matches:
    pattern = argument.constant
    if not isinstance(pattern, str):
        raise QueryError(f"{word} takes a text in quotes", argument.position)
    try:
        return searcher(word, pattern)
    except PatternError as error:
        raise QueryError(f"{word}: {error}", argument.position) from None


def _missing(_: Arguments) -> Binding:
    return _binding(lambda value: value is MISSING, 1)


def _binding(call: Callable[..., Value], arguments: int) -> Binding:
    return Binding(BOOLEAN, call, (None,) * arguments, strict=False, missing=True)


FUNCTIONS: Final = (
    *map(_comparison, _COMPARISONS),
    *(_pattern(word, negated=negated) for word in ("contains", "like") for negated in (False, True)),
    Function("caql.missing", (1, 1), "", "whether the record has no such member", _missing, cost=FIXED),
)
