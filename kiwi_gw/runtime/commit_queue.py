"""What one connection commits: for each group in order, and what waits together.

Where commits are refused together one of them may be at fault: they are tried again in halves, and those in
halves, so that the others are kept by few more writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import trio

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import MAX_COMMITS, Commit
from kiwi_gw.model import Refusal
from kiwi_gw.runtime.read_gate import ReadGate

_BUSY: Final = Refusal(RefusalCode.BUSY, "too many commits before this one are not answered yet", retry=True)
_LATE: Final = Refusal(
    RefusalCode.UNAVAILABLE, "not committed: the source did not come to it in time", retry=True
)
_LEAST_SECONDS: Final = 0.5
"""With less than that left it is not begun."""

MOST_COMMITS: Final = MAX_COMMITS // 2
MOST_POSITIONS: Final = 65_536
"""Of one connection, not answered; beyond them it is not read. A source may take a tenth of a second for what
waits together, in which as many come of a client that commits as often as it may."""

_Key = tuple[str, str]  # source and group


@dataclass(slots=True, eq=False)
class _Ticket:
    """together: it is tried with those of the same number; 0: with all that wait."""

    command: Commit
    asked_at: float | None
    deadline: float
    together: int = 0


class CommitQueue(ReadGate):
    """start: begins a commit that has so many seconds; its callback comes once, later. done: called with
    every command, when it was asked for, and what became of it. refused: says why the client may not commit
    to a source by now; None: it may."""

    __slots__ = ("_count", "_done", "_numbers", "_positions", "_refused", "_start", "_waiting")

    def __init__(
        self,
        start: Callable[[Commit, float, Callable[[Refusal | None], None]], None],
        done: Callable[[Commit, float | None, Refusal | None], None],
        refused: Callable[[str], Refusal | None],
    ) -> None:
        super().__init__()
        self._start, self._done, self._refused = start, done, refused
        self._waiting: dict[_Key, deque[_Ticket]] = {}  # behind those that are under way
        self._count = self._positions = 0
        self._numbers = count(1)

    @property
    def full(self) -> bool:
        return self._count >= MOST_COMMITS or self._positions >= MOST_POSITIONS

    def add(self, command: Commit, asked_at: float | None, within: float) -> None:
        """Begin it when those before it of its group are over; refuse it, at once, if they are too many."""
        if self._count >= MAX_COMMITS:
            self._done(command, asked_at, _BUSY)
            return
        self._count += 1
        self._positions += len(command.positions)
        key = command.source_id, command.group
        begin = key not in self._waiting
        self._waiting.setdefault(key, deque()).append(
            _Ticket(command, asked_at, trio.current_time() + within)
        )
        if begin:
            self._next(key)

    def judge(self) -> None:
        """Refuse what waits and is no longer allowed."""
        for (source_id, _), waiting in list(self._waiting.items()):
            if waiting and (refusal := self._refused(source_id)) is not None:
                tickets = list(waiting)
                waiting.clear()
                self._answer(tickets, refusal)

    def clear(self) -> None:
        """Give up all of them; what is under way may still be kept."""
        self._waiting.clear()
        self._count = self._positions = 0
        self.make_room()

    # --- inside ----------------------------------------------------------------------------

    def _next(self, key: _Key) -> None:
        """Begin with what waits of a group, as one commit: the last one wins."""
        waiting, now = self._waiting[key], trio.current_time()
        tickets: list[_Ticket] = []
        while waiting and (not tickets or waiting[0].together == tickets[0].together):
            ticket = waiting.popleft()
            if ticket.deadline - now < _LEAST_SECONDS:
                self._answer([ticket], _LATE)
            else:
                tickets.append(ticket)
        if not tickets:
            self._waiting.pop(key, None)
            return
        positions: dict[int, tuple[int, str]] = {}
        for ticket in tickets:
            positions.update(ticket.command.positions)
        together = replace(tickets[0].command, positions=positions)
        within = min(ticket.deadline for ticket in tickets) - now
        self._start(together, within, lambda refusal: self._over(key, waiting, tickets, refusal))

    def _over(
        self, key: _Key, waiting: deque[_Ticket], tickets: list[_Ticket], refusal: Refusal | None
    ) -> None:
        if self._waiting.get(key) is not waiting:
            return  # it was given up meanwhile
        several = refusal is not None and not refusal.retry and len(tickets) > 1
        if several and (forbidden := self._refused(key[0])) is not None:
            self._answer(tickets, forbidden)
        elif several:
            half = len(tickets) // 2
            for part in (tickets[:half], tickets[half:]):
                number = next(self._numbers)
                for ticket in part:
                    ticket.together = number
            waiting.extendleft(reversed(tickets))
        else:
            self._answer(tickets, refusal)
        if self._waiting.get(key) is waiting:
            self._next(key)

    def _answer(self, tickets: list[_Ticket], refusal: Refusal | None) -> None:
        self._count -= len(tickets)
        self._positions -= sum(len(ticket.command.positions) for ticket in tickets)
        for ticket in tickets:
            self._done(ticket.command, ticket.asked_at, refusal)
        self.make_room()
