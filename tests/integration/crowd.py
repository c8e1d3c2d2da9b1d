"""Processes of readers, as a test sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

import trio

from tests.integration.recording import Reader, Recording, Task

ROOT = Path(__file__).parent.parent.parent


class Crowd:
    """One process of readers. recordings: complete once `finished` has returned."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        self.progress = 0
        self._subscribed = trio.Event()
        self._moved = trio.lowlevel.ParkingLot()
        self._finished = trio.Event()

    async def subscribed(self) -> None:
        """Until every reader has its SUBSCRIBE_OK."""
        await self._subscribed.wait()

    async def passed(self, events: int) -> None:
        """Until the slowest reader is through with so many events."""
        while self.progress < events and not self._finished.is_set():
            await self._moved.park()

    async def finished(self) -> list[Recording]:
        """Until every reader has had all and is gone."""
        await self._finished.wait()
        return self.recordings

    async def run(self, module: str, task: Task) -> None:
        command = [sys.executable, "-m", f"tests.integration.{module}"]
        given = json.dumps(asdict(task)).encode() + b"\n"
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, cwd=ROOT, stdin=given, stdout=subprocess.PIPE)
            process = await nursery.start(run, command)
            rest = b""
            async for chunk in process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        self._finished.set()
        self._moved.unpark_all()

    def _hear(self, message: dict[str, object]) -> None:
        match message:
            case {"subscribed": True}:
                self._subscribed.set()
            case {"progress": int(events)}:
                self.progress = events
                self._moved.unpark_all()
            case {"recording": dict(recording)}:
                self.recordings.append(Recording(**recording))


@asynccontextmanager
async def crowd(
    kind: Literal["raw", "library"], readers: Sequence[Reader], total: int, step: int = 1_000
) -> AsyncIterator[Crowd]:
    """Readers in a process of their own, subscribed; the process is gone at the end of the block."""
    one = Crowd()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, f"{kind}_readers", Task(readers, total, step))
        await one.subscribed()
        yield one
        nursery.cancel_scope.cancel()
