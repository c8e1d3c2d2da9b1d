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
    it went, and when it was asked for. window: records that have no answer yet; commits: the same."""

    __slots__ = ("_access", "_context", "_count", "_tell", "commits", "window")

    def __init__(
        self,
        context: GatewayContext,
        access: ClientAccess,
        tell: Callable[[Sequence[Notice]], None],
        count: Callable[[str, str, float | None], None],
    ) -> None:
        self._context, self._access = context, access
        self._tell, self._count = tell, count
        self.commits = CommitQueue(context.commit_later, self._committed, self._may_not_commit)
        self.window = ProduceWindow(self._produced)

    async def wait_room(self) -> None:
        """Return when the client may be read."""
        while self.window.full or self.commits.full:
            await self.window.wait_room()
            await self.commits.wait_room()

    def produce(self, command: Produce, asked_at: float | None) -> None:
        """Have a record written, if the client may."""
        refusal = self._access.refused(Action.PUBLISH, command.source_id)
        queue = refusal or self._context.produce_queue(command.source_id)
        within = min(self._context.write_seconds, command.within)
        self.window.add(command, queue, within, asked_at)

    def apply_rules(self) -> None:
        """Refuse what waits for its source and is no longer allowed."""
        self.window.judge(lambda source_id: self._access.refused(Action.PUBLISH, source_id))
        self.commits.judge()

    def commit(self, command: Commit, asked_at: float | None) -> None:
        """Have positions kept, if the client may."""
        refusal = self._may_not_commit(command.source_id)
        if refusal is not None:
            self._committed(command, asked_at, refusal)
        else:
            self.commits.add(command, asked_at, min(self._context.write_seconds, command.within))

    def clear(self) -> None:
        """Give up what waits: the client is gone."""
        self.window.clear()
        self.commits.clear()

    # --- inside ----------------------------------------------------------------------------

    def _may_not_commit(self, source_id: str) -> Refusal | None:
        return self._access.refused(Action.COMMIT, source_id)

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
