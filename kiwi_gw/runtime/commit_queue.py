"""What one connection commits: for each group in order, and what waits together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import trio

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import MAX_COMMITS, Commit
from kiwi_gw.model import Refusal

_BUSY: Final = Refusal(RefusalCode.BUSY, "too many commits before this one are not answered yet", retry=True)
_LATE: Final = Refusal(
    RefusalCode.UNAVAILABLE, "not committed: the source did not come to it in time", retry=True
)
_LEAST_SECONDS: Final = 0.5
"""With less than that left it is not begun."""

_Key = tuple[str, str]  # source and group


@dataclass(slots=True, eq=False)
class _Ticket:
    """alone: it was refused together with others, of which one may be at fault."""

    command: Commit
    asked_at: float | None
    deadline: float
    alone: bool = False


class CommitQueue:
    """start: begins a commit that has so many seconds; its callback comes once, later. done: called with
    every command, when it was asked for, and what became of it."""

    __slots__ = ("_count", "_done", "_start", "_waiting")

    def __init__(
        self,
        start: Callable[[Commit, float, Callable[[Refusal | None], None]], None],
        done: Callable[[Commit, float | None, Refusal | None], None],
    ) -> None:
        self._start, self._done = start, done
        self._waiting: dict[_Key, deque[_Ticket]] = {}  # behind those that are under way
        self._count = 0

    def add(self, command: Commit, asked_at: float | None, within: float) -> None:
        """Begin it when those before it of its group are over; refuse it, at once, if they are too many."""
        if self._count >= MAX_COMMITS:
            self._done(command, asked_at, _BUSY)
            return
        self._count += 1
        key = command.source_id, command.group
        begin = key not in self._waiting
        self._waiting.setdefault(key, deque()).append(
            _Ticket(command, asked_at, trio.current_time() + within)
        )
        if begin:
            self._next(key)

    def clear(self) -> None:
        """Give up all of them; what is under way may still be kept."""
        self._waiting.clear()
        self._count = 0

    # --- inside ----------------------------------------------------------------------------

    def _next(self, key: _Key) -> None:
        """Begin with what waits of a group, as one commit: the last one wins."""
        waiting, now = self._waiting[key], trio.current_time()
        tickets: list[_Ticket] = []
        while waiting and not (tickets and (tickets[0].alone or waiting[0].alone)):
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
        if refusal is not None and not refusal.retry and len(tickets) > 1:
            for ticket in tickets:
                ticket.alone = True
            waiting.extendleft(reversed(tickets))
        else:
            self._answer(tickets, refusal)
        if self._waiting.get(key) is waiting:
            self._next(key)

    def _answer(self, tickets: list[_Ticket], refusal: Refusal | None) -> None:
        self._count -= len(tickets)
        for ticket in tickets:
            self._done(ticket.command, ticket.asked_at, refusal)
