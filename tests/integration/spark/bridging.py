"""A gateway with a bridge inside the test, and Spark drivers in processes of their own that read it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
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
from tests.integration.spark.shared_classes import small_jvm

PATIENCE_SECONDS = 150
"""A driver takes 10 s to start on a machine that has nothing else to do."""

TOKEN = "shown at the door"
SCRIPT = Path(__file__).with_name("bridge_query.py")

EVERYTHING = "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v, _partition, _offset FROM events"


class QueryDriver:
    """A process with a Spark that runs queries for any number of tests. log: the file that it writes to."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "driver.log"
        plugins = str(Path(kiwi_spark.__file__).parent.parent)
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), small_jvm()],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env={**os.environ, "PYTHONPATH": plugins, "PYSPARK_PYTHON": sys.executable},
                cwd=folder,  # Spark leaves things there
                process_group=0,
            )

    def say(self, wish: Mapping[str, object]) -> None:
        """See `bridge_query`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill it with its JVM."""
        with suppress(ProcessLookupError):  # it may have killed itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


class Bridged:
    """One bridge and the queries that read it. losses: what the gateway says that they were not given."""

    def __init__(self, folder: Path, socket: str, read: ReadSource) -> None:
        self.losses: list[tuple[str, Gap]] = []
        self.socket = socket
        self.read = read
        self._folder = folder
        self._scope: trio.CancelScope | None = None
        self._over = trio.Event()
        self._drivers: dict[str, QueryDriver] = {}

    async def open(self, nursery: trio.Nursery) -> None:
        """Serve from now on, until `close`."""

        async def serve(task_status: trio.TaskStatus[object]) -> None:
            try:
                with trio.CancelScope() as self._scope:
                    await serve_bridge(
                        self.socket, TOKEN, self.read, lost=self._lost, task_status=task_status
                    )
            finally:
                self._over.set()

        self._over = trio.Event()
        await nursery.start(serve)

    async def close(self) -> None:
        """As if the gateway were away. Returns when it is: its path is free then, and not before."""
        assert self._scope is not None
        self._scope.cancel()
        await self._over.wait()

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
                over = self._is_over(name)
                if enough(rows := self.rows(name)):
                    return rows
                assert not over, self.log(name)
                await trio.sleep(0.05)  # files of another process: nothing tells of them

    async def ended(self, name: str) -> str:
        """Wait until it is over, by itself or with its driver. Why it ended."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not self._is_over(name):  # noqa: ASYNC110  as above
                await trio.sleep(0.05)
        over = self._folder / name / "over"
        return over.read_text() if over.exists() else "killed"

    @asynccontextmanager
    async def query(
        self,
        driver: QueryDriver,
        name: str,
        source: str,
        options: Mapping[str, object] | None = None,
        **wish: object,
    ) -> AsyncIterator[None]:
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
        driver.say(everything)
        self._drivers[name] = driver
        try:
            yield
        finally:
            if not self._is_over(name):
                driver.say({"stop": str(out)})
                with trio.CancelScope(shield=True):
                    await self.ended(name)

    def log(self, name: str) -> str:
        return self._drivers[name].log.read_text()

    def _is_over(self, name: str) -> bool:
        return (self._folder / name / "over").exists() or self._drivers[name].over


@asynccontextmanager
async def bridged(folder: Path, read: ReadSource) -> AsyncIterator[tuple[Bridged, trio.Nursery]]:
    """A bridge over what `read` reads, and the nursery in which it can be opened again."""
    with tempfile.TemporaryDirectory() as private:  # paths of sockets must be short
        found = Bridged(folder, f"{private}/bridge", read)
        async with trio.open_nursery() as nursery:
            await found.open(nursery)
            yield found, nursery
            nursery.cancel_scope.cancel()
