"""Every kind of scenario of the benchmarks, small: what it gives has all its figures, and what was read is
what was produced. How fast it was does not matter here."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.configuration import can
from benchmarks.lab import Lab, Note
from benchmarks.report import rows
from benchmarks.rounds import rounds
from benchmarks.scenario import Scenario
from benchmarks.scenarios import SCENARIOS, beside
from benchmarks.spark import Kept
from benchmarks.target import Target
from kiwi_demo.broker import Broker

pytestmark = [pytest.mark.integration, pytest.mark.extended]

ALIKE = {
    "everyday-100-to-1": "latency",
    "everyday-500-to-100": "latency",
    "everyday-10000-to-1": "latency",
    "everyday-8000-to-100": "latency",
    "latency-8000": "latency",
    "latency-single": "latency",
    "everyday-bulk-to-1": "everyday-bulk-to-100",
    "everyday-bulk-to-1000": "everyday-bulk-to-100",
    "fanout-1000": "fanout",
    "everyday-pull-1000": "pull-1000",
    "everyday-pull-10000": "pull-1000",
    "pull-10000": "pull-1000",
    "everyday-startup": "startup",
    "rest-single": "rest",
    "spark-all": "spark-filter",
    "spark-window": "spark-filter",
    "spark-freshness-at-once": "spark-freshness",
    "spark-freshness-window": "spark-freshness",
}
"""Scenarios that differ in numbers from another, and are not run: its figures must do for their goals."""

OWN = [scenario for scenario in SCENARIOS if scenario.name not in ALIKE]
WITH_SPARK = [scenario for scenario in OWN if scenario.name.startswith("spark-")]
FEWER = {
    "beside": beside.scenario("beside", "some of them", ("eight scans", "a flood")),
    "beside-fan-out": beside.scenario("beside-fan-out", "one", ("a fan-out of 50/s",)),
}
"""Three runs of several processes for each kind: those that differ from these in numbers are left out."""
RUN = [
    FEWER.get(scenario.name, scenario)
    for scenario in OWN
    if scenario not in WITH_SPARK and (scenario.needs is None or can(scenario.needs))
]


def test_what_is_not_run_is_measured_as_another_is() -> None:
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    for name, other in ALIKE.items():
        measured, run = by_name[name].measure, by_name[other].measure
        assert getattr(measured, "__code__", measured) is getattr(run, "__code__", run)


@pytest.mark.parametrize("scenario", RUN, ids=lambda scenario: scenario.name)
async def test_a_small_round(scenario: Scenario, broker: Broker, tmp_path: Path) -> None:
    await small_round(scenario, broker, tmp_path)


@pytest.mark.timeout(900)
async def test_small_rounds_with_spark(broker: Broker, tmp_path: Path) -> None:
    """One after the other in one driver and one plain PySpark: each takes 10 s and more to start."""
    async with AsyncExitStack() as stack:
        kept = Kept(stack)
        for scenario in WITH_SPARK:
            await small_round(scenario, broker, tmp_path / scenario.name, kept)


async def small_round(scenario: Scenario, broker: Broker, folder: Path, kept: Kept | None = None) -> None:
    small = replace(scenario, sizes=replace(scenario.sizes, **scenario.small))
    lines: list[dict[str, Any]] = []
    said: list[str] = []
    assert await rounds(small, 1, broker, folder, lines.append, said.append, kept=kept), said
    assert all(json.loads(json.dumps(line))["scenario"] == scenario.name for line in lines)
    runs = [line for line in lines if "system" in line]
    assert runs
    assert not any(run["faults"] for run in runs)
    (figures,) = results.of_rounds(lines)
    alike = [scenario, *(one for one in SCENARIOS if ALIKE.get(one.name) == scenario.name)]
    assert {goal.figure for one in alike for goal in one.goals} <= set(figures)
    assert len(rows(scenario, [figures])) == len(scenario.goals)


async def test_a_server_that_somebody_else_has_started(broker: Broker, tmp_path: Path) -> None:
    """Twice on one topic: the second run begins behind the records of the first."""
    lines: list[dict[str, Any]] = []
    fanout = next(one for one in SCENARIOS if one.name == "fanout")
    sizes = replace(fanout.sizes, **fanout.small)
    other = Lab(broker, tmp_path / "other", Note(lines.append, lambda text: None))
    async with other.topics(sizes) as (topic,), other.gateway(sizes, [topic]) as server:
        target = Target.at(f"ws://{server.host}:{server.port}/kiwi", topic, topic, broker.bootstrap)
        small = replace(fanout, sizes=sizes)
        assert await rounds(
            small, 2, broker, tmp_path, lines.append, lambda text: None, only=("target",), target=target
        )
    assert [line["system"] for line in lines if "system" in line] == ["target", "target"]
    assert [set(figures) for figures in results.of_rounds(lines)] == [
        {"deliveries", "records", "client headroom", "deliveries per cpu second", "server cpu per delivery"}
    ] * 2
