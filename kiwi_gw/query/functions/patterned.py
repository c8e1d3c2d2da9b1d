"""What functions of patterns have in common: a pattern that is known beforehand is tried beforehand."""

from __future__ import annotations

from collections.abc import Callable

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Function, plain
from kiwi_gw.query.functions.cost import Cost
from kiwi_gw.query.patterns import PatternError
from kiwi_gw.query.values import RecordError, Value
from kiwi_gw.query.values.types import Type


def patterned(
    usage: str,
    wants: tuple[Type, ...],
    result: Type,
    call: Callable[..., Value],
    summary: str,
    *,
    pattern: int,
    trial: Callable[..., object],
    optional: int = 0,
    cost: Cost,
) -> Function:
    """A `plain` function of a pattern. pattern, trial: as in `try_constant`."""
    return plain(
        usage,
        wants,
        result,
        of_records(call),
        summary,
        optional=optional,
        tried=lambda arguments: try_constant(arguments, pattern, trial),
        cost=cost,
    )


def of_records(call: Callable[..., Value]) -> Callable[..., Value]:
    """The function, to which a pattern that cannot be used is what is wrong with a record."""

    def told(*arguments: Value) -> Value:
        try:
            return call(*arguments)
        except PatternError as error:
            raise RecordError(str(error)) from None

    return told


def try_constant(arguments: Arguments, pattern: int, trial: Callable[..., object]) -> None:
    """
    pattern: which of the arguments it is. trial: is called with it, if it is a constant, and with what is
    known of the arguments behind it (else VARIABLE).

    Raises:
        QueryError: the trial has raised PatternError.
    """
    if pattern >= len(arguments) or not isinstance(arguments[pattern].constant, str):
        return
    try:
        trial(*(argument.constant for argument in arguments[pattern:]))
    except PatternError as error:
        raise QueryError(str(error), arguments[pattern].position) from None
    except RecordError:
        pass  # what is wrong with a longer text, its records will say
