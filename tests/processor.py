"""What work costs the processor, in seconds of a usual machine.

Machines differ by a factor of three, and one that shares its cores differs from itself: limits hold for work
in proportion to a yardstick that is measured beside it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

USUAL_SECONDS = 0.00064
"""What the yardstick took on a machine on which all limits held with room to spare."""

_TEXT = json.dumps([{"carrier": f"c{n}", "delay": n, "legs": [n, n + 0.5, None]} for n in range(200)])


def _yardstick() -> int:
    """Do some of all that the tests measure: read and write JSON, cut text, count in a loop."""
    total = 0
    for event in json.loads(_TEXT):
        text = json.dumps(event)
        total += len(text.replace('"', "'").split(",")) + sum(n * n for n in range(20))
    return total


def seconds(work: Callable[[], object]) -> float:
    """Return what it takes once, in seconds of this machine."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def slowness() -> float:
    """Return how many times as long as usual this machine takes for its work just now, at least 1."""
    return max(1.0, min(seconds(_yardstick) for _ in range(5)) / USUAL_SECONDS)


def least(work: Callable[[], object], enough: float, tries: int = 20) -> float:
    """Return the least of several tries, in seconds of the usual machine. None follows one that is enough.

    What it takes it takes every time; what more it took was chance.
    """
    found = math.inf
    for _ in range(tries):
        found = min(found, seconds(work) / slowness())
        if found < enough:
            break
    return found
