"""An account of what a client got of a topic, so that nobody has to take the gateway's word for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Tally:
    """Count what came of a topic that was read from its beginning. Its offsets have no gaps of their own.

    received: events. missed: offsets that were passed over. doubled: events that had come before. announced:
    how many events the gateway has said that it gave up, in `lags` notices.
    """

    def __init__(self) -> None:
        self.received = 0
        self.missed = 0
        self.doubled = 0
        self.announced = 0
        self.lags = 0
        self._next: dict[str, int] = {}

    def event(self, data: Mapping[str, Any]) -> None:
        """Count an event. One without an offset is counted as received."""
        self.received += 1
        partition, offset = str(data.get("partition")), data.get("offset")
        if not isinstance(offset, int):
            return
        expected = self._next.get(partition, 0)
        if offset < expected:
            self.doubled += 1
            return
        self.missed += offset - expected
        self._next[partition] = offset + 1

    def lag(self, dropped: object) -> None:
        """Count a notice. dropped: the events given up since the one before."""
        self.lags += 1
        self.announced += dropped if isinstance(dropped, int) else 0

    def to_come(self, produced: int) -> int:
        """Return how many of so many events are still to be received, or to be told as given up."""
        return produced - sum(self._next.values())

    def agrees(self, produced: int) -> bool:
        """Return whether nothing came twice, and what did not come was announced, to the event. What was
        announced is seen to be missing when the next event of its partition comes."""
        return self.doubled == 0 and self.missed <= self.announced <= self.missed + self.to_come(produced)
