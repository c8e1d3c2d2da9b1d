"""Parsers and the garbage collector.

The trees and stacks of a parser refer to themselves. Left alone, some of a large one would outlive the young
generations of the garbage collector, and what has got that far is found only by a walk over all that the
process holds: a tenth of a second, in which nobody is served.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def swept(parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Callable[[], T]:
    """The call, behind which what it made and left is gone. For what takes milliseconds: nothing else is
    collected meanwhile."""

    def call() -> T:
        usual = gc.isenabled()
        gc.disable()
        try:
            return parse(*args, **kwargs)
        finally:
            if usual:
                gc.enable()
            gc.collect(0)

    return call
