"""A gateway that outlives the loop of a single test: many tests share it, for Spark takes long to start."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import trio

from tests.edge.admin import fetch
from tests.integration.client import Client, client
from tests.integration.gateway import GatewayProcess, Line, gateway
from tests.integration.held import Held
from tests.integration.spark.late_flights import small
from tests.topics import Record

PATIENCE = 150.0
"""Seconds. Whatever takes longer will not come any more: Spark takes 10 s to start on an idle machine."""

HERE = str(Path(__file__).parent)

SCHEMA = "a INT, s STRING"

READY = "spark driver is ready"
"""What the log says when a driver can run queries."""

WITHIN_TESTS: Mapping[str, object] = {
    # The clients of tests answer no pings.
    "server": {
        "address": "127.0.0.1:0",
        "admin_address": "127.0.0.1:0",
        "limits": {"ping_interval_ms": "550s", "dead_after_ms": "560s"},
    },
    "subscriber": {"subscribe_timeout_ms": f"{PATIENCE:.0f}s"},
}


def spark_section(folder: Path, **more: object) -> dict[str, object]:
    """A small Spark with its checkpoints in `folder`/state."""
    return {
        "master": "local[2]",
        "checkpoint_dir": str(folder / "state"),
        "conf": small(),
        "python_path": [HERE],
        "nice": 0,
        **more,
    }


def query(source_id: str, topic: str, *, more: Mapping[str, object] | None = None, **stream: object) -> Any:
    """A source of type spark that selects the column `a` of a topic. stream: settings of its input `flights`;
    more: other settings, and other inputs."""
    given = dict(more or {})
    others: Any = given.pop("inputs", {})
    words = {} if "transform" in given else {"sql": "SELECT a FROM flights"}
    flights = {"source": topic, "schema": SCHEMA, "start": "earliest", **stream}
    return {
        "type": "spark",
        "id": source_id,
        "inputs": {"flights": flights, **others},
        "trigger": {"processing_time": "300 ms"},
        **words,
        **given,
    }


def numbers(first: int, count: int, s: str | None = None) -> list[Record]:
    """Records with a = first, first + 1, ..."""
    return [Record(json.dumps({"a": a, "s": s}).encode()) for a in range(first, first + count)]


def values(reader: Client) -> list[Any]:
    """What `a` was in the events so far, in their order."""
    return [result["value"]["a"] for result in reader.results]


def driver_of(running: GatewayProcess) -> int:
    """Process id of a gateway's driver, once there is one."""
    pid: int = [line for line in running.log if line["event"] == READY][-1]["pid"]
    return pid


def java_of(running: GatewayProcess) -> int:
    """Process id of that driver's JVM."""
    (found,) = (one for one in psutil.Process(driver_of(running)).children() if one.name() == "java")
    return int(found.pid)


class HeldGateway(Held[GatewayProcess]):
    """running: the gateway. options: those of `gateway`."""

    def __init__(self, folder: Path, config: Mapping[str, object], **options: Any) -> None:
        super().__init__("gateway", partial(gateway, folder, config, **options))

    @property
    def running(self) -> GatewayProcess:
        assert self._held is not None
        return self._held

    @property
    def address(self) -> str:
        return self.running.address

    async def logged(self, event: str, *, count: int = 1, **fields: object) -> Line:
        """Until the log has `count` lines with this event and these fields; returns the last of them."""
        return await self._until(lambda line: _is(line, event, fields), count, f"{event!r} {fields}")

    async def source(self, source_id: str) -> dict[str, Any]:
        """What the admin address says of a source."""
        admin = (await self.logged("gateway listens"))["admin"]
        (found,) = (one for one in (await fetch(admin, "/sources"))["sources"] if one["id"] == source_id)
        return dict(found)

    def lines(self, event: str, **fields: object) -> list[Line]:
        """The lines of its log with this event and these fields, so far."""
        return [line for line in self.running.log if _is(line, event, fields)]

    def driver(self) -> int:
        """Process id of the driver, once there is one."""
        return driver_of(self.running)

    def java(self) -> int:
        """Process id of the driver's JVM."""
        return java_of(self.running)

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Whatever takes longer will not come any more; the log says why."""
        with trio.move_on_after(PATIENCE) as scope:
            yield
        assert not scope.cancelled_caught, self.running.tail()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While the block runs the driver, its JVM and all that belongs to it stand still."""
        group = self.driver()
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)

    async def _until(self, wanted: Callable[[Line], bool], count: int, what: str) -> Line:
        async def wait() -> Line:
            with trio.move_on_after(PATIENCE):
                return (await self.running.until(wanted, count))[count - 1]
            raise AssertionError(f"the log has no {what}: {self.running.tail()}")

        return await self.do(wait, abandon=True)


async def failed(gateway: HeldGateway, source_id: str, words: str) -> None:
    """That a source has failed, and everyone is told why: the log, the admin address, who subscribes."""
    line = await gateway.logged("source failed", source=source_id)
    assert words in line["error"]
    assert "\tat " not in line["error"], "Spark's words without its stack"
    found = await gateway.source(source_id)
    assert (found["state"], found["error"]) == ("failed", line["error"])
    async with client(gateway.address, source_id) as reader:
        await reader.say("SUBSCRIBE", mode="push")
        error = (await reader.reply("SUBSCRIBE_ERROR"))["data"]
    assert line["error"] in error["error"]


def _is(line: Line, event: str, fields: Mapping[str, object]) -> bool:
    return line["event"] == event and all(line.get(key) == value for key, value in fields.items())


def in_group(group: int) -> list[int]:
    """The processes that are still in a process group."""
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except ProcessLookupError:
            continue
    return found


def exactly(found: Sequence[Any], *expected: range) -> bool:
    """Whether these are the numbers of the ranges, each once, in whatever order."""
    return sorted(found) == [number for one in expected for number in one]
