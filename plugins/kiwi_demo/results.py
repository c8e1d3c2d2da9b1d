"""What Spark makes of the flights, shown beside them: late ones as they come, delays as a table at times."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import trio

from kiwi_demo.board import Board
from kiwi_demo.spark_progress import SparkProgress
from kiwi_demo.viewer import Viewer, in_words
from kiwi_gw.client.address import Address
from kiwi_gw.client.watch import WatchEnded, WatchPlan
from kiwi_gw.terminal import escape

_NEWEST = 20
"""How many of the newest late flights tell their delay."""
DELAYS, LATE = "delays-by-carrier", "late-flights"
_TABLE_SECONDS = 10.0
_FIRST_TABLE_SECONDS = 1.0  # after the first row: the others of its batch are close behind


class Results:
    """Watch both Spark sources of the demo. One that fails is reported, and does not end the others.

    table: the newest one of the delays, line by line. log: of the gateway, which says what Spark is at before
    it has results.
    """

    def __init__(self, address: Address, say: Callable[[str], None], log: Path) -> None:
        self._progress = SparkProgress(log, say)
        self._over = trio.Event()
        self._say = say
        self._board = Board()
        self._viewers = {
            DELAYS: Viewer(address, WatchPlan(DELAYS), say, label=DELAYS, words=self._on_the_board),
            LATE: Viewer(address, WatchPlan(LATE), say, label="late", words=self._late),
        }
        self._failed: dict[str, str] = {}
        self._delays: deque[float] = deque(maxlen=_NEWEST)
        self._began = 0.0
        self._first: float | None = None
        self.table: list[str] = []

    async def run(self) -> None:
        """Watch and show until cancelled."""
        self._began = trio.current_time()
        self._say("Spark is starting; its results come in between once it is there")
        async with trio.open_nursery() as nursery:
            for source_id, viewer in self._viewers.items():
                nursery.start_soon(self._watch, source_id, viewer)
            nursery.start_soon(self._tables)
            nursery.start_soon(self._say_progress)

    async def _say_progress(self) -> None:
        """Say what Spark is at until there is a result, or none to wait for."""
        async with trio.open_nursery() as waiting:
            waiting.start_soon(self._progress.run)
            await self._over.wait()
            waiting.cancel_scope.cancel()

    @property
    def late(self) -> Viewer:
        """Return the client of the late flights."""
        return self._viewers[LATE]

    def summary(self) -> list[str]:
        """Return what came of both sources."""
        return [f"  {source_id:<17} {self._outcome(source_id)}" for source_id in self._viewers]

    def _outcome(self, source_id: str) -> str:
        viewer = self._viewers[source_id]
        if source_id in self._failed:
            return f"failed: {self._failed[source_id]}"
        if viewer.tally.received:
            delay = f", {self.delay()}" if source_id == LATE and self._delays else ""
            return f"{viewer.tally.received} results, with {viewer.tally.lags} LAG notices{delay}"
        return "no result yet" if viewer.subscribed.is_set() else "no result yet: Spark was still starting"

    async def _watch(self, source_id: str, viewer: Viewer) -> None:
        try:
            await viewer.run()
        except WatchEnded as stopped:
            self._failed[source_id] = escape(str(stopped))
            self._say(f"{source_id} failed: {self._failed[source_id]}")
            if len(self._failed) == len(self._viewers):
                self._over.set()

    async def _tables(self) -> None:
        await self._viewers[DELAYS].first.wait()
        await trio.sleep(_FIRST_TABLE_SECONDS)
        while True:
            news = [escape(line) for line in self._board.news()]
            self.table = news or self.table
            for line in news:
                self._say(line)
            if self._delays:
                self._say(f"{LATE}: {self.delay()}")
            await trio.sleep(_TABLE_SECONDS)

    def _late(self, data: Mapping[str, Any]) -> str:
        self._arrived()
        with suppress(KeyError, TypeError, ValueError):  # of another pipeline than the demo's own
            produced = datetime.fromisoformat(data["value"]["produced"]).timestamp()
            self._delays.append(time.time() - produced)
        return in_words(data)

    def delay(self) -> str:
        """Say how long the newest late flights took: those from before Spark was there, that long."""
        if not self._delays:
            return "Spark is starting"
        return f"the newest came {median(self._delays) * 1000:.0f} ms after their flights (median)"

    def _on_the_board(self, data: Mapping[str, Any]) -> str:
        self._arrived()
        self._board.take(data)
        return ""

    def _arrived(self) -> None:
        if self._first is None:
            self._over.set()
            self._first = trio.current_time()
            self._say(f"Spark is there; its first results, {self._first - self._began:.0f} s later:")
