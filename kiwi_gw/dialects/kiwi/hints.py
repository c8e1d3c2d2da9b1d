"""When a subscription that has passed nothing is told so: the members that its filter names may be none.

One timer for a connection, and only while it has filters that nobody has looked at yet: for the one that is
due first. Each is looked at HINT_SECONDS after it began; where there was no event, again as long after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kiwi_gw.core.commands import Command, Examine, Remind

HINT_SECONDS: Final = 10.0
_STEP_SECONDS: Final = 0.1
"""Between two that are looked at."""


class Hints:
    """Which subscriptions are to be looked at, by their handles. clock: monotonic seconds."""

    __slots__ = ("_clock", "_due", "_running")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}  # when, in this order
        self._running = False

    def watch(self, source_id: str) -> Iterable[Command]:
        """It has a filter, and nobody has looked at it yet."""
        self._due[source_id] = self._clock() + HINT_SECONDS
        if self._running:
            return ()
        self._running = True
        return (Remind(HINT_SECONDS),)

    def forget(self, source_id: str) -> None:
        """It is over, or has been looked at."""
        self._due.pop(source_id, None)

    def reminded(self) -> Iterator[Command]:
        """Look at the next one, if it is due."""
        now = self._clock()
        for source_id, at in list(self._due.items())[:1]:
            if at <= now:
                self._due.pop(source_id)
                self._due[source_id] = now + HINT_SECONDS
                yield Examine(source_id)
        self._running = bool(self._due)
        if self._running:
            yield Remind(max(_STEP_SECONDS, next(iter(self._due.values())) - now))
