"""How often a client may ask: a token bucket that also notices a flood. Time is an argument."""

from __future__ import annotations

import enum
import math

QUIET_SECONDS = 1.0
"""An excess is over when nothing was refused for this long."""


class Verdict(enum.Enum):
    """What becomes of a command by its client's rate."""

    PASS = "pass"  # noqa: S105  (not a password)
    EXCESS = "excess"  # refuse this one
    FLOOD = "flood"  # refuse this one, and the client has gone on for too long


class Throttle:
    """Lets `rate` commands a second pass, and `burst` at once after a pause; all of them where `rate` is 0.

    A refused command costs nothing, so a client above its rate still gets its rate. Refusals less than
    QUIET_SECONDS apart are one *excess*, whatever passes in between; a refusal that comes `flood_seconds`
    or more after the first one of its excess is a flood. A client that stays at its rate and is refused
    now and then is therefore never taken for a flood, and one at 1.5 times its rate always is.
    """

    __slots__ = ("_burst", "_excess_since", "_flood_seconds", "_rate", "_refused_at", "_tokens", "_updated")

    def __init__(self, rate: float, burst: int, flood_seconds: float) -> None:
        self._rate = rate
        self._burst = float(burst) if rate else math.inf
        self._flood_seconds = flood_seconds
        self._tokens = self._burst
        self._updated = float("-inf")
        self._excess_since = float("-inf")
        self._refused_at = float("-inf")

    def admit(self, now: float, cost: float = 1) -> Verdict:
        """Whether a command at `now` (seconds on a monotonic clock) may pass. cost: for how many it counts,
        at most all that may pass at once."""
        if now > self._updated:
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
            self._updated = now
        taken = min(float(cost), self._burst)
        if self._tokens >= taken:
            self._tokens -= taken
            return Verdict.PASS
        if now - self._refused_at >= QUIET_SECONDS:
            self._excess_since = now
        self._refused_at = now
        return Verdict.FLOOD if now - self._excess_since >= self._flood_seconds else Verdict.EXCESS
