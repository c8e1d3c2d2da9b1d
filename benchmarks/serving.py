"""The gateway as a process: started on a configuration, ready when all its sources are."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from benchmarks.errors import RunFailed
from benchmarks.workers.subscriber import trusting
from kiwi_demo.gateway import healthy
from kiwi_demo.loopback import HOST
from kiwi_demo.process import Child, tail

START_SECONDS = 60.0
CONFIG = "kiwi.yml"
"""The name of the configuration file in the folder of a gateway."""
_POLL = 0.02
_SHORT_POLL = 0.002


@dataclass(frozen=True, slots=True)
class Server:
    """Say where subscribers connect. pid: None where it is not ours. ca: its authority, for TLS."""

    port: int
    pid: int | None
    host: str = HOST
    path: str = "/"
    ca: Path | None = None
    child: Child | None = None


@asynccontextmanager
async def watched(server: Server, watch: Callable[[int], Awaitable[None]]) -> AsyncIterator[None]:
    """Have `watch` look at the process of our server while the block runs."""
    assert server.pid is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, server.pid)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def gateway(
    folder: Path,
    settings: Mapping[str, object],
    module: Sequence[str],
    ca: Path | None,
    *,
    running: bool = True,
) -> AsyncIterator[Server]:
    """Run a gateway with this configuration. folder: for it and for the log. module: what is run, with what
    arguments before those of the gateway. ca: the authority of its certificate, if it has one. running:
    whether all its sources run when the block begins; else it listens."""
    log, config = folder / "gateway.log", folder / CONFIG
    config.write_text(json.dumps(settings))
    child = await Child.start([sys.executable, "-m", *module, "run", "--config", str(config)], log)
    try:
        port = 0
        with trio.move_on_after(START_SECONDS) as waiting:
            while not (port and (not running or await trio.to_thread.run_sync(_ready, port, ca))):
                if child.returncode is not None:
                    raise RunFailed(f"the gateway ended with code {child.returncode}; {log}:{tail(log)}")
                await trio.sleep(_POLL)
                port = port or listening(log)
        if waiting.cancelled_caught:
            raise RunFailed(f"the gateway is not ready; {log}:{tail(log)}")
        yield Server(port, child.pid, ca=ca, child=child)
    finally:
        await child.end(START_SECONDS)


def listening(log: Path) -> int:
    """Return the port that a gateway has found for itself, as its log says; 0 as long as it does not."""
    for text in log.read_text().splitlines(keepends=True):
        if text.endswith("\n") and text.startswith("{"):
            line = json.loads(text)
            if line["event"] == "gateway listens":
                return int(line["addresses"][0].rpartition(":")[2])
    return 0


async def first_health(child: Child, log: Path) -> int:
    """Return the port of a gateway that was just started, as soon as its `/health` is answered."""
    port = 0
    with trio.move_on_after(START_SECONDS):
        while not (port and await healthy(port, 5.0)):
            if child.returncode is not None:
                raise RunFailed(f"the gateway ended with code {child.returncode}; {log}:{tail(log)}")
            await trio.sleep(_SHORT_POLL)
            port = port or listening(log)
        return port
    raise RunFailed(f"the gateway does not answer; {log}:{tail(log)}")


def _ready(port: int, ca: Path | None) -> bool:
    """Return whether `/readyz` says that all sources run."""
    ready, states = sources(port, ca)
    return ready and all(state == "running" for state in states.values())


def sources(port: int, ca: Path | None = None) -> tuple[bool, dict[str, str]]:
    """Return whether a gateway is ready, and the states of its sources."""
    connection = (
        http.client.HTTPConnection(HOST, port, timeout=2.0)
        if ca is None
        else http.client.HTTPSConnection(HOST, port, timeout=2.0, context=trusting(str(ca)))
    )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        found = json.load(answer)["sources"]
    except (OSError, http.client.HTTPException):
        return False, {}
    finally:
        connection.close()
    return answer.status == 200, {source["id"]: source["state"] for source in found}
