"""What most gateways do all day, in one table: few records or many, to one client or to a hundred, beside
what the plain peer takes for the same.

    python -m benchmarks everyday                 # every row
    python -m benchmarks everyday-100-to-1        # one of them

Most rows are runs of other scenarios with targets of their own. What is to be no worse than it was has its
target as a ratio to the peer of the same round, as machines differ: the medians of November 2026.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.lab import Lab
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.scenarios import delays, fast, history, many_sources, start
from benchmarks.sizes import Sizes
from benchmarks.throughput import compare, gateways, run

GROUP = "everyday"
_GATEWAYS = 4
_SCENARIOS: dict[str, Scenario] = {
    one.name: one for part in (delays, fast, history, many_sources, start) for one in part.SCENARIOS
}
_EACH = Goal("server cpu per delivery", "us")
_BESIDE_PEER = compare("gateway", "peer")


async def four_gateways(lab: Lab, sizes: Sizes) -> Figures:
    """Measure one gateway with all subscribers, then four with a quarter of them each."""
    one = await run(lab, "gateway", sizes)
    lab.note.say(f"  {_GATEWAYS} gateways")
    four = await gateways(lab, sizes, _GATEWAYS)
    lab.checked("gateway", sizes, four, gateways=_GATEWAYS)
    return {
        "of one gateway, by cpu": four.per_cpu / one.per_cpu,
        "server cpu": four.cpu["server"] / four.seconds,
        "server cpu of one gateway": one.cpu["server"] / one.seconds,
        "server cpu per delivery": four.cpu_each,
    }


def _row(name: str, of: str, *goals: Goal, **changes: Any) -> Scenario:
    """Make a row of a scenario of this name. changes: what is different in it."""
    return replace(_SCENARIOS[of], name=f"{GROUP}-{name}", group=GROUP, goals=goals, repeat=None, **changes)


def _at_a_rate(name: str, of: str, cpu: float, p50: float, p99: float, **changes: Any) -> Scenario:
    """Make a row. cpu: the most, as part of a core. p50, p99: the most, in ms."""
    goals = (
        Goal("server cpu", "%", at_most=cpu),
        Goal("p50", "ms", at_most=p50),
        Goal("p99", "ms", at_most=p99),
    )
    return _row(name, of, *goals, _EACH, **changes)


def _bulk(name: str, of: str, target: Goal, **changes: Any) -> Scenario:
    return _row(name, of, Goal("deliveries", "/s"), target, _EACH, **{"measure": _BESIDE_PEER, **changes})


SCENARIOS = (
    _at_a_rate(
        "100-to-1",
        "latency",
        *(0.12, 2.3, 6.0),
        says="100 records/s to one subscriber",
        sizes=Sizes(subscribers=1, rate=100, seconds=20.0, delays=1, warm=500, steady=500),
        small={"rate": 100, "seconds": 1.0, "warm": 50},
    ),
    _at_a_rate("500-to-100", "latency", 0.50, 2.7, 7.5),
    _at_a_rate("10000-to-1", "latency-single", 0.38, 2.0, 5.0),
    _at_a_rate("8000-to-100", "latency-8000", 0.63, 5.0, 15.0),
    _bulk(
        "bulk-to-1",
        "single",
        Goal("deliveries per cpu second", "/s", at_least=200_000),
        says="as fast as possible, to one subscriber",
    ),
    _bulk(
        "bulk-to-100",
        "fanout",
        Goal("deliveries per cpu second", "/s", times_peer=46.7),
        says="as fast as possible, to 100 subscribers",
    ),
    _bulk(
        "bulk-to-1000",
        "fanout-1000",
        Goal("deliveries per cpu second", "/s", times_peer=96.2),
        says="as fast as possible, to 1,000 subscribers",
    ),
    _bulk(
        "replay",
        "replay",
        Goal("deliveries per cpu second", "/s", times_peer=4.4),
        says="a million records from Kafka's history to one subscriber, beside the peer's live ones",
        measure=history.compared,
        sizes=Sizes(subscribers=1, records=1_000_000, warm=1_000, peer_part=10),
        small={"records": 4_000, "warm": 400},
    ),
    *(
        _row(
            f"pull-{credit}",
            f"pull-{credit}",
            Goal("of push, by cpu", "%", at_least=least),
            Goal("deliveries", "/s"),
            Goal("deliveries per cpu second", "/s"),
            _EACH,
        )
        for credit, least in ((1_000, 0.7), (10_000, 0.9))
    ),
    Scenario(
        name=f"{GROUP}-gateways",
        group=GROUP,
        says="5,000 records/s to 400 subscribers, 100 at each of four gateways, against all at one",
        measure=four_gateways,
        sizes=Sizes(subscribers=400, rate=5_000, warm=25_000, steady=25_000),
        goals=(
            Goal("of one gateway, by cpu", "%", at_least=0.88),
            Goal("server cpu", "%"),
            Goal("server cpu of one gateway", "%"),
            _EACH,
        ),
        small={"subscribers": 8, "rate": 1_000, "seconds": 1.0, "warm": 400, "steady": 400},
    ),
    _row(
        "topics",
        "sources",
        Goal("server cpu", "%", at_most=0.40),
        Goal("p99", "ms", at_most=60.0),
        Goal("server cpu, idle", "%", at_most=0.02),
        Goal("p50", "ms"),
        _EACH,
        says="20 records/s of each of 100 topics of 4 partitions to one subscriber each; idle",
        measure=many_sources.at_a_rate,
    ),
    _row("startup", "startup", Goal("until /health", "ms", at_most=700.0), Goal("cpu", "ms")),
)
