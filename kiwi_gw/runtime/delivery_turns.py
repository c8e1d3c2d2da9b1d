"""Whose turn it is to be sent what it has missed, where many are behind at once.

Theory of operation. Who is behind is sent what it has missed as fast as its socket takes it. Where many are
(100 clients too slow for a topic, all clients after a restart) each would hold the event loop for some
milliseconds, one after the other, and everybody else would wait for all of them. So they share so much of a
round, or as much as `core.round_budget` gives where rounds are long. Who finds it used up queues, and has one
turn after the other: one send of at most `limits.send_bytes`.

As long as clients write, and nothing else would take those rounds (`fan_out_pace`), nobody has a turn in two
rounds of three: a record takes several rounds until it is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import trio

from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.wakeup import Wakeup

DELIVERY_SECONDS: Final = 0.0005
"""Of a round, all together; what was begun is finished. Measured beside 100 clients that cannot keep up with
20,000 records/s (`benchmarks beside-fan-out`): the p99 of 100 subscribers was 73 to 425 ms when each sent as
much as its socket took, that of a lone publisher 65 to 245; with this 32 and 38, and 10 and 12."""

RESTING_ROUNDS: Final = 2
"""In which nobody has a turn while clients write. Without them that publisher had 16 to 26 ms."""


class Sender(Protocol):
    """Has something to send to one client that is behind."""

    def take_turn(self) -> None:
        """Send once, if there is still something; more where nobody waits. Must not raise."""


class DeliveryTurns:
    """`run` is its life. rests: whether some rounds are to be free of it now."""

    def __init__(self, round_budget: RoundBudget, rests: Callable[[], bool]) -> None:
        self._round, self._rests = round_budget, rests
        self._last = -RESTING_ROUNDS - 1  # the round in which something was sent
        self._used = 0.0  # of that round
        self._waiting: deque[Sender] = deque()
        self._woken = Wakeup()

    def may_send(self) -> bool:
        """Say whether nobody waits, and something is left of this round."""
        return not self._waiting and self._is_time()

    def charge(self, seconds: float) -> None:
        """Take off what a send took, or what ended in none: stepping over events, a notice of a loss."""
        if self._round.number != self._last:
            self._last, self._used = self._round.number, 0.0
        self._used += seconds

    def add(self, sender: Sender) -> None:
        """Give it a turn in a later round."""
        self._waiting.append(sender)
        self._woken.set()

    async def run(self) -> None:
        """Have one after the other send, until cancelled."""
        while True:
            await self._woken.wait()
            while self._waiting:
                await trio.lowlevel.checkpoint()
                for _ in range(len(self._waiting)):
                    if not self._is_time():
                        break
                    self._waiting.popleft().take_turn()

    def _is_time(self) -> bool:
        rounds = self._round.number - self._last
        if rounds == 0:
            return self._used < max(DELIVERY_SECONDS, self._round.given)
        return rounds > RESTING_ROUNDS or not self._rests()
