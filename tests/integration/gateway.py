"""The gateway as its users run it: the command in a process of its own, on a configuration file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio
import yaml

Line = dict[str, Any]
"""One line of the log, as JSON."""

_STARTS_WITHIN = 60.0
_STOPS_WITHIN = 15.0


def _own_starved_seconds() -> float:
    """Return how long all threads of this process together were ready to run and had no processor."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            found += int((task / "schedstat").read_text().split()[1])
    return found / 1e9


class GatewayProcess:
    """A gateway that runs. log: its JSON lines so far; other: what else it wrote to stderr.

    addresses: where it listens, with the real ports. started: `time.monotonic()` before it was started.
    """

    def __init__(self, process: trio.Process, config: Path, started: float) -> None:
        self.process = process
        self.config = config
        self.started = started
        self.log: list[Line] = []
        self.other: list[str] = []
        self.addresses: list[str] = []
        self._more = trio.lowlevel.ParkingLot()
        self._ended = False
        self._starved = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        """ "host:port" of its first TCP address."""
        return next(address for address in self.addresses if not address.startswith("unix:"))

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def logged(self, event: str, *, count: int = 1, **fields: object) -> Line:
        """Until the log has `count` lines with this event and these fields; returns the last of them."""
        lines = await self.until(
            lambda line: line["event"] == event and all(line.get(key) == fields[key] for key in fields), count
        )
        return lines[count - 1]

    async def until(self, wanted: Callable[[Line], bool], count: int = 1) -> list[Line]:
        """Until the log has `count` lines that are wanted; returns all of them."""
        while True:
            found = [line for line in self.log if wanted(line)]
            if len(found) >= count:
                return found
            if self._ended:
                raise AssertionError(f"the gateway has ended without what was waited for: {self.tail()}")
            await self._more.park()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        with trio.fail_after(_STOPS_WITHIN):
            return await self.process.wait()

    def starved_seconds(self) -> float:
        """How long its main thread was ready to run and had no processor: what else this machine did. The
        last answer, once the process has ended."""
        with suppress(FileNotFoundError, ProcessLookupError):
            self._starved = int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        return self._starved

    def waiting(self) -> Callable[[], float]:
        """Return what says for how many seconds from now on it, and this process, had no processor."""
        before = self.starved_seconds() + _own_starved_seconds()
        return lambda: max(0.0, self.starved_seconds() + _own_starved_seconds() - before)

    def memory(self) -> tuple[int, int]:
        """Resident bytes now, and at most so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        now, peak = (re.search(rf"^{key}:\s+(\d+) kB", status, re.MULTILINE) for key in ("VmRSS", "VmHWM"))
        assert now is not None
        assert peak is not None
        return int(now[1]) * 1024, int(peak[1]) * 1024

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tail(self) -> str:
        return "\n".join([*(json.dumps(line) for line in self.log[-20:]), *self.other[-20:]])

    async def listen_to(self, stream: trio.abc.ReceiveStream) -> None:
        """Read its log until it ends."""
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._hear(line.decode())
            self._more.unpark_all()
        self._ended = True
        self._more.unpark_all()

    def _hear(self, line: str) -> None:
        with self.config.with_name("gateway.log").open("a") as file:  # for who looks into why a test failed
            file.write(f"{line}\n")
        if line.startswith("{"):
            found = json.loads(line)
            self.log.append(found)
            if found["event"] == "gateway listens":
                self.addresses = found["addresses"]
        else:
            self.other.append(line)


@asynccontextmanager
async def gateway(
    folder: Path,
    config: Mapping[str, object] | str,
    *,
    env: Mapping[str, str] | None = None,
    expected_errors: Collection[str] = (),
    killed: bool = False,
    within: Sequence[str] = (),
) -> AsyncIterator[GatewayProcess]:
    """A gateway on `config`, written to `folder`/kiwi-gw.yml; it listens when the block begins. within: words
    before its command, of a program that becomes it.

    At the end it is stopped, if it still runs, and must then leave with code 0 (killed: the test has killed
    it with -9), and with no errors of ours in its log but for the events named in `expected_errors`.
    """
    path = folder / "kiwi-gw.yml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)))
    # Other gateways run on this machine; a test that looks at the admin address says where it is.
    elsewhere = {} if "admin_address" in path.read_text() else {"KIWI_GW_SERVER__ADMIN_ADDRESS": "null"}
    command = [*within, sys.executable, "-m", "kiwi_gw", "run", "--config", str(path)]
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, **elsewhere, **(env or {})},
        )
        started = time.monotonic()
        process = await nursery.start(run, command)
        running = GatewayProcess(process, path, started)
        nursery.start_soon(running.listen_to, process.stderr)
        with trio.fail_after(_STARTS_WITHIN):
            await running.logged("gateway listens")
        yield running
        code = process.poll() if process.poll() is not None else await running.stop()
    assert code == (-signal.SIGKILL if killed else 0), running.tail()
    for line in running.log:
        # The Kafka client writes about every try to connect, and Spark's driver that its JVM was killed.
        ours = line["logger"].startswith("kiwi") and line["logger"] != "kiwi_spark.driver"
        bad = ours and line["level"] in ("error", "critical") and line["event"] not in expected_errors
        assert not bad, line


def kafka_config(bootstrap: str, topic: str, **sections: object) -> dict[str, object]:
    """The configuration of a gateway with one topic, on a free port of loopback."""
    return {
        "server": {"address": "127.0.0.1:0"},
        "kafka": {"bootstrap_servers": bootstrap},
        "sources": [{"type": "kafka", "topic": topic}],
        **sections,
    }
