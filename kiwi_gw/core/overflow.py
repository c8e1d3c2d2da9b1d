"""What happens to a subscription that is too far behind: the overflow policies, as functions of numbers.

Theory of operation. They act lazily: a decision is asked for whenever a subscription is next read, and before
the numbers of a notice are made. Only what is not read at all is found by a sweep (`close`) or by the source
that is about to publish (`block`, see `blocking`).

- `replay`: nothing is given up. What leaves the window is read again from the source's history (`history`).
- `drop_oldest`: goes on with the newest events that its capacity allows.
- `latest`: the same, but the newest event of every key of what it missed comes first (`snapshot_reader`).
- `close`: its end.
- `block`: the source waits. What happens when it has waited long enough, the fallback, is one of the others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kiwi_gw.model import OverflowPolicy


@dataclass(frozen=True, slots=True)
class OverflowTerms:
    """What a subscription was granted. acting: what happens when it is too far behind, the source not being
    held (any more). capacity: how many events behind that is; threshold: from how many on it gets a
    notice."""

    policy: OverflowPolicy
    acting: OverflowPolicy
    capacity: int
    threshold: int


class OverflowDecision(enum.Enum):
    KEEP = "keep"
    """Go on as before."""
    SETTLE = "settle"
    """Go on, but from now on what leaves the window is given up: it has come to where its policy holds."""
    DROP = "drop"
    """Give up all but the newest events that its capacity allows."""
    SNAPSHOT = "snapshot"
    """The same, but read the newest event of every key first."""
    CLOSE = "close"


def decide(
    terms: OverflowTerms, behind: int, *, evicted: bool, lost: bool, rereads: bool
) -> OverflowDecision:
    """Say what happens to one that is so many events behind.

    evicted: its next event has left the window; lost: and it was one that the window had a number for.
    rereads: what leaves the window is read again, as it is on its way from a start in the past, until it has
    once been within its capacity.
    """
    acting, over = terms.acting, behind > terms.capacity
    if not evicted:
        if rereads:
            settled = not over and acting is not OverflowPolicy.REPLAY
            return OverflowDecision.SETTLE if settled else OverflowDecision.KEEP
        if not over:
            return OverflowDecision.KEEP
    if acting is OverflowPolicy.CLOSE and (over or lost):
        return OverflowDecision.CLOSE
    return OverflowDecision.SNAPSHOT if acting is OverflowPolicy.LATEST else OverflowDecision.DROP


def newest_allowed(seq: int, base: int, head: int, capacity: int) -> int:
    """Return the number of the first event that one at `seq` keeps."""
    return max(seq, base, head - capacity)
