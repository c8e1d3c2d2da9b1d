"""What the formats of clients remember of topics, within a bound of bytes for each and one for all together.

A format knows for every concrete topic which frames an event on it makes. Sources have as many topics as they
like, and clients as many formats as they may: what was used longest ago is forgotten, and made again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

MOST_PLAN_BYTES: Final = 8 * 1024 * 1024
"""Of the plans that a format keeps: one for each concrete topic, with a head for each of its frames."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""Of those of all formats of the process."""

P = TypeVar("P")


class TopicPlanCache(Generic[P]):
    """Keep the plans of formats, each in its own table, until they are forgotten."""

    def __init__(self) -> None:
        self._of: OrderedDict[int, tuple[dict[str, P], int]] = OrderedDict()
        self.bytes = 0

    def used(self, table: dict[str, P]) -> None:
        if id(table) in self._of:
            self._of.move_to_end(id(table))

    def keep(self, table: dict[str, P], topic: str, plan: P, size: int) -> None:
        """Put the plan of a topic into a format's table. size: bytes."""
        _, held = self._of.pop(id(table), (table, 0))
        if held > MOST_PLAN_BYTES:
            table.clear()
            self.bytes -= held
            held = 0
        table[topic] = plan
        self._of[id(table)] = table, held + size
        self.bytes += size
        while self.bytes > MOST_BYTES and len(self._of) > 1:
            _, (oldest, gone) = self._of.popitem(last=False)
            oldest.clear()
            self.bytes -= gone
