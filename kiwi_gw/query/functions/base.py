"""What a function is to the compiler, and to the documentation.

Each module of functions has a tuple `FUNCTIONS`. Most functions are `typed`: fixed types of arguments and
result, NULL if one argument is. A function whose types depend on those of its arguments gives a `bind` of its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.cost import FIXED, FunctionCost
from kiwi_gw.query.values import Sentinel, Value
from kiwi_gw.query.values.types import ANY, BOOLEAN, DATE, NULL, STRING, TIMESTAMP, Type

VARIABLE: Final = Sentinel("VARIABLE")


@dataclass(frozen=True, slots=True)
class Argument:
    """Describe one argument, as it is known before there is a record.

    constant: its value if it is a literal, else VARIABLE.
    """

    type: Type
    constant: Value = VARIABLE
    position: int = 0


Arguments = tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """Describe a function for arguments of certain types.

    result: the type of its result. call: gives the result for the values of the arguments; pure; may raise
    RecordError. wants: for each argument the type that it is cast to first, None: as it is. strict: NULL in
    gives NULL out, and `call` never sees a None. missing: arguments that are paths come as MISSING where the
    record has no such member; only if not strict.
    """

    result: Type
    call: Callable[..., Value]
    wants: tuple[Type | None, ...]
    strict: bool = True
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """Describe a function or operator by its canonical name.

    arguments: fewest and most (None: any number). bind: raises QueryError for types that are not supported;
    None: the compiler writes it itself (`and`, `case`). cost: what a call may cost. usage and summary are for
    readers; without `usage` it is not in the tables of functions.
    """

    name: str
    arguments: tuple[int, int | None]
    usage: str
    summary: str
    bind: Callable[[Arguments], Binding] | None = None
    wants: tuple[Type, ...] = field(default=())
    result: Type | None = None
    cost: FunctionCost = field(kw_only=True)


def typed(
    usage: str,
    wants: tuple[Type, ...],
    result: Type,
    call: Callable[..., Value],
    summary: str,
    *,
    optional: int = 0,
    repeated: bool = False,
    strict: bool = True,
    tried: Callable[[Arguments], None] | None = None,
    cost: FunctionCost | None = None,
) -> Function:
    """Make a function with fixed types.

    usage: as a reader writes it, name first: `left(s, n)`. cost: may be left out only where numbers, dates
    and truths are made of such. optional: so many of the last arguments can be left out. repeated: the last
    one can come again and again. tried: raises QueryError for constants that are not supported; called before
    the types are checked.
    """
    name = usage.partition("(")[0]
    if cost is None:
        if not all(_small(each) for each in (*wants, result)):
            raise TypeError(f"{name} says nothing of what it may cost")
        cost = FIXED
    most = None if repeated else len(wants)

    def bind(arguments: Arguments) -> Binding:
        if tried is not None:
            tried(arguments)
        wanted = [wants[min(index, len(wants) - 1)] for index in range(len(arguments))]
        for index, (argument, want) in enumerate(zip(arguments, wanted, strict=True)):
            if not accepted(argument.type, want):
                raise QueryError(
                    f"{name}: argument {index + 1} is {argument.type}, and it takes {want}", argument.position
                )
        return Binding(result, call, tuple(None if want == ANY else want for want in wanted), strict)

    return Function(name, (len(wants) - optional, most), usage, summary, bind, wants, result, cost=cost)


def _small(type_: Type) -> bool:
    return type_.numeric or type_ in (BOOLEAN, DATE, TIMESTAMP)


def accepted(given: Type, wanted: Type) -> bool:
    """Return whether Spark casts the one type to the other by itself, for an argument."""
    if given == wanted or wanted == ANY or given in (ANY, NULL) or given.kind == wanted.kind:
        return True
    if wanted == STRING:
        return given.atomic
    if wanted.numeric:
        return given.numeric or given == STRING
    if wanted.kind in {"DATE", "TIMESTAMP"}:
        return given.kind in {"DATE", "TIMESTAMP", "STRING"}
    return wanted == BOOLEAN and given == STRING
