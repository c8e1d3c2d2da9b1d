"""Everything mixed for a long time: does anything grow?"""

from __future__ import annotations

import statistics

import trio

from benchmarks import procfs
from benchmarks.lab import Lab
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import watched
from benchmarks.sizes import Sizes
from benchmarks.throughput import gateway

_SAMPLE_SECONDS = 1.0
_MIB = 1024 * 1024
_FILLING = 3
"""Minutes in which windows fill: 65,536 events at 500 a second, and what is encoded of them."""


async def soak(lab: Lab, sizes: Sizes) -> Figures:
    memory, files = list[float](), list[int]()

    async def watch(pid: int) -> None:
        while True:
            memory.append(procfs.resident_bytes(pid) / _MIB)
            files.append(procfs.descriptors(pid))
            await trio.sleep(min(_SAMPLE_SECONDS, sizes.seconds / 20))

    run = await gateway(lab, sizes, lambda server, _: watched(server, watch))
    lab.checked(
        "gateway", sizes, run, memory_mib=_thinned(memory), descriptors=files[:: max(1, len(files) // 60)]
    )
    minute = max(1, len(memory) // sizes.periods)
    p99 = [one for one in run.delays["periods"] if one is not None]
    before = min(_FILLING, sizes.periods - 2)
    settled = memory[before * minute : (before + 1) * minute]
    return {
        "p99, first minute": p99[0],
        "p99, last minute": p99[-1],
        "p99, last / first": p99[-1] / max(p99[0], 0.01),
        "memory, last minute": statistics.fmean(memory[-minute:]),
        "memory, growth with full windows": statistics.fmean(memory[-minute:]) - statistics.fmean(settled),
        "descriptors, growth": statistics.median(files[-minute:]) - statistics.median(files[:minute]),
        "connections that went and came": run.counts.get("left", 0),
        "server cpu per delivery": run.cpu_each,
    }


def _thinned(values: list[float]) -> list[float]:
    return [round(value, 1) for value in values[:: max(1, len(values) // 60)]]


SCENARIOS = (
    Scenario(
        name="soak",
        says="10 minutes of 500 records/s to 100 push and pull subscribers, of which 10 go and others come "
        "every 10 seconds, beside 10 that do not read",
        measure=soak,
        sizes=Sizes(
            rate=500, seconds=600.0, periods=10, delays=20, stalled=10, mode="mixed", credits=1_000, churn=1.0
        ),
        goals=(
            Goal("p99, first minute", "ms"),
            Goal("p99, last minute", "ms"),
            Goal("p99, last / first", "x", at_most=1.1),
            Goal("memory, last minute", "MiB"),
            Goal("memory, growth with full windows", "MiB", at_most=5.0),
            Goal("descriptors, growth", at_most=0),
            Goal("connections that went and came"),
            Goal("server cpu per delivery", "us"),
        ),
        small={
            "subscribers": 10,
            "rate": 300,
            "seconds": 3.0,
            "periods": 3,
            "delays": 4,
            "stalled": 2,
            "churn": 4.0,
        },
        repeat=1,
    ),
)
