"""The parent's side of a worker: a module of this package in a process of its own, and its JSON lines.

Workers stay in our session (and ours alone is what the kernel shares the cores by), and end when we close
their stdin or are gone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from benchmarks.errors import RunFailed
from kiwi_demo.process import tail

_LARGEST_LINE = 1024 * 1024
_END_SECONDS = 10.0


class Worker:
    """Hold one worker. `pid`: its process."""

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log
        self._received = bytearray()
        self.pid = process.pid

    async def hear(self, key: str, within: float) -> Any:
        """Return what it says next, which must be a line with this key. Raises RunFailed."""
        said = await self.hear_any(within)
        if key not in said:
            raise RunFailed(f"{self._name} said {said}, not {key!r}")
        return said[key] if len(said) == 1 else said

    async def hear_any(self, within: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        with trio.move_on_after(within):
            while b"\n" not in self._received:
                more = await self._process.stdout.receive_some()
                if not more:
                    code = await self._process.wait()
                    raise RunFailed(f"{self._name} ended with code {code}; {self._log}:{tail(self._log)}")
                self._received += more
                if len(self._received) > _LARGEST_LINE:
                    raise RunFailed(f"{self._name} said too much")
            line, _, self._received = self._received.partition(b"\n")
            said: dict[str, Any] = json.loads(line)
            return said
        raise RunFailed(f"{self._name} said nothing for {within:g} s; {self._log}:{tail(self._log)}")

    async def tell(self, word: str = "go") -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{word}\n".encode())

    async def end(self) -> None:
        """Let it go, and kill it if it does not."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        with trio.move_on_after(_END_SECONDS):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def started(name: str, settings: Mapping[str, object], folder: Path) -> AsyncIterator[Worker]:
    """Run `python -m benchmarks.workers.NAME SETTINGS`, with its stderr in a log in `folder`."""
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", f"benchmarks.workers.{name}", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
        )
    worker = Worker(name, process, log)
    try:
        yield worker
    finally:
        with trio.CancelScope(shield=True):
            await worker.end()
