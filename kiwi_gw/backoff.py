"""How long to wait before the next attempt: doubling, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Give the seconds to wait before each attempt: doubling from `first`, never above `longest`.

    jitter: how much of a wait is left to chance, from 0 (nothing) to 1 (all of it), so that many that lost
    the same server do not come back to it together.
    """

    def __init__(
        self,
        first: float = 0.5,
        longest: float = 30.0,
        jitter: float = 0.5,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._uniform = uniform
        self._ceiling = first

    def next(self, at_least: float = 0.0) -> float:
        """Return the seconds to wait now; the next wait is longer. at_least: added to it."""
        ceiling = min(self._ceiling, self._longest)
        self._ceiling = 2 * ceiling
        return at_least + self._uniform((1 - self._jitter) * ceiling, ceiling)

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._ceiling = self._first
