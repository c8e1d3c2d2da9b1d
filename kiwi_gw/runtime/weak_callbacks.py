"""Callbacks for later that do not hold on to whom they call, and do nothing where that is gone by then."""

from __future__ import annotations

import weakref
from collections.abc import Callable


def weak_callback(method: Callable[[], None]) -> Callable[[], None]:
    """Make a method of an object do nothing once that is gone, and not hold it until then."""
    there = weakref.WeakMethod(method)

    def call() -> None:
        if (found := there()) is not None:
            found()

    return call
