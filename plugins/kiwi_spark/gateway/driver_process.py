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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog
import trio

from kiwi_gw.api import KiwiError

log = structlog.get_logger("kiwi_spark.driver")

_RECORD_SECONDS = 0.2
"""So long after its last line a record may have another one."""
_KEPT = 20
_LOUD = re.compile(r"\b(?:WARN|ERROR|FATAL)\b(?: [A-Z]\w*(?=:))?")
"""What is bad, and which part of Spark says so. Not what a function of the user says: that may be new for
every record, and then nothing would limit it."""
_OWN_ERROR = "ERROR "
"""How what the driver's Python says begins that is bad. (What Spark says begins with a time.)"""
_CHATTER = re.compile(
    r"Using incubator modules|Using Spark's default log4j profile"
    r"|WARN Utils: (Your hostname|Set SPARK_LOCAL_IP)|NativeCodeLoader: Unable to load native-hadoop"
    r"|^Setting (default|Spark) log level|^To adjust logging level"
    r"|INFO SparkContext: (Running Spark version|OS info|Java version)"
    # When a query is stopped:
    r"|TaskSetManager: .*Lost task .*TaskKilled|DAGScheduler: .*Failed to cancel job group"
)
"""What Spark says at every start and stop, and nobody need do anything about."""
_TERM_SECONDS, _KILL_SECONDS = 0.7, 5.0
OUTPUT_OF_IMPORT: Final = re.compile(r"ModuleNotFoundError: No module named '(pyspark|pyarrow|py4j)")
"""What a driver says whose extra is not installed."""

LONGEST: Final = 8 * 1024
"""Bytes of a record. Of a longer line, and of a longer stack, the rest is left out, and it says how much."""

_CONTINUES: Final = re.compile(
    rb"\s|Caused by: |Suppressed: |Traceback \(most recent call last\)"
    rb"|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b"
)
"""How a line begins that belongs to the one before it. The last: what Java threw, below what was said."""
_PYTHON: Final = re.compile(rb"(^|: )Traceback \(most recent call last\):")


class OutputRecords:
    """Makes records of what a process writes: bytes in, whole records out. A line with the stack of Java or
    Python below it is one of them."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._cut = 0
        self._record = bytearray()
        self._left_out = 0
        self._in_python = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Return the records that are whole now. The last line may have others below it still: see `idle`."""
        *lines, last = data.split(b"\n")
        for line in lines:
            self._add(line)
            yield from self._take()
        self._add(last)

    def idle(self) -> Iterator[str]:
        """Return the record, if it is whole, once nothing came for a while."""
        if self._record and not self._line:
            yield self._end()

    def close(self) -> Iterator[str]:
        """Return what is left: nothing more will come."""
        if self._line:
            yield from self._take()
        yield from self.idle()

    def _add(self, part: bytes) -> None:
        room = LONGEST - len(self._line)
        self._line += part[:room]
        self._cut += max(0, len(part) - room)

    def _take(self) -> Iterator[str]:
        """Take a whole line. It begins a record, which ends the one before, or belongs to that."""
        line, cut = bytes(self._line), self._cut
        self._line.clear()
        self._cut = 0
        if not line.strip() and not self._record:
            return
        belongs = not line.strip() or _CONTINUES.match(line) is not None or self._in_python
        if self._record and not belongs:
            yield self._end()
        # What Python raised stands in the first line below its stack that is not indented.
        self._in_python = bool(_PYTHON.search(line)) or (self._in_python and line[:1].isspace())
        room = LONGEST - len(self._record)
        if self._record and line.strip():
            line = b"\n" + line
        self._record += line[:room]
        self._left_out += cut + max(0, len(line) - room)

    def _end(self) -> str:
        text = self._record.decode(errors="replace").rstrip()
        if self._left_out:
            text += f" ... ({self._left_out} bytes more)"
        self._record.clear()
        self._left_out, self._in_python = 0, False
        return text


class DriverError(KiwiError):
    """The driver cannot be started."""


class DriverProcess:
    """A driver that runs. Made by `start`. last_lines: the end of what it wrote, for messages."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.last_lines: deque[str] = deque(maxlen=_KEPT)
        self._silent = trio.Event()
        self._records = {"stdout": OutputRecords(), "stderr": OutputRecords()}

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], nice: int) -> DriverProcess:
        """Start one. nice: how nice it is, never less than this process. DriverError: there is no such
        command."""
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
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, process.pid, max(own, nice))
        return started

    @property
    def pid(self) -> int:
        return self._process.pid

    async def log_output(self) -> None:
        """Make a line of the log of every record that it writes, until it closes both its outputs."""
        async with trio.open_nursery() as nursery:
            for name, records in self._records.items():
                nursery.start_soon(self._log, name, records, getattr(self._process, name))
        self._silent.set()

    async def said_all(self) -> None:
        """Wait until both its outputs are closed, by every process that has them."""
        await self._silent.wait()

    async def wait(self) -> str:
        """Wait until it has ended. Returns how: `exit code 1`, `SIGKILL`."""
        code = await self._process.wait()
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    async def end(self) -> None:
        """End the whole group: SIGTERM, and SIGKILL a moment later for what is left. Not cancelled.

        Return when all of it is gone and writes no files any more: on a busy machine a JVM takes a while to
        die. A process that is left has one of the outputs open still.
        """
        with trio.CancelScope(shield=True):
            if self._signal(signal.SIGTERM):
                with trio.move_on_after(_TERM_SECONDS):
                    await self._process.wait()
            self._signal(signal.SIGKILL)
            with trio.move_on_after(_KILL_SECONDS):
                await self._process.wait()
                await self.log_output()
            for name, records in self._records.items():
                for record in records.close():
                    self._say(name, record)
                await getattr(self._process, name).aclose()

    def _signal(self, number: signal.Signals) -> bool:
        """Signal the group. Return whether any process of it was there."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _log(self, name: str, records: OutputRecords, stream: trio.abc.ReceiveStream) -> None:
        while True:
            chunk: bytes | bytearray = b""
            with trio.move_on_after(_RECORD_SECONDS) as waited:
                try:
                    chunk = await stream.receive_some()
                except (trio.ClosedResourceError, trio.BrokenResourceError):
                    break
            if not chunk and not waited.cancelled_caught:
                break
            for record in records.feed(bytes(chunk)) if chunk else records.idle():
                self._say(name, record)

    def _say(self, name: str, record: str) -> None:
        if _CHATTER.search(record) is not None:
            log.debug("driver says", stream=name, line=record, pid=self.pid)
            return
        self.last_lines.append(record)
        loud = _LOUD.search(record)
        if loud is None:
            log.info("driver says", stream=name, line=record, pid=self.pid)
        elif record.startswith(_OWN_ERROR):
            log.error("driver says", stream=name, problem=loud[0], line=record, pid=self.pid)
        else:  # what one part of Spark repeats does not keep others from being heard
            log.warning("driver says", stream=name, problem=loud[0], line=record, pid=self.pid)
