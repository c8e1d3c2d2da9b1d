"""What honest clients notice of clients beside them that use all that they may (S7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import trio

from benchmarks import procfs
from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab
from benchmarks.process import started
from benchmarks.procfs import Meter
from benchmarks.run import Run
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import START_SECONDS, Server, watched
from benchmarks.sizes import Sizes
from benchmarks.throughput import gateway

_MIB: Final = 1024 * 1024
_LOOKS: Final = 0.25
"""Seconds between two looks at the memory."""

_NEVER: Final = frozenset(("1003", "1007", "1008", "1009", "1011", "1013"))
"""Codes that none of them may be closed with: they do nothing but what is permitted."""


@dataclass(slots=True)
class _Seen:
    """Hold, for one run, the most that the gateway held, and that its process for queries did. Also what the
    attackers were answered, and what they used of the processor themselves."""

    most_bytes: int = 0
    beside_bytes: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    cpu: float = 0.0

    async def watch(self, pid: int) -> None:
        """Watch until cancelled."""
        while True:
            self.most_bytes = max(self.most_bytes, procfs.resident_bytes(pid))
            for each in procfs.family(pid)[1:]:
                with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                    self.beside_bytes = max(self.beside_bytes, procfs.resident_bytes(each))
            await trio.sleep(_LOOKS)


async def attackers(lab: Lab, sizes: Sizes) -> Figures:
    """Make two runs: a gateway alone with its subscribers, and one with attackers beside them."""
    without, alone = await _run(lab, replace(sizes, attackers=0))
    beside, seen = await _run(lab, sizes)
    if wrong := _NEVER & seen.answers.keys():
        raise RunVoid(f"attackers were closed with {', '.join(sorted(wrong))}: {seen.answers}")
    return {
        "p99 beside / without": beside.delays["p99"] / max(without.delays["p99"], 0.01),
        "memory beside them": (seen.most_bytes - alone.most_bytes) / _MIB,
        "of the process for queries": (seen.beside_bytes - alone.beside_bytes) / _MIB,
        "p99 beside them": beside.delays["p99"],
        "p99 without": without.delays["p99"],
        "p50 beside them": beside.delays["p50"],
        "p50 without": without.delays["p50"],
        "server cpu beside them": beside.cpu["server"] / beside.seconds,
        "server cpu without": without.cpu["server"] / without.seconds,
        "server cpu per delivery": without.cpu_each,
        "attackers cpu": seen.cpu / beside.seconds,
    }


async def _run(lab: Lab, sizes: Sizes) -> tuple[Run, _Seen]:
    seen = _Seen()
    run = await gateway(lab, sizes, partial(_attacked, lab, sizes, seen))
    return lab.checked(
        "gateway", sizes, run, answers=seen.answers, most=[seen.most_bytes, seen.beside_bytes]
    ), seen


@asynccontextmanager
async def _attacked(
    lab: Lab, sizes: Sizes, seen: _Seen, server: Server, topics: Sequence[str]
) -> AsyncIterator[None]:
    """Run attackers, if there are any, during the warm-up and the run. Their results are then in `seen`."""
    if not sizes.attackers:
        async with watched(server, seen.watch):
            yield
        return
    settings = {
        "port": server.port,
        "seconds": sizes.steady / sizes.rate + sizes.seconds,
        "attackers": sizes.attackers,
        "seed": 1,
        "source": topics[0],
    }
    async with started("attackers", settings, lab.new_folder()) as them:
        await them.hear("ready", START_SECONDS)
        await them.tell()
        meter = Meter({"attackers": them.pid})
        async with watched(server, seen.watch):
            yield
        seen.answers = await them.hear("answers", RUN_SECONDS)
        seen.cpu = meter.used()["attackers"]


SCENARIOS = (
    Scenario(
        name="attackers",
        says="100 records/s to 100 subscribers, with and without 10 more that use all they may",
        measure=attackers,
        sizes=Sizes(rate=100, seconds=60.0, delays=100, warm=500, steady=500, attackers=10),
        goals=(
            Goal("p99 beside / without", "x", at_most=2.0),
            Goal("memory beside them", "MiB", at_most=64.0),
            Goal("of the process for queries", "MiB"),
            Goal("p99 beside them", "ms"),
            Goal("p99 without", "ms"),
            Goal("p50 beside them", "ms"),
            Goal("p50 without", "ms"),
            Goal("server cpu beside them", "%"),
            Goal("server cpu without", "%"),
            Goal("server cpu per delivery", "us"),
            Goal("attackers cpu", "%"),
        ),
        small={"seconds": 2.0, "warm": 100, "steady": 100, "subscribers": 5, "rate": 100, "attackers": 6},
        repeat=3,
    ),
)
