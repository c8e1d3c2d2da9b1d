"""How long a record takes from the producer to the subscriber, at a fixed rate."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.lab import Lab
from benchmarks.run import Run
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.sizes import Sizes
from benchmarks.throughput import run

_PEER_CAN = 60_000
"""Deliveries per second that the plain peer is still asked for: beyond them its delays only say that it
cannot follow."""


async def delays(lab: Lab, sizes: Sizes) -> Figures:
    """Measure the gateway and, where that can follow, the plain peer at the same rate: how much of a delay is
    the broker, the machine and its other guests."""
    found = of(await run(lab, "gateway", sizes))
    if sizes.rate * sizes.subscribers <= _PEER_CAN:
        peer = of(await run(lab, "peer", replace(sizes, peer_part=1)))
        found |= {f"{name} of the peer": value for name, value in peer.items()}
    return found


def of(one: Run) -> dict[str, float]:
    """Return what a run at a rate gives."""
    return {
        "p50": one.delays["p50"],
        "p99": one.delays["p99"],
        "p99.9": one.delays["p999"],
        "producer late, p99": one.late["p99"],
        "server cpu": one.cpu.get("server", 0.0) / one.seconds,
        "server cpu per delivery": one.cpu_each,
        "client cpu": one.cpu["client"] / one.seconds,
    }


async def stalled(lab: Lab, sizes: Sizes) -> Figures:
    without = await run(lab, "gateway", replace(sizes, stalled=0))
    beside = await run(lab, "gateway", sizes)
    return {
        "p99 beside them": beside.delays["p99"],
        "p99 without": without.delays["p99"],
        "p99 beside / without": beside.delays["p99"] / max(without.delays["p99"], 0.01),
        "still connected": beside.counts.get("stalled_intact", 0),
        "server cpu per delivery": beside.cpu_each,
    }


SWEEP = {1: (100, 1_000, 10_000, 40_000), 10: (100, 1_000, 10_000, 30_000)} | {
    100: (100, 500, 2_000, 8_000),
    1_000: (20, 100, 400, 1_000),
}
"""Subscribers, and the rates (records/s) at which delays are measured with so many."""


async def sweep(lab: Lab, sizes: Sizes) -> Figures:
    """Make the runs that the plots show; as figures it gives how much of each there was."""
    found: dict[str, float] = {}
    for subscribers, rates in SWEEP.items():
        if subscribers > sizes.subscribers:
            continue
        lab.slices.clear()
        records = sizes.records if subscribers == 1 else max(500, sizes.records // max(4, subscribers // 4))
        many = replace(sizes, subscribers=subscribers, records=records, rate=0, delays=0)
        for system in ("gateway", "best ceiling", "peer"):
            one = await run(lab, system, many)
            found[f"{system}, {subscribers:,}"] = one.rate
        for rate in rates:
            if rate <= sizes.rate:
                warm = 2 * rate  # two seconds
                at_rate = replace(sizes, subscribers=subscribers, rate=rate, delays=subscribers)
                at_rate = replace(at_rate, warm=warm, steady=warm)
                one = await run(lab, "gateway", at_rate)
                found[f"p99, {subscribers:,}, {rate:,}/s"] = one.delays["p99"]
    return found


def _goals(most: float) -> tuple[Goal, ...]:
    return (
        Goal("p50", "ms"),
        Goal("p99", "ms", at_most=most),
        Goal("p99.9", "ms"),
        Goal("producer late, p99", "ms"),
        Goal("server cpu", "%"),
        Goal("server cpu per delivery", "us"),
    )


_SMALL = {"seconds": 1.0, "warm": 100}

SCENARIOS = (
    Scenario(
        name="latency",
        says="500 records/s to 100 subscribers",
        measure=delays,
        sizes=Sizes(rate=500, delays=100, warm=2_500, steady=2_500),
        goals=_goals(5.0),
        small=_SMALL | {"subscribers": 5, "rate": 200},
    ),
    Scenario(
        name="latency-8000",
        says="8,000 records/s to 100 subscribers",
        measure=delays,
        sizes=Sizes(rate=8_000, delays=100, warm=40_000, steady=40_000),
        goals=_goals(10.0),
        small=_SMALL | {"subscribers": 5, "rate": 2_000},
    ),
    Scenario(
        name="latency-single",
        says="10,000 records/s to one subscriber",
        measure=delays,
        sizes=Sizes(subscribers=1, rate=10_000, delays=1, warm=50_000, steady=50_000),
        goals=_goals(6.0),
        small=_SMALL | {"rate": 1_000},
    ),
    Scenario(
        name="stalled",
        says="10,000 records/s to 100 subscribers, with and without 100 more that never read",
        measure=stalled,
        sizes=Sizes(rate=10_000, delays=100, stalled=100, warm=50_000, steady=50_000),
        goals=(
            Goal("p99 beside / without", "x", at_most=1.5),
            Goal("p99 beside them", "ms"),
            Goal("p99 without", "ms"),
            Goal("still connected", at_least=100),
            Goal("server cpu per delivery", "us"),
        ),
        small=_SMALL | {"subscribers": 4, "stalled": 4, "rate": 1_000, "delays": 4},
    ),
    Scenario(
        name="sweep",
        says="throughput, and delays over the rate, for 1 to 1,000 subscribers (the plots)",
        measure=sweep,
        sizes=Sizes(subscribers=1_000, records=200_000, rate=40_000, seconds=5.0, warm=1_000, peer_part=10),
        goals=(),
        small={
            "subscribers": 1,
            "records": 1_000,
            "rate": 100,
            "seconds": 0.5,
            "warm": 100,
            "slices": (65_536,),
        },
        repeat=3,
    ),
)
