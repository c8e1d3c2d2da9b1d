"""How many events a pull subscription asks for, and when. Pure: time is counted in ticks."""

from __future__ import annotations

import math

_TICK = 0.1
"""Seconds between two requests of a paced subscription, where its rate allows that many."""


class Credits:
    """Account for the credits of one pull subscription.

    Without a rate: `window` events are asked for, and again as many as are missing when half are used. With a
    rate (events per second): every `interval` seconds the events of that time are asked for. Never more are
    outstanding, so that a quiet hour does not end in a burst. limit: never ask for more than this many in
    all. outstanding: how many were asked for and not yet received.
    """

    def __init__(self, window: int, rate: float | None = None, limit: int | None = None) -> None:
        self.interval = None if rate is None else max(_TICK, 1.0 / rate)
        self._share = float(window) if rate is None or self.interval is None else rate * self.interval
        self._ceiling = math.ceil(self._share)
        self._allowance = 0.0
        self.outstanding = 0
        self._left = math.inf if limit is None else float(limit)

    def received(self) -> int:
        """Count one event as dealt with. Returns how many to ask for now; 0: none."""
        self.outstanding = max(0, self.outstanding - 1)
        if self.interval is not None or self.outstanding * 2 > self._ceiling:
            return 0
        return self._ask(self._ceiling - self.outstanding)

    def tick(self) -> int:
        """Begin, or go on after `interval` seconds. Return how many to ask for now."""
        if self.interval is None:
            return self._ask(self._ceiling - self.outstanding)
        # What is saved up is less than one event: the fraction that the share left over.
        self._allowance = min(self._allowance + self._share, self._share + 1.0)
        # 1e-9: ten times 0.1 must make one event, whatever the float says.
        asked = self._ask(min(int(self._allowance + 1e-9), self._ceiling - self.outstanding))
        self._allowance -= asked
        return asked

    def _ask(self, n: int) -> int:
        granted = int(min(n, self._left))
        self._left -= granted
        self.outstanding += granted
        return granted
