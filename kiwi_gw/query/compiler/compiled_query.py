"""A query as loops over columns, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kiwi_gw.model import Steps, TimeSlice, at_once
from kiwi_gw.query import cpu_budget
from kiwi_gw.query.values import Value

Columns = Mapping[str, Sequence[Value]]

_REFERENCE: Final = 40
"""Bytes of an integer or a text in a list, its own characters apart."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompiledQuery:
    """Hold a query, ready to run. roots: the columns that it needs, and no others. at_once: so many events
    are evaluated between two looks at the clock; 0: it is looked at behind every event.

    A column has one value for each event of a batch: None, bool, int, float, str, list, dict as decoded, or
    `UNDECODABLE`.
    """

    roots: tuple[str, ...]
    _keep: Callable[..., int] = field(repr=False)
    _project: Callable[..., int] | None = field(repr=False)
    at_once: int = 0

    def __del__(self) -> None:
        # Functions that the loops call are in the namespace that they have themselves: without this they
        # would stay until the garbage collector comes.
        for loop in (self._keep, self._project):
            if loop is not None:
                loop.__globals__.clear()

    def filter(self, columns: Columns, length: int) -> tuple[list[int], list[int]]:
        """Return the indexes of the events that the filter passes, and of those that could not be evaluated.

        An event is bad, and not kept, if a column that the query needs is UNDECODABLE for it. It is bad, too,
        if the filter makes more of it than it may, or takes too long for it (`cpu_budget`). length: the
        events of the batch.
        """
        return at_once(self.filter_steps(columns, length, TimeSlice()))

    def filter_steps(
        self, columns: Columns, length: int, turn: TimeSlice
    ) -> Steps[tuple[list[int], list[int]]]:
        """Do what `filter` does, in turns."""
        each = [columns[root] for root in self.roots]
        kept: list[int] = []
        bad: list[int] = []
        done = 0
        while True:
            stop = min(done + self.at_once, length) if self.at_once else length
            some = each if stop - done == length else [column[done:stop] for column in each]
            begun = cpu_budget.begin()
            try:
                done = self._keep(kept, bad, range(done, stop), turn.until, turn.clock, *some)
            finally:
                cpu_budget.end(begun)
            if done >= length:
                return kept, bad
            if turn.over:
                turn.held = _REFERENCE * (len(kept) + len(bad))
                yield

    def project(self, columns: Columns, indexes: Sequence[int], cost: int = 0) -> list[bytes]:
        """Return the projection of each of these events as JSON; b"" for one that cannot be evaluated.

        A member that is NULL is null; a lenient one that is missing is left out. Dates and timestamps are
        texts of ISO 8601 in UTC; NaN and the infinities are texts. Only for queries with a `select`. cost:
        bytes of the batch; the texts of all events may be a few times that (`cpu_budget`).
        """
        return at_once(self.project_steps(columns, indexes, TimeSlice(), cost))

    def project_steps(
        self, columns: Columns, indexes: Sequence[int], turn: TimeSlice, cost: int = 0
    ) -> Steps[list[bytes]]:
        """Do what `project` does, in turns."""
        if self._project is None:
            raise ValueError("the query has no projection")
        each = [columns[root] for root in self.roots]
        texts: list[bytes] = []
        most = left = cpu_budget.MOST_BYTES + cpu_budget.BYTES_A_BYTE * cost
        while True:
            begun = cpu_budget.begin()
            try:
                rest = indexes[len(texts) :] if texts else indexes
                left = self._project(texts, left, rest, turn.until, turn.clock, *each)
            finally:
                cpu_budget.end(begun)
            if len(texts) == len(indexes) or left < 0:
                return texts + [b""] * (len(indexes) - len(texts))
            turn.held = most - left + _REFERENCE * len(texts)
            yield
