"""When a subscription that has passed nothing is told so: the members that its filter names may be none.

One timer for a connection, and only while it has filters that nobody has looked at yet. Every HINT_SECONDS
those that were there the last time are looked at, one after the other; where there was no event, again later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from kiwi_gw.core.commands import Command, Examine, Remind

HINT_SECONDS: Final = 10.0
_STEP_SECONDS: Final = 0.1


class Hints:
    """Which subscriptions are to be looked at, by their handles."""

    __slots__ = ("_due", "_running", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, bool] = {}  # whether it was there at the last round
        self._due: deque[str] = deque()
        self._running = False

    def watch(self, source_id: str) -> Iterable[Command]:
        """It has a filter, and nobody has looked at it yet."""
        self._waiting[source_id] = False
        if self._running:
            return ()
        self._running = True
        return (Remind(HINT_SECONDS),)

    def forget(self, source_id: str) -> None:
        """It is over, or has been looked at."""
        self._waiting.pop(source_id, None)

    def reminded(self) -> Iterator[Command]:
        """Look at the next one that is due."""
        if not self._due:
            self._due.extend(source_id for source_id, there in self._waiting.items() if there)
            self._waiting = dict.fromkeys(self._waiting, True)
        while self._due:
            source_id = self._due.popleft()
            if self._waiting.get(source_id):  # and has not come anew
                yield Examine(source_id)
                break
        self._running = bool(self._due or self._waiting)
        if self._running:
            yield Remind(_STEP_SECONDS if self._due else HINT_SECONDS)
