"""The process of the driver with everything that it starts (the JVM, Python workers): one process group.

It is in a group of its own, so that Ctrl-C in a terminal reaches only the gateway, which then ends it in
order. It keeps the gateway's session, because Linux may share the cores between sessions first, and being
nicer than processes of another session then means nothing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
import trio

from kiwi_gw.api import KiwiError

log = structlog.get_logger("kiwi_spark.driver")

_LINE = 8 * 1024
"""Bytes of a line; a longer one is cut."""
_KEPT = 20
_LOUD = re.compile(r"\b(WARN|ERROR|FATAL)\b")
_TERM_SECONDS, _KILL_SECONDS = 0.7, 0.3


class DriverError(KiwiError):
    """The driver cannot be started."""


class Process:
    """A driver that runs. Made by `start`. last_lines: the end of what it wrote, for messages."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.last_lines: deque[str] = deque(maxlen=_KEPT)
        self._silent = trio.Event()

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], nice: int) -> Process:
        """nice: how much nicer than this process it is. DriverError: there is no such command."""
        with trio.CancelScope(shield=True):  # a cancel in here would lose the process that was just made
            try:
                process = await trio.lowlevel.open_process(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **env},
                    process_group=0,
                )
            except OSError as error:
                raise DriverError(f"cannot start {command[0]}: {error}") from error
        started = cls(process)
        with suppress(ProcessLookupError, PermissionError):
            # At once, so that all that it starts has inherited it.
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)
        return started

    @property
    def pid(self) -> int:
        return self._process.pid

    async def log_output(self) -> None:
        """Every line that it writes becomes a line of the log, until it closes both its outputs."""
        async with trio.open_nursery() as nursery:
            for name in ("stdout", "stderr"):
                stream = getattr(self._process, name)
                nursery.start_soon(self._log_lines, name, stream)
        self._silent.set()

    async def said_all(self) -> None:
        """Until both its outputs are closed (by everyone who has them)."""
        await self._silent.wait()

    async def wait(self) -> str:
        """Until it has ended; says how: `exit code 1`, `SIGKILL`."""
        code = await self._process.wait()
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    async def end(self) -> None:
        """End the whole group: SIGTERM, and SIGKILL a moment later for what is left. Not cancelled."""
        with trio.CancelScope(shield=True):
            if self._signal(signal.SIGTERM):
                with trio.move_on_after(_TERM_SECONDS):
                    await self._process.wait()
            self._signal(signal.SIGKILL)
            with trio.move_on_after(_KILL_SECONDS):
                await self._process.wait()
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    await stream.aclose()

    def _signal(self, number: signal.Signals) -> bool:
        """Whether anybody of the group was there."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _log_lines(self, name: str, stream: trio.abc.ReceiveStream) -> None:
        rest = b""
        while True:
            try:
                chunk = await stream.receive_some()
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._say(name, line)
            if len(rest) > _LINE:
                self._say(name, rest)
                rest = b""
        self._say(name, rest)

    def _say(self, name: str, raw: bytes) -> None:
        line = raw[:_LINE].decode(errors="replace").rstrip()
        if not line:
            return
        self.last_lines.append(line)
        say = log.warning if _LOUD.search(line) else log.info
        say("driver says", stream=name, line=line, pid=self.pid)


OUTPUT_OF_IMPORT: Final = re.compile(r"ModuleNotFoundError: No module named '(pyspark|pyarrow|py4j)")
"""What a driver says whose extra is not installed."""
