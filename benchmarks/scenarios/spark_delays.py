"""How soon the rows of Spark sources are there, in real time and in micro-batches, and what sources cost to
which nothing comes.

Beside every delay stands that of plain PySpark, which runs the same query in the same mode and brings its
rows to a process that only reads them (`workers.rows_taker`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks import spark_rates
from benchmarks.errors import RunVoid
from benchmarks.lab import Lab
from benchmarks.scenario import Figures, Goal, Measure, Scenario
from benchmarks.sizes import Sizes
from benchmarks.spark_queries import AT_ONCE, FRESH, FRESH_WINDOW, SparkQuery, Trigger, every, real_time

_HALF_A_SECOND = every("500 ms")
_CHECKPOINTS = 10.0
_SHORTEST = 5.0
"""Seconds from one checkpoint to the next, at least, says Spark."""
_MANY = 4
_PER_KIND = 5


def _in_real_time(sizes: Sizes) -> Trigger:
    """Return a trigger with which several checkpoints come in a run, if it is not a very small one."""
    return real_time(max(_SHORTEST, min(_CHECKPOINTS, sizes.seconds / 3)))


def freshness(query: SparkQuery, trigger: Callable[[Sizes], Trigger]) -> Measure:
    """Measure from the making of a record to its row, in plain PySpark and through the gateway."""

    async def measure(lab: Lab, sizes: Sizes) -> Figures:
        plain = await spark_rates.plain_at_a_rate(lab, query, sizes, trigger(sizes))
        ours = await spark_rates.at_a_rate(lab, query, sizes, trigger(sizes))
        found: dict[str, float] = {}
        for name in ("p50", "p99"):
            found[name] = ours["fresh"][name]
            found[f"{name} of plain"] = plain["fresh"][name]
            found[f"{name}, beyond plain"] = ours["fresh"][name] - plain["fresh"][name]
        if trigger(sizes).get("real_time"):
            if not ours["around"]["checkpoints"]:
                raise RunVoid("no checkpoint came in the run")
            found["longest near a checkpoint"] = ours["around"]["near"]
            found["longest near a checkpoint, of plain"] = plain["around"]["near"]
            found["longest elsewhere"] = ours["around"]["elsewhere"]
        return found

    return measure


async def idle(lab: Lab, sizes: Sizes) -> Figures:
    """Measure the cores that are used while nothing comes, by the driver with its JVM."""
    many, gateway = await spark_rates.idle(lab, sizes, real_time(60), _MANY)
    one, _ = await spark_rates.idle(lab, sizes, real_time(60), 1)
    at_once, _ = await spark_rates.idle(lab, sizes, AT_ONCE, _MANY)
    usual, _ = await spark_rates.idle(lab, sizes, _HALF_A_SECOND, _MANY)
    return {
        "4 in real time": many,
        "1 in real time": one,
        "4 in micro-batches, trigger 0 s": at_once,
        "4 in micro-batches, trigger 500 ms": usual,
        "gateway beside 4 in real time": gateway,
    }


async def ten(lab: Lab, sizes: Sizes) -> Figures:
    """Measure queries of both kinds beside each other: the median of their p50, and the worst p99."""
    triggers = [real_time(_CHECKPOINTS)] * _PER_KIND + [_HALF_A_SECOND] * _PER_KIND
    results = await spark_rates.beside_each_other(lab, FRESH, sizes, triggers)
    found: dict[str, float] = {}
    for kind, of_kind in (("real time", results[:_PER_KIND]), ("micro-batches", results[_PER_KIND:])):
        fresh = [one["fresh"] for one in of_kind]
        found[f"p50, {kind}"] = statistics.median(one["p50"] for one in fresh)
        found[f"p99, {kind}"] = max(one["p99"] for one in fresh)
    return found


def _delays(p50: float | None = None, p99: float | None = None, beyond: float | None = None) -> list[Goal]:
    """Return the goals of all scenarios of freshness, with their targets."""
    return [
        Goal("p50", "ms", at_most=p50),
        Goal("p50 of plain", "ms"),
        Goal("p50, beyond plain", "ms", at_most=beyond),
        Goal("p99", "ms", at_most=p99),
        Goal("p99 of plain", "ms"),
        Goal("p99, beyond plain", "ms"),
    ]


SCENARIOS = (
    Scenario(
        name="spark-real-time",
        says="from the making of a record to its row, 500 records/s, a query without state in real time, a "
        "checkpoint every 10 s, beside plain PySpark",
        measure=freshness(FRESH, _in_real_time),
        sizes=Sizes(subscribers=1, rate=500, seconds=30.0, warm=15_000, steady=15_000),
        goals=(
            *_delays(p50=10.0, p99=40.0),
            Goal("longest near a checkpoint", "ms", at_most=250.0),
            Goal("longest near a checkpoint, of plain", "ms"),
            Goal("longest elsewhere", "ms"),
        ),
        small={"rate": 100, "seconds": 7.0, "warm": 100, "steady": 0},
    ),
    Scenario(
        name="spark-freshness",
        says="the same query in micro-batches, trigger 500 ms, 200 records/s",
        measure=freshness(FRESH, lambda _: _HALF_A_SECOND),
        sizes=Sizes(subscribers=1, rate=200, seconds=20.0, warm=12_000, steady=12_000),
        goals=(*_delays(beyond=50.0),),
        small={"seconds": 2.0, "warm": 100},
    ),
    Scenario(
        name="spark-freshness-at-once",
        says="the same in micro-batches, trigger 0 s, 500 records/s",
        measure=freshness(FRESH, lambda _: AT_ONCE),
        sizes=Sizes(subscribers=1, rate=500, seconds=20.0, warm=15_000, steady=15_000),
        goals=(*_delays(beyond=50.0),),
        small={"seconds": 2.0, "warm": 100},
    ),
    Scenario(
        name="spark-freshness-window",
        says="from the making of the newest record of a group to its row, a query that counts by windows of "
        "time and a column, trigger 0 s, 500 records/s",
        measure=freshness(FRESH_WINDOW, lambda _: AT_ONCE),
        sizes=Sizes(subscribers=1, rate=500, seconds=20.0, warm=15_000, steady=15_000),
        goals=(*_delays(beyond=50.0),),
        small={"seconds": 2.0, "warm": 100},
    ),
    Scenario(
        name="spark-idle",
        says="the share of a core that the driver with its JVM uses for queries to which nothing comes, of 4 "
        "partitions each",
        measure=idle,
        sizes=Sizes(subscribers=1, seconds=20.0),
        goals=(
            Goal("4 in real time", "%", at_most=0.15),
            Goal("1 in real time", "%"),
            Goal("4 in micro-batches, trigger 0 s", "%"),
            Goal("4 in micro-batches, trigger 500 ms", "%"),
            Goal("gateway beside 4 in real time", "%"),
        ),
        small={"seconds": 1.0},
    ),
    Scenario(
        name="spark-ten",
        says="from the making of a record to its row, ten queries beside each other, five in real time and "
        "five in micro-batches (500 ms), 50 records/s each",
        measure=ten,
        sizes=Sizes(subscribers=1, rate=50, seconds=20.0, warm=1_500, steady=1_500, partitions=3),
        goals=(
            Goal("p50, real time", "ms"),
            Goal("p99, real time", "ms"),
            Goal("p50, micro-batches", "ms"),
            Goal("p99, micro-batches", "ms"),
        ),
        small={"rate": 20, "seconds": 2.0, "warm": 20, "steady": 0},
    ),
)
