"""When to say that a filter has passed nothing: there may be no such members as it names.

One timer for a connection, and only while it has filters that were not looked at yet: for the one that is
due first. Each is looked at HINT_SECONDS after it began; where there was no event, again as long after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kiwi_gw.core.commands import Command, Inspect, SetTimer

HINT_SECONDS: Final = 10.0
_STEP_SECONDS: Final = 0.1
"""Between two that are looked at."""


class HintSchedule:
    """Which subscriptions are to be looked at, by their handles. clock: monotonic seconds."""

    __slots__ = ("_clock", "_due", "_running")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}  # when, in this order
        self._running = False

    def watch(self, source_id: str) -> Iterable[Command]:
        """Have a subscription with a filter looked at in a while."""
        self._due[source_id] = self._clock() + HINT_SECONDS
        if self._running:
            return ()
        self._running = True
        return (SetTimer(HINT_SECONDS),)

    def forget(self, source_id: str) -> None:
        """Give up one that is over, or has been looked at."""
        self._due.pop(source_id, None)

    def timer_fired(self) -> Iterator[Command]:
        """Look at the next one, if it is due."""
        now = self._clock()
        for source_id, at in list(self._due.items())[:1]:
            if at <= now:
                self._due.pop(source_id)
                self._due[source_id] = now + HINT_SECONDS
                yield Inspect(source_id)
        self._running = bool(self._due)
        if self._running:
            yield SetTimer(max(_STEP_SECONDS, next(iter(self._due.values())) - now))
