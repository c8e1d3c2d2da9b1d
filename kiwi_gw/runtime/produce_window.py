"""What one connection has written and has no answer for yet: bounded, and answered in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import trio

from kiwi_gw.core.commands import Produce
from kiwi_gw.model import Refusal
from kiwi_gw.runtime.produce_queue import RECORD_OVERHEAD, ProduceQueue, ProduceTicket
from kiwi_gw.runtime.read_gate import ReadGate

MOST_RECORDS: Final = 1_024
MOST_BYTES: Final = 1 << 20
"""Of one connection, not answered; beyond them it is not read."""


class ProduceWindow(ReadGate):
    """answered: called with those that have a result, in order, each with all that can be told by then."""

    __slots__ = ("_answered", "_bytes", "_queues", "_tickets")

    def __init__(self, answered: Callable[[Sequence[ProduceTicket]], None]) -> None:
        super().__init__()
        self._answered = answered
        self._tickets: deque[ProduceTicket] = deque()
        self._bytes = 0
        self._queues: dict[ProduceQueue, str] = {}  # with the id of the source of each

    @property
    def full(self) -> bool:
        return (
            len(self._tickets) >= MOST_RECORDS
            or self._bytes >= MOST_BYTES
            or any(queue.full for queue in self._queues)
        )

    def add(
        self, command: Produce, queue: ProduceQueue | Refusal, within: float, asked_at: float | None
    ) -> None:
        """Have a record written, or refuse it when those before it are answered. within: seconds."""
        deadline = trio.current_time() + within
        size = command.record.size + RECORD_OVERHEAD
        ticket = ProduceTicket(command.handle, (command.record,), size, asked_at, deadline)
        self._tickets.append(ticket)
        self._bytes += ticket.size
        if isinstance(queue, Refusal):
            ticket.results = (queue,)
            self.settle()
        else:
            self._queues[queue] = command.source_id
            queue.add(self, ticket)

    def judge(self, refused: Callable[[str], Refusal | None]) -> None:
        """Refuse what was not handed over yet to sources to which the client may not write any more."""
        for queue, source_id in list(self._queues.items()):
            if (refusal := refused(source_id)) is not None:
                queue.refuse(self, refusal)
        self.settle()

    def settle(self) -> None:
        """Answer the first ones, as far as their results are known."""
        done = []
        while self._tickets and self._tickets[0].results:
            ticket = self._tickets.popleft()
            self._bytes -= ticket.size
            done.append(ticket)
        if not self._tickets:
            self._queues.clear()
        if done:
            self._answered(done)
        self.make_room()

    def clear(self) -> None:
        """Give up all of them: what was not handed over yet is not written."""
        for queue in self._queues:
            queue.drop(self)
        self._queues.clear()
        self._tickets.clear()
        self._bytes = 0
        self.make_room()
