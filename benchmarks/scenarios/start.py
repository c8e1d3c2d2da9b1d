"""How long a gateway takes until it answers, with as little to do as there can be: one counter."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

import trio

from benchmarks.errors import RunFailed
from benchmarks.lab import Lab
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import CONFIG, START_SECONDS, listening
from benchmarks.sizes import Sizes
from kiwi_demo.gateway import healthy
from kiwi_demo.loopback import HOST
from kiwi_demo.process import Child, tail

_COUNTER = {"type": "counter", "min": 0, "interval_ms": 1_000}
_SERVER = {"address": f"{HOST}:0", "admin_address": f"{HOST}:0"}
_POLL = 0.002


async def startup(lab: Lab, sizes: Sizes) -> Figures:
    """Start a gateway and kill it once /health answers; then import Trio and nothing else. Before that, one
    start that does not count: it leaves the bytecode of all modules behind, as an installation does.

    sizes: as many counters as it has topics."""
    folder = lab.new_folder()
    config = folder / CONFIG
    counters = [_COUNTER | {"id": f"ticks-{number}"} for number in range(sizes.topics)]
    config.write_text(json.dumps({"sources": counters, "server": _SERVER}))
    command = ["-m", "kiwi_gw", "run", "--config", str(config)]
    await _until_health(command, folder / "first.log")
    seconds, cpu = await _until_health(command, folder / "gateway.log")
    _, cpu_of_trio = await _until_end(["-c", "import trio"], folder / "trio.log")
    used = {"server": cpu, "import trio": cpu_of_trio}
    lab.note.line({"system": "gateway", "seconds": seconds, "cpu": used, "faults": []})
    return {"until /health": seconds * 1_000, "cpu": cpu * 1_000, "cpu, of `import trio`": cpu / cpu_of_trio}


async def _until_health(command: Sequence[str], log: Path) -> tuple[float, float]:
    """Return the seconds until /health answers, and those of the processor."""
    cpu, began = _cpu_of_ended(), perf_counter()
    child = await _python(command, log)
    try:
        with trio.fail_after(START_SECONDS):
            while not (port := listening(log)):
                if child.returncode is not None:
                    raise RunFailed(f"the gateway ended with code {child.returncode}; {log}:{tail(log)}")
                await trio.sleep(_POLL)
            answers = await healthy(port, START_SECONDS)
        seconds = perf_counter() - began
    finally:
        await child.kill()
    if not answers:
        raise RunFailed("/health does not answer with 200")
    return seconds, _cpu_of_ended() - cpu


async def _until_end(command: Sequence[str], log: Path) -> tuple[float, float]:
    cpu, began = _cpu_of_ended(), perf_counter()
    child = await _python(command, log)
    if await child.wait():
        raise RunFailed(f"{command} has failed:{tail(log)}")
    return perf_counter() - began, _cpu_of_ended() - cpu


async def _python(command: Sequence[str], log: Path) -> Child:
    # Empty: bytecode is written, and read the next time.
    return await Child.start([sys.executable, *command], log, {"PYTHONDONTWRITEBYTECODE": ""})


def _cpu_of_ended() -> float:
    """Return user and system time of all children that have ended, to the microsecond."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


SCENARIOS = (
    Scenario(
        name="startup",
        says="a gateway with one counter, until /health answers",
        measure=startup,
        sizes=Sizes(),
        goals=(
            Goal("until /health", "ms", at_most=700.0),
            Goal("cpu", "ms"),
            Goal("cpu, of `import trio`", "x"),
        ),
        small={"topics": 1},
    ),
)
