"""What is to happen later to something that may be gone by then."""

from __future__ import annotations

import weakref
from collections.abc import Callable


def if_there(method: Callable[[], None]) -> Callable[[], None]:
    """Make a method of an object do nothing once that is gone, and not hold it until then."""
    there = weakref.WeakMethod(method)

    def call() -> None:
        if (found := there()) is not None:
            found()

    return call
