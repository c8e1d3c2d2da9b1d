"""All scenarios, in the order of the report."""

from __future__ import annotations

from benchmarks.scenario import Scenario
from benchmarks.scenarios import (
    attackers,
    beside,
    crowds,
    delays,
    everyday,
    fast,
    history,
    many_sources,
    publish,
    queries,
    rest,
    scan,
    soak,
    spark,
    spark_delays,
    start,
)

SCENARIOS: tuple[Scenario, ...] = (
    *everyday.SCENARIOS,
    *fast.SCENARIOS,
    *delays.SCENARIOS,
    *crowds.SCENARIOS,
    *attackers.SCENARIOS,
    *history.SCENARIOS,
    *many_sources.SCENARIOS,
    *queries.SCENARIOS,
    *publish.SCENARIOS,
    *rest.SCENARIOS,
    *scan.SCENARIOS,
    *beside.SCENARIOS,
    *soak.SCENARIOS,
    *spark.SCENARIOS,
    *spark_delays.SCENARIOS,
    *start.SCENARIOS,
)
