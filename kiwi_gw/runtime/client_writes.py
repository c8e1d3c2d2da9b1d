"""What one client writes: records, and how far groups have come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kiwi_gw.core.commands import Commit, Produce
from kiwi_gw.core.notices import CommitDone, Notice, Produced
from kiwi_gw.model import Action, Published, Refusal
from kiwi_gw.runtime.client_access import ClientAccess
from kiwi_gw.runtime.commit_queue import CommitQueue
from kiwi_gw.runtime.ports import GatewayContext
from kiwi_gw.runtime.produce_queue import ProduceTicket
from kiwi_gw.runtime.produce_window import ProduceWindow


class ClientWrites:
    """tell: has the session hear of these, and writes what it replies in one go. count: takes a command, how
    it went, and when it was asked for. window: records that have no answer yet."""

    __slots__ = ("_access", "_commits", "_context", "_count", "_tell", "window")

    def __init__(
        self,
        context: GatewayContext,
        access: ClientAccess,
        tell: Callable[[Sequence[Notice]], None],
        count: Callable[[str, str, float | None], None],
    ) -> None:
        self._context, self._access = context, access
        self._tell, self._count = tell, count
        self._commits = CommitQueue(context.commit_later, self._committed)
        self.window = ProduceWindow(self._produced)

    def produce(self, command: Produce, asked_at: float | None) -> None:
        """Have a record written, if the client may."""
        refusal = self._access.refused(Action.PUBLISH, command.source_id)
        queue = refusal or self._context.produce_queue(command.source_id)
        within = min(self._context.write_seconds, command.within)
        self.window.add(command, queue, within, asked_at)

    def commit(self, command: Commit, asked_at: float | None) -> None:
        """Have positions kept, if the client may."""
        refusal = self._access.refused(Action.COMMIT, command.source_id)
        if refusal is not None:
            self._committed(command, asked_at, refusal)
        else:
            self._commits.add(command, asked_at, min(self._context.write_seconds, command.within))

    def clear(self) -> None:
        """Give up what waits: the client is gone."""
        self.window.clear()
        self._commits.clear()

    # --- inside ----------------------------------------------------------------------------

    def _produced(self, tickets: Sequence[ProduceTicket]) -> None:
        notices: list[Notice] = []
        for ticket in tickets:
            (result,) = ticket.results
            notices.append(Produced(ticket.handle, result))
            self._count("publish", "ok" if isinstance(result, Published) else "refused", ticket.asked_at)
        self._tell(notices)

    def _committed(self, command: Commit, asked_at: float | None, refusal: Refusal | None) -> None:
        self._count("commit", "ok" if refusal is None else "refused", asked_at)
        self._tell([CommitDone(command.handle, refusal)])
