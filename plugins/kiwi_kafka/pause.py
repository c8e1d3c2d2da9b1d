"""Pauses that grow, so that a thousand gateways do not knock at a returning broker at once."""

from __future__ import annotations

import random


class Pauses:
    """Seconds to wait before the next try: doubling from `first` to at most `longest`, with jitter."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """Between half of the current pause and all of it; the current one then doubles."""
        pause = self._next
        self._next = min(2 * pause, self._longest)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311  (spreads load, keeps no secret)

    def reset(self) -> None:
        self._next = self._first
