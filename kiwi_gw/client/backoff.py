"""How long to wait before the next attempt: exponential with full jitter."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """The n-th wait is anywhere between 0 and `base` * 2^n seconds, never above `cap`.

    The whole range is used so that clients that lost the same server do not come back together.
    """

    def __init__(
        self, base: float = 0.5, cap: float = 30.0, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._base = base
        self._cap = cap
        self._uniform = uniform
        self._attempt = 0

    def next(self, at_least: float = 0.0) -> float:
        """Seconds to wait now. `at_least`: what the server asked for, on top of which the jitter comes."""
        # 2^32 is far above any cap; without the bound a long outage would overflow the float.
        ceiling = min(self._cap, self._base * 2.0 ** min(self._attempt, 32))
        self._attempt += 1
        return at_least + self._uniform(0.0, ceiling)

    def reset(self) -> None:
        self._attempt = 0
