"""Clocks that only the test moves, in the place of `time`: how fast this machine is is nobody's business."""

from __future__ import annotations

import time


class Wall:
    """Say what the time of day is to a gateway. now: seconds since the epoch."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now


class Arrivals:
    """Say when messages come. now: monotonic seconds."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now
