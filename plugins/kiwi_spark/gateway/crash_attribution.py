"""Finds which query the driver dies of, when it dies again and again. Free of I/O.

Theory of operation. All queries share a driver, so one that kills its JVM every time (it needs more memory
than there is, or crashes native code) takes the others with it every time. A query has proved itself when it
has done something in the driver that there is: a batch, or a look that found nothing new. One that had not
when two drivers in a row died is suspected, and is from then on started when every other that runs has proved
itself, while those that do not run yet wait. A driver that dies then has died of it. After three of those it
is given up, and the others go on. A query that has the driver for itself is never given up: it is in no
other's way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

SUSPECTED: Final = 2
"""Drivers that died in a row before the query had proved itself."""
GUILTY: Final = 3
"""Those of them that had no other query that had not."""


class CrashAttribution:
    """Counts the deaths of drivers by the ids of sources."""

    def __init__(self) -> None:
        self._deaths = Counter[str]()
        self._alone = Counter[str]()

    def died(self, unproved: Collection[str], *, others: bool) -> None:
        """Count the death of a driver. unproved: whose queries had not proved themselves in it. others:
        whether there are more queries than one, running or held back."""
        if others and len(unproved) == 1:
            self._alone.update(source for source in unproved if self.suspected(source))
        self._deaths.update(unproved)

    def proved(self, source: str) -> None:
        """Note that its query has done something, or is another one now."""
        del self._deaths[source]
        del self._alone[source]

    def suspected(self, source: str) -> bool:
        return self._deaths[source] >= SUSPECTED

    def guilty(self, source: str) -> bool:
        """Return whether the driver dies of it."""
        return self._alone[source] >= GUILTY
