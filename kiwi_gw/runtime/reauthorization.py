"""Judges connections again, and tells them of new sources, a few milliseconds at a time.

After a reload, or when keys are withdrawn, all of them are due at once. Each is judged before it hears of
anything, and before it is asked to do anything more: no client gets something new under an old rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import trio

from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.wakeup import Wakeup

_SLICE_SECONDS = 0.005
"""How long the loop is held at a time."""


class Reauthorization:
    """hub: of the source that has this id now, None if it is gone. clock: monotonic seconds."""

    def __init__(self, hub: Callable[[str], SourceHub | None], clock: Callable[[], float]) -> None:
        self._hub = hub
        self._clock = clock
        self._due: dict[Connection, tuple[str, ...]] = {}  # which sources to tell of
        self._order: deque[Connection] = deque()  # of the same; to take the first of a dict is dear
        self._wake = Wakeup()

    def ask(
        self, connections: Iterable[Connection], appeared: tuple[str, ...] = (), *, reauthorize: bool = True
    ) -> None:
        """See to these connections: what fits into one slice now, the rest as soon as others had their turn.

        appeared: ids of sources that are new. reauthorize: False, only tell of them.
        """
        until = self._clock() + _SLICE_SECONDS
        for connection in connections:
            connection.due = connection.due or reauthorize
            before = self._due.get(connection)
            if before is None:
                self._order.append(connection)
            self._due[connection] = tuple(dict.fromkeys((*before, *appeared))) if before else appeared
        self._slice(until)
        if self._due:
            self._wake.set()

    async def run(self) -> None:
        """See to what `ask` has left, for ever."""
        while True:
            await self._wake.wait()
            while self._due:
                await trio.lowlevel.checkpoint()
                self._slice(self._clock() + _SLICE_SECONDS)

    def _slice(self, until: float) -> None:
        while self._due:
            connection = self._order.popleft()
            self._see_to(connection, self._due.pop(connection))
            if self._clock() >= until:
                return

    def _see_to(self, connection: Connection, appeared: tuple[str, ...]) -> None:
        if connection.closed:
            return
        if connection.due:
            connection.reauthorize()
        for source_id in appeared:
            hub = self._hub(source_id)
            if hub is not None:
                connection.source_appeared(hub.info)
