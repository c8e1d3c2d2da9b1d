"""Every scenario of the benchmarks, small: what it gives has all its figures, and what was read is what was
produced. How fast it was does not matter here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.configuration import can
from benchmarks.report import rows
from benchmarks.rounds import rounds
from benchmarks.scenario import Scenario
from benchmarks.scenarios import SCENARIOS
from kiwi_gw.demo.broker import Broker

pytestmark = pytest.mark.integration

RUN = [scenario for scenario in SCENARIOS if scenario.needs is None or can(scenario.needs)]


@pytest.mark.parametrize("scenario", RUN, ids=[scenario.name for scenario in RUN])
async def test_a_small_round(scenario: Scenario, broker: Broker, tmp_path: Path) -> None:
    small = replace(scenario, sizes=replace(scenario.sizes, **scenario.small))
    lines: list[dict[str, Any]] = []
    said: list[str] = []
    assert await rounds(small, 1, broker, tmp_path, lines.append, said.append), said
    assert json.loads(json.dumps(lines)) == lines
    runs = [line for line in lines if "system" in line]
    assert runs
    assert not any(run["faults"] for run in runs)
    assert {run["scenario"] for run in runs} == {scenario.name}
    (figures,) = results.of_rounds(lines)
    assert {goal.figure for goal in scenario.goals} <= set(figures)
    assert len(rows(scenario, [figures])) == len(scenario.goals)
