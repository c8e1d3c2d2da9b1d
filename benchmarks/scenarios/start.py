"""How soon a gateway answers that has nothing but a counter."""

from __future__ import annotations

import json
import sys
import time

from benchmarks import procfs
from benchmarks.lab import Lab
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import CONFIG, START_SECONDS, first_health
from benchmarks.sizes import Sizes
from kiwi_demo.loopback import HOST
from kiwi_demo.process import Child

_COUNTER = {
    "server": {"address": f"{HOST}:0"},
    "sources": [{"type": "counter", "id": "ticks", "min": 0, "interval_ms": 1_000}],
}


async def startup(lab: Lab, sizes: Sizes) -> Figures:
    """Measure from the start of the process to the first answer of `/health`, and its CPU time."""
    lab.note.say("  start")
    folder = lab.new_folder()
    log, config = folder / "gateway.log", folder / CONFIG
    config.write_text(json.dumps(_COUNTER))
    begun = time.monotonic()
    child = await Child.start([sys.executable, "-m", "kiwi_gw", "run", "--config", str(config)], log)
    try:
        await first_health(child, log)
        seconds, cpu = time.monotonic() - begun, procfs.cpu_seconds(child.pid)
    finally:
        await child.end(START_SECONDS)
    lab.note.line({"system": "gateway", "seconds": seconds, "cpu": {"server": cpu}, "faults": []})
    return {"until /health": seconds * 1e3, "cpu": cpu * 1e3}


SCENARIOS = (
    Scenario(
        name="startup",
        says="a gateway with one counter, until /health answers",
        measure=startup,
        sizes=Sizes(),
        goals=(Goal("until /health", "ms", at_most=700.0), Goal("cpu", "ms")),
        small={"subscribers": 1},
    ),
)
