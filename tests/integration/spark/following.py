"""A client that knows its positions and nothing else: it goes on behind its last event, whoever is there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from tests.integration.client import Client, client
from tests.integration.spark.numbered_records import after


class Following:
    """A client of one source. results: all its events. wrong: what it should not have been told. went_on:
    when its first event came since `mark`, by the clock of Trio; None: none came yet."""

    def __init__(self, source_id: str) -> None:
        self.id = source_id
        self.results: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self.went_on: float | None = None
        self._reader: Client | None = None
        self._positions: dict[str, Any] = {}
        self._marked = 0
        self._more = trio.lowlevel.ParkingLot()

    @property
    def events(self) -> int:
        """How many it has had."""
        return len(self.results) + (0 if self._reader is None else self._reader.recording.events)

    def now(self) -> list[dict[str, Any]]:
        """Return what it has had."""
        return self.results + ([] if self._reader is None else self._reader.results)

    def mark(self) -> None:
        """Look for its first event from now on."""
        self.went_on, self._marked = None, self.events

    async def run(
        self, address: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Subscribe where it was, the first time from the beginning, and read until the gateway is gone."""
        self.mark()
        at = self._positions
        begin = {"from": {"positions": at}, "onMissing": "earliest"} if at else {"from": "earliest"}
        async with client(address, self.id) as reader:
            self._positions = (await reader.subscribe(**begin))["positions"]
            if at and self._positions != at:
                self.wrong.append(f"it went on at {self._positions}, not {at}")
            self._reader = reader
            task_status.started()
            try:
                with suppress(trio.BrokenResourceError):
                    await self._read(reader)
            finally:
                self._end(reader)

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until this is so, which only an event can change."""
        while not done():
            await self._more.park()

    async def _read(self, reader: Client) -> None:
        more = True
        while more:
            if self.went_on is None and self.events > self._marked:
                self.went_on = trio.current_time()
            self._more.unpark_all()
            assert not reader.recording.closed, reader.recording.items[-1]
            more = await reader.read()

    def _end(self, reader: Client) -> None:
        """Have had what has come."""
        self._reader = None
        self.results += reader.results
        self.wrong += reader.recording.faults
        if reader.recording.missed:
            self.wrong.append(f"{reader.recording.missed} announced as lost")
        if reader.results and "partition" in reader.results[0]:
            *_, self._positions = after(self._positions, reader.results)
