"""Child processes that cannot outlive us.

A child runs in a process group of its own, so that Ctrl-C in a terminal reaches only us and we end it
in order. It keeps our session: on Linux the kernel shares the cores between sessions, and a child in
another one would be measured unfairly.

If we are killed without a chance to end it, its *leash* does: a shell that waits for the end of a pipe
whose other end only we hold, and then kills the child's group. (Linux's parent death signal is no
help: it is sent when the *thread* that started the child ends, and Trio starts children in threads.)
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from kiwi_gw.errors import KiwiError

_LEASH = 'read -r _; kill -9 "-$1" 2>/dev/null'


class ProcessError(KiwiError):
    """Report a child process that did not start, or ended when it should not have."""


class Child:
    """Hold one child process with its group and its leash. Make it with `Child.start`."""

    def __init__(self, process: trio.Process, leash: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._leash = leash

    @classmethod
    async def start(
        cls, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> Child:
        """Start `command`; append its output to `log`. `env` is added to our environment."""
        process = await cls._open(command, log, env)
        try:
            leash = subprocess.Popen(  # noqa: ASYNC220, S603  (returns at once; the arguments are ours)
                ["/bin/sh", "-c", _LEASH, "leash", str(process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            process.kill()
            raise
        return cls(process, leash)

    @staticmethod
    async def _open(command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None) -> trio.Process:
        words = [str(word) for word in command]
        whole_env = None if env is None else {**os.environ, **env}
        # Shielded: a cancel in here would lose the process that was just made.
        with trio.CancelScope(shield=True), log.open("ab") as output:
            try:
                return await trio.lowlevel.open_process(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=whole_env,
                    process_group=0,
                )
            except OSError as error:
                raise ProcessError(f"cannot start {words[0]}: {error}") from error
        raise AssertionError("unreachable")  # a cancel scope may swallow a cancel, as mypy sees it

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, unless the child has ended. After a SIGSTOP it has stopped."""
        if self.returncode is None:
            os.killpg(self.pid, number)
            if number == signal.SIGSTOP:  # its threads stop one after the other
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    async def wait(self) -> int:
        """Return the exit code once the child has ended (its leash is then let go)."""
        code = await self._process.wait()
        self._let_go()
        return code

    async def end(self, grace: float = math.inf) -> int:
        """Send SIGTERM, then SIGKILL after `grace` seconds. Not cancelled before the child has ended.

        A cancel shortens the grace: the child is then killed at once.
        """
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would not see the SIGTERM
        try:
            with trio.move_on_after(grace):
                await self.wait()
        finally:
            if self.returncode is None:
                await self.kill()
        return await self.wait()

    async def kill(self) -> int:
        """Send SIGKILL; return when the child has ended. Not cancelled before that."""
        self.signal(signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await self.wait()
        return await self.wait()

    def _let_go(self) -> None:
        if self._leash.poll() is None:
            self._leash.kill()
            self._leash.wait()
        if self._leash.stdin is not None:
            self._leash.stdin.close()


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log file, indented, for an error message; empty if there is none."""
    if not log.exists():
        return ""
    text = log.read_bytes()[-16_384:].decode(errors="replace").splitlines()[-lines:]
    return "".join(f"\n    {line}" for line in text)
