"""Operators: comparisons, arithmetic, LIKE and IN, and those that the compiler writes out itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kiwi_gw.query import patterns
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import VARIABLE, Arguments, Binding, Function
from kiwi_gw.query.functions.cost import FIXED, LOOKS, MATCHES
from kiwi_gw.query.like_patterns import liker
from kiwi_gw.query.patterns import PatternError
from kiwi_gw.query.values import RecordError, Value, arithmetic, compare, convert
from kiwi_gw.query.values.convert import wrap
from kiwi_gw.query.values.types import (
    ANY,
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Type,
    common,
    compared,
    wider,
)

Operation = Callable[[Value, Value], Value]


def comparison(name: str, call: Operation) -> Function:
    """Make an operator that compares two values in the type that they have in common."""
    equality = name in {"=", "<>", "<=>", "nullif"}

    def bind(arguments: Arguments) -> Binding:
        one, other = arguments
        met = compared(one.type, other.type)
        if met is None and equality and _boolean_and_number(one.type, other.type):
            met = ANY
        if met is None:
            raise QueryError(f"{one.type} and {other.type} cannot be compared by {name}", one.position)
        wants = tuple(None if met in (ANY, NULL, each.type) else met for each in arguments)
        return Binding(BOOLEAN, _narrowly(call, one.type, other.type), wants, strict=name != "<=>")

    return Function(name, (2, 2), "", "", bind, cost=LOOKS)


@lru_cache(maxsize=256)
def _narrowly(call: Operation, one: Type, other: Type) -> Operation:
    """Compare a text of the record with an INT, to which it is cast: to 32 bits, fewer than the comparison
    itself would take."""
    if not (one.dynamic and other == INT) and not (one == INT and other.dynamic):
        return call

    def narrow(left: Value, right: Value) -> Value:
        left = convert.to_int(left) if type(left) is str else left
        right = convert.to_int(right) if type(right) is str else right
        if call is not compare.same and (left is None or right is None):
            return None
        return call(left, right)

    return narrow


def _boolean_and_number(one: Type, other: Type) -> bool:
    return (one == BOOLEAN and other.numeric) or (one.numeric and other == BOOLEAN)


def arithmetical(name: str, call: Operation, usage: str = "", summary: str = "") -> Function:
    """Make an operator, or a function, on two numbers that meet in the wider type."""

    def bind(arguments: Arguments) -> Binding:
        types = [DOUBLE if argument.type == STRING else argument.type for argument in arguments]
        for argument, type_ in zip(arguments, types, strict=True):
            if type_ == TIMESTAMP or (type_ == DATE and name not in {"+", "-"}):
                raise QueryError(
                    f"{name} on {type_} would be of intervals, which are not here", argument.position
                )
            if not (type_.numeric or type_ in (ANY, NULL, DATE)):
                raise QueryError(f"{name} on {type_} is not possible", argument.position)
        if NULL in types:
            return Binding(NULL, call, (None, None))
        if ANY in types:
            return Binding(_FIXED.get(name, ANY), call, (None, None))
        if DATE in types:
            return _days(name, arguments, call)
        met = wider(*types) or DOUBLE
        if name == "div" and not met.integer:
            raise QueryError(f"div divides whole numbers; CAST {met} to BIGINT first", arguments[0].position)
        met = _FIXED.get(name, met)
        wants = tuple(None if argument.type == met else met for argument in arguments)
        return Binding(met, narrowed(call, met), wants)

    return Function(name, (2, 2), usage, summary, bind, cost=LOOKS)


_FIXED: Final = {"/": DOUBLE, "div": BIGINT}


def _days(name: str, arguments: Arguments, call: Operation) -> Binding:
    """Choose what adds days to a date, or takes them from it."""
    one, other = arguments
    if one.type == DATE and other.type.integer and other.type != BIGINT:
        return Binding(DATE, call, (None, None))
    if name == "+" and other.type == DATE and one.type.integer and one.type != BIGINT:
        return Binding(DATE, call, (None, None))
    if one.type == other.type:
        raise QueryError("the difference of dates is an interval, which is not here: datediff", one.position)
    raise QueryError(f"{one.type} {name} {other.type} is not possible", one.position)


@lru_cache(maxsize=256)
def narrowed(call: Callable[..., Value], type_: Type) -> Callable[..., Value]:
    """Compute in the width of the type."""
    if type_ != INT:
        return call

    def wrapped(*values: Value) -> Value:
        found = call(*values)
        return wrap(found, 32) if type(found) is int else found

    return wrapped


def _unary(name: str, usage: str, summary: str, call: Callable[[Value], Value]) -> Function:
    """Make an operator that gives a number of the same type."""

    def bind(arguments: Arguments) -> Binding:
        (argument,) = arguments
        type_ = DOUBLE if argument.type == STRING else argument.type
        if not (type_.numeric or type_ in (ANY, NULL)):
            raise QueryError(f"{name} on {type_} is not possible", argument.position)
        want = DOUBLE if argument.type == STRING else None
        return Binding(type_, narrowed(call, type_), (want,))

    return Function(name, (1, 1), usage, summary, bind, cost=LOOKS)


def _pattern(name: str, make: Callable[..., patterns.Matches], most: int = 2) -> Function:
    """Make a predicate on a text and a pattern, which is made once if it is constant."""

    def bind(arguments: Arguments) -> Binding:
        for argument in arguments:
            if not (argument.type.atomic or argument.type in (ANY, NULL)):
                raise QueryError(f"{name} on {argument.type} is not possible", argument.position)
        wants = tuple(None if argument.type == STRING else STRING for argument in arguments)
        rest = [argument.constant for argument in arguments[1:]]
        if all(isinstance(constant, str) for constant in rest):
            try:
                made = make(*rest)
            except PatternError as error:
                raise QueryError(str(error), arguments[1].position) from None
            return Binding(BOOLEAN, lambda text, *_: made(text), wants)
        if len(arguments) > 2 and arguments[2].constant is VARIABLE:
            raise QueryError("ESCAPE takes one constant character", arguments[2].position)

        def call(text: Value, *rest: Value) -> Value:
            try:
                return make(*rest)(str(text))
            except PatternError as error:
                raise RecordError(str(error)) from None

        return Binding(BOOLEAN, call, wants)

    return Function(name, (2, most), "", "", bind, cost=MATCHES)


def _like(pattern: str, escape: str = "\\") -> patterns.Matches:
    if len(escape) != 1:
        raise PatternError("ESCAPE takes one character")
    return liker(pattern, escape)


def _ilike(pattern: str, escape: str = "\\") -> patterns.Matches:
    made = _like(pattern.lower(), escape)
    return lambda text: made(text.lower())


def _bind_in(arguments: Arguments) -> Binding:
    met = common(tuple(argument.type for argument in arguments))
    if met is None or not (met.atomic or met in (ANY, NULL)):
        listed = ", ".join(dict.fromkeys(str(argument.type) for argument in arguments))
        raise QueryError(f"IN over {listed}: there is no type for all of them", arguments[0].position)
    wants = tuple(None if met in (ANY, NULL, argument.type) else met for argument in arguments)
    return Binding(BOOLEAN, lambda value, *items: compare.among(value, items), wants, strict=False)


def _form(name: str, least: int, most: int | None) -> Function:
    return Function(name, (least, most), "", "", cost=FIXED)


FUNCTIONS: Final = (
    *(_form(name, 2, None) for name in ("and", "or")),
    *(_form(name, 1, 1) for name in ("not", "is_null", "is_true", "is_false")),
    _form("between", 3, 3),
    Function("in", (2, None), "", "", _bind_in, cost=LOOKS),
    comparison("=", compare.eq),
    comparison("<>", compare.ne),
    comparison("<=>", compare.same),
    comparison("<", compare.lt),
    comparison("<=", compare.le),
    comparison(">", compare.gt),
    comparison(">=", compare.ge),
    arithmetical("+", arithmetic.add),
    arithmetical("-", arithmetic.subtract),
    arithmetical("*", arithmetic.multiply),
    arithmetical("/", arithmetic.divide),
    arithmetical("%", arithmetic.modulo),
    arithmetical("div", arithmetic.divide_whole),
    _unary("neg", "", "", arithmetic.negate),
    _unary("abs", "abs(x)", "the number without its sign", arithmetic.absolute),
    _pattern("like", _like, 3),
    _pattern("ilike", _ilike, 3),
    _pattern("rlike", patterns.searcher),
)
