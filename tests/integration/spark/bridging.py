"""A gateway with a bridge inside the test, and Spark drivers in processes of their own that read it."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

import kiwi_spark
from kiwi_gw.api import Gap, ReadSource
from kiwi_spark.bridge import serve_bridge

PATIENCE_SECONDS = 150
"""A driver takes 10 s to start on a machine that has nothing else to do."""

TOKEN = "shown at the door"
SCRIPT = Path(__file__).with_name("bridge_query.py")

EVERYTHING = "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v, _partition, _offset FROM events"


class Bridged:
    """One bridge and the queries that read it. losses: what the gateway says that they were not given."""

    def __init__(self, folder: Path, socket: str, read: ReadSource) -> None:
        self.losses: list[tuple[str, Gap]] = []
        self.socket = socket
        self.read = read
        self._folder = folder
        self._scope: trio.CancelScope | None = None
        self._processes: dict[str, trio.Process] = {}

    async def open(self, nursery: trio.Nursery) -> None:
        """Serve from now on, until `close`."""

        async def serve(task_status: trio.TaskStatus[object]) -> None:
            with trio.CancelScope() as self._scope:
                await serve_bridge(self.socket, TOKEN, self.read, lost=self._lost, task_status=task_status)

        await nursery.start(serve)

    def close(self) -> None:
        """As if the gateway were away."""
        assert self._scope is not None
        self._scope.cancel()

    def _lost(self, source: str, gap: Gap) -> None:
        self.losses.append((source, gap))

    def batches(self, name: str) -> dict[int, list[list[dict[str, Any]]]]:
        """What the query of that name was given: by batch, the rows of every attempt."""
        found: dict[int, list[list[dict[str, Any]]]] = {}
        for path in sorted((self._folder / name).glob("*.json")):
            batch, attempt = map(int, path.stem.split("."))
            found.setdefault(batch, []).insert(attempt, json.loads(path.read_text()))
        return dict(sorted(found.items()))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of the last attempt of every batch."""
        return [row for attempts in self.batches(name).values() for row in attempts[-1]]

    async def until(self, name: str, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait until its rows are enough. AssertionError with its log if it ends before."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                process = self._processes[name]
                over = process.poll() is not None
                if enough(rows := self.rows(name)):
                    return rows
                assert not over, self.log(name)
                with trio.move_on_after(0.05):  # files of another process: nothing tells of them but its end
                    await process.wait()

    async def dead(self, name: str) -> int:
        """Wait until its process is over. Its exit code."""
        with trio.fail_after(PATIENCE_SECONDS):
            return await self._processes[name].wait()

    @asynccontextmanager
    async def query(
        self, name: str, source: str, options: Mapping[str, object] | None = None, **wish: object
    ) -> AsyncIterator[trio.Process]:
        """Run a query while the block runs; a later one of the same name goes on where it was."""
        out = self._folder / name
        out.mkdir(exist_ok=True)
        given = {"bridge": self.socket, "token": TOKEN, "source": source, "start": "earliest"}
        everything = {
            "sql": EVERYTHING,
            "options": {key: str(value) for key, value in {**given, **(options or {})}.items()},
            "out": str(out),
            "checkpoint": str(self._folder / f"{name}-checkpoint"),
            **wish,
        }
        plugins = str(Path(kiwi_spark.__file__).parent.parent)
        environ = {**os.environ, "PYTHONPATH": plugins, "PYSPARK_PYTHON": sys.executable}
        log = self._folder / f"{name}.log"
        with log.open("ab") as stderr:
            process = await trio.lowlevel.open_process(
                [sys.executable, str(SCRIPT), json.dumps(everything)],
                stdout=stderr,
                stderr=stderr,
                env=environ,
                start_new_session=True,
            )
        self._processes[name] = process
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # it may have killed itself
                os.killpg(process.pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()


@asynccontextmanager
async def bridged(folder: Path, read: ReadSource) -> AsyncIterator[tuple[Bridged, trio.Nursery]]:
    """A bridge over what `read` reads, and the nursery in which it can be opened again."""
    with tempfile.TemporaryDirectory() as private:  # paths of sockets must be short
        found = Bridged(folder, f"{private}/bridge", read)
        async with trio.open_nursery() as nursery:
            await found.open(nursery)
            yield found, nursery
            nursery.cancel_scope.cancel()
