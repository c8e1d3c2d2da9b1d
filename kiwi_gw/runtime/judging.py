"""Judges connections again, and tells them of new sources, a few milliseconds at a time.

After a reload, or when keys are withdrawn, all of them are due at once. Each is judged before it is told of
anything, and before it is asked to do anything more: nobody gets something new under an old rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

import trio

from kiwi_gw.model import SourceInfo
from kiwi_gw.runtime.connection import Connection

_SLICE_SECONDS = 0.005
"""How long the loop is held at a time."""


class Judging:
    """source: what there is by that id now, None if it is gone. clock: monotonic seconds."""

    def __init__(self, source: Callable[[str], SourceInfo | None], clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._due: OrderedDict[Connection, tuple[str, ...]] = OrderedDict()  # which sources to tell of
        self._wake = trio.Event()

    def ask(
        self, connections: Collection[Connection], appeared: tuple[str, ...] = (), *, judge: bool = True
    ) -> None:
        """See to these connections: what fits into one slice now, the rest as soon as others had their turn.

        appeared: ids of sources that are new. judge: False, only tell of them.
        """
        until = self._clock() + _SLICE_SECONDS
        if judge:
            for connection in connections:
                connection.due = True
        told = {one: seen for one in connections if (seen := self._due.get(one))} if self._due else {}
        self._due.update(dict.fromkeys(connections, appeared))
        for connection, before in told.items():
            self._due[connection] = tuple(dict.fromkeys((*before, *appeared)))
        self._slice(until)
        if self._due:
            self._wake.set()

    async def run(self) -> None:
        """See to what `ask` has left, for ever."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._due:
                await trio.lowlevel.checkpoint()
                self._slice(self._clock() + _SLICE_SECONDS)

    def _slice(self, until: float) -> None:
        while self._due:
            connection, appeared = self._due.popitem(last=False)
            self._see_to(connection, appeared)
            if self._clock() >= until:
                return

    def _see_to(self, connection: Connection, appeared: tuple[str, ...]) -> None:
        if connection.closed:
            return
        if connection.due:
            connection.judge_again()
        for source_id in appeared:
            info = self._source(source_id)
            if info is not None:
                connection.source_appeared(info)
