"""Whose turn it is to have its commands carried out, where clients send more than others can wait for.

Theory of operation. A connection has an allowance: what it may use at once, which fills up by a small share
of the time. A client that asks for little stays within it and waits for no other. One that has used it up
waits for a turn. In every third round of the event loop as many of those that wait go on as fit into what is
left of its budget (`core.round_budget`). The rounds between are for all others: a record takes some rounds
from its broker to its readers, and a PUBLISH to its broker and back. Who comes when nobody has had a turn for
so many rounds has one at once: it may be alone in asking for much. None sleeps.

A client that has the rounds for itself (`RoundBudget.is_shared`) goes on in each of them, until its allowance
is used up: where rounds are dear, as on a slow machine, short turns in every third leave most of the loop to
rounds in which nothing is done.

As many are awake as may fit, the first of those that wait; which of them goes on first Trio decides.

The events that a command lets out are not charged: they are sent at the client's pace, as those of push are.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

from kiwi_gw.core.round_budget import ROUND_SECONDS, RoundBudget

ALLOWANCE_SECONDS: Final = 0.000125
"""Some ten requests for credit."""

TURN_SECONDS: Final = 0.00003
"""A request to publish, or two for credit. Measured with a client that publishes without end: with
twice as much it writes 14 % more (`benchmarks publish`), and the p99 of a lone publisher beside it is 1.4 ms
where it is 1.0 (`benchmarks beside`)."""

OWN_SHARE: Final = 0.001
"""Of the time, without waiting for a turn: some eighty requests for credit a second."""

RESTING_ROUNDS: Final = 2
"""In which none of those goes on. Measured with a client that publishes without end (`benchmarks beside`):
with turns twice as long the p50 of a lone publisher beside it was 2.7 ms with none, 2.0 with one, 1.6 with
two."""

_MOST_AWAKE: Final = 256
"""However long the last round was: each takes some microseconds of every round."""

_LATELY_SECONDS: Final = 0.01
"""What is asked for so soon after the allowance was full again comes off the budget of the round, too."""


class TimeAllowance:
    """Count what one connection may use before it waits for a turn. Times in monotonic seconds. charged_in:
    the last round in which it has used some of it."""

    __slots__ = ("_full_at", "_round", "charged_in")

    def __init__(self, round_budget: RoundBudget) -> None:
        self._round = round_budget
        self._full_at = 0.0
        self.charged_in = -1

    def charge(self, began: float, now: float) -> None:
        """Take off the time between them."""
        self.charged_in = self._round.number
        self._round.serve(self)
        if began - self._full_at < _LATELY_SECONDS:
            self._round.charge(began, now)
        self._full_at = max(self._full_at, began) + (now - began) / OWN_SHARE

    def used_up(self, now: float) -> bool:
        """Say whether it has to wait for a turn."""
        return self._full_at - now >= ALLOWANCE_SECONDS / OWN_SHARE

    def renew(self, now: float) -> None:
        """Have it hold one turn, or be full if it has the rounds for itself: the connection has waited for
        that."""
        self._round.serve(self)
        missing = ALLOWANCE_SECONDS - TURN_SECONDS if self._round.is_shared() else 0.0
        self._full_at = now + missing / OWN_SHARE


class CommandScheduler:
    """Lets connections that have used up their allowance go on, the first of them first."""

    __slots__ = ("_awake", "_last", "_round", "_waiting")

    def __init__(self, round_budget: RoundBudget) -> None:
        self._round = round_budget
        self._waiting: deque[trio.Event] = deque()
        self._awake = 0  # those that look in each round whether they may go on
        self._last = -RESTING_ROUNDS - 1  # the round in which some went on

    def allowance(self) -> TimeAllowance:
        """Return that of a new connection."""
        return TimeAllowance(self._round)

    def __len__(self) -> int:
        return len(self._waiting) + self._awake

    def wants_rounds(self) -> bool:
        """Say whether anyone waits."""
        return len(self) > 0

    async def wait(self, allowance: TimeAllowance) -> None:
        """Return when it is the turn of a connection, in a later round if it has done something in this one.
        allowance: of the connection."""
        if len(self) or allowance.charged_in == self._round.number or not self._is_time():
            await self._wait()
        self._last = self._round.number

    async def _wait(self) -> None:
        mine = trio.Event()
        self._waiting.append(mine)
        self._wake()
        try:
            await mine.wait()
            while not self._is_time():
                await trio.lowlevel.checkpoint()
        finally:
            if not mine.is_set():
                self._waiting.remove(mine)
            else:
                self._awake -= 1
                self._wake()

    def _is_time(self) -> bool:
        """Say whether this is a round in which some go on, and something is left of it."""
        resting = self._last < self._round.number <= self._last + RESTING_ROUNDS
        return not (resting and self._round.is_shared()) and self._round.left > 0

    def _wake(self) -> None:
        """Keep as many awake as may fit into one round: they run in the next one at the earliest."""
        fit = min(max(ROUND_SECONDS, self._round.given) / TURN_SECONDS, _MOST_AWAKE)
        while self._waiting and self._awake + 1 <= fit:
            self._awake += 1
            self._waiting.popleft().set()
