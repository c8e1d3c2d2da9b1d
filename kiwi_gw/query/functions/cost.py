"""What a call of a function may cost: a contract that each function declares beside itself.

The compiler holds all calls to it, in one place: see `compiler.event_budget`. A test walks the registry and
measures what each promises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from kiwi_gw.query.limits import MAX_ITEMS, MAX_STRING
from kiwi_gw.query.values import RecordError, Value


class ResultKind(Enum):
    """Say what is new in a result, and so takes room of its own."""

    NOTHING = "a value of a fixed size, or one that was there before"
    TEXT = "a text"
    ITEMS = "an array"
    EITHER = "a text or an array, by the arguments"


class WorkGrowth(Enum):
    """Say how the time of a call grows."""

    CONSTANT = "not with its arguments"
    LINEAR = "with the size of its arguments and of its result"
    PATTERN = "with the steps of a pattern times the characters of a text"


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Declare the cost of a function. A result (`makes`) is at most MAX_STRING bytes or MAX_ITEMS items; a
    larger one is an error of the event.

    factor: bytes (items) of a result for each byte (item) of all arguments; None: an argument says how many,
    up to the cap. plus: so many more, whatever the arguments. ahead: gives the least number of characters or
    items that a call with these arguments makes; asked before the call, where that could be many. pace: how
    many bytes a byte of a long argument counts for, of those that the calls for one event may read.
    """

    makes: ResultKind = ResultKind.NOTHING
    work: WorkGrowth = WorkGrowth.LINEAR
    factor: int | None = 1
    plus: int = 0
    ahead: Callable[..., int] | None = None
    pace: int = 1


FIXED: Final = FunctionCost(work=WorkGrowth.CONSTANT)
"""A number, a truth or a date: made of such, or of the length or an end of a text."""
LOOKS: Final = FunctionCost()
"""The same out of texts or arrays; or one of the arguments, or what is in it."""
SEEKS: Final = FunctionCost(pace=2)
"""The same, where a byte takes as long as two."""
MATCHES: Final = FunctionCost(work=WorkGrowth.PATTERN)


@lru_cache(maxsize=256)
def capped(call: Callable[..., Value], cost: FunctionCost) -> Callable[..., Value]:
    """Wrap a function so that it is not called where its result would certainly be beyond its cap."""
    ahead = cost.ahead
    if ahead is None:
        return call
    cap = MAX_ITEMS if cost.makes is ResultKind.ITEMS else MAX_STRING
    what = f"{cap} items" if cost.makes is ResultKind.ITEMS else f"{cap} bytes"

    def asked(*arguments: Value) -> Value:
        if ahead(*arguments) > cap:
            raise RecordError(f"a result of more than {what}")
        return call(*arguments)

    return asked
