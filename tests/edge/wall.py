"""What the time of day is to a gateway that runs in a test."""

from __future__ import annotations

import time


class Wall:
    """A clock that only the test moves, in the place of `time`: how long this machine takes for what comes
    before is nobody's business. now: seconds since the epoch."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now
