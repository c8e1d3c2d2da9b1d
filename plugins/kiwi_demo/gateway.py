"""The demo's gateway: the real command in a process of its own, on the demo's configuration."""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import trio
import yaml

from kiwi_demo.process import Child, tail
from kiwi_gw.errors import KiwiError

HOST = "127.0.0.1"
_READY_POLL = 0.05
_STUCK_SECONDS = 15.0
"""So long without progress, and it is not waited for."""
_LEAST_WORK = 1 / 30
"""Of a processor's time: an idle gateway uses less."""
_GRACE_SECONDS = 6.0
_STACK_LINES = 40


class GatewayFailed(KiwiError):  # noqa: N818  (it says what happened)
    """Report that the gateway did not start, or ended by itself. The message has the end of its log."""


def demo_config() -> Path:
    """Find `demo.yml`: of the clone that this package is run from, else the one that is installed."""
    packages = Path(__file__).parents[1]
    in_clone = packages.parent / "config" / "demo.yml"
    return in_clone if in_clone.is_file() else packages / "kiwi_gw" / "examples" / "demo.yml"


def without_spark(config: Path, folder: Path) -> Path:
    """Write the configuration without what needs Spark into a folder. Returns the file."""
    wanted = yaml.safe_load(config.read_text())
    wanted["sources"] = [source for source in wanted["sources"] if source["type"] != "spark"]
    del wanted["spark"]
    file = folder / config.name
    file.write_text(yaml.safe_dump(wanted, sort_keys=False))
    return file


class Gateway:
    """Run the gateway on a configuration; it can be ended and started again, on the same port.

    bootstrap: of the broker. admin_port: of `/metrics` and its like; 0: any free one. folder: for its log and
    for Spark's checkpoints.
    """

    def __init__(self, config: Path, bootstrap: str, port: int, folder: Path, admin_port: int = 0) -> None:
        self.log = folder / "gateway.log"
        self._command: list[str | Path] = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "kiwi_gw",
            "run",
            "--config",
            config,
        ]
        self._port = port
        self._environment = {
            "KIWI_DEMO_BOOTSTRAP": bootstrap,
            "KIWI_DEMO_PORT": str(port),
            "KIWI_DEMO_ADMIN_PORT": str(admin_port),
            "KIWI_DEMO_STATE": str(folder / "state"),
            "KIWI_DEMO_AIRLINES": str(demo_config().with_name("airlines.csv")),
        }
        self._child: Child | None = None

    async def start(self) -> None:
        """Start it; return when it is healthy. Raises GatewayFailed."""
        self._child = await Child.start(self._command, self.log, self._environment)
        await wait_healthy(self._child, self._port, self.log)

    async def end(self) -> None:
        """End it in order, if it runs."""
        if self._child is not None:
            await self._child.end(_GRACE_SECONDS)

    async def raise_when_ended(self) -> None:
        """Wait for its end; raise GatewayFailed then."""
        assert self._child is not None  # noqa: S101  (it was started)
        await self._child.wait()
        raise ended(self._child, self.log)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()


async def wait_healthy(child: Child, port: int, log: Path, stuck: float = _STUCK_SECONDS) -> None:
    """Return when the gateway answers. However slow the machine is, it is waited for as long as it goes on.

    Raises GatewayFailed, with its log, if it ended, or neither wrote a line nor worked for `stuck` seconds.
    In the latter case the log has the stack that it was stuck in.
    """
    size, worked, since = 0, 0.0, trio.current_time()
    while not await healthy(port):
        if child.returncode is not None:
            raise ended(child, log)
        size_now, worked_now = os.stat(log).st_size, _processor_seconds(child.pid)
        if size_now > size or worked_now >= worked + _LEAST_WORK * stuck:
            size, worked, since = size_now, worked_now, trio.current_time()
        elif trio.current_time() - since > stuck:
            child.signal(signal.SIGABRT)  # Python's faulthandler writes its stack to the log
            with trio.move_on_after(_GRACE_SECONDS):
                await child.wait()
            raise GatewayFailed(
                f"the gateway does not answer on port {port}, and did nothing for {stuck:g} s; its log, with "
                f"where it was stuck:{tail(log, _STACK_LINES)}"
            )
        await trio.sleep(_READY_POLL)


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process. Where there is no /proc, time itself counts as progress."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(child: Child, log: Path) -> GatewayFailed:
    """Return the error of a gateway that ended by itself."""
    return GatewayFailed(f"the gateway ended with code {child.returncode}; its log:{tail(log)}")


async def healthy(port: int, within: float = 2.0) -> bool:
    """Return whether `GET /health` on `port` is answered with 200."""

    def ask() -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=within)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    with trio.move_on_after(within):
        return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
    return False
