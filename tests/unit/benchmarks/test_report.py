from __future__ import annotations

import json

import pytest

from benchmarks import report
from benchmarks.runs import Run, configuration
from benchmarks.scenarios import SCENARIOS, System

FANOUT = SCENARIOS[0]


def run(rate: int, server: float = 1.0, client: float = 0.5) -> Run:
    return Run(
        deliveries=rate,
        records=rate // 100,
        seconds=1.0,
        cpu={"server": server, "client": client},
        faults=[],
        control={},
        frame=470.0,
        receive=60_000,
    )


ROUNDS: list[dict[System, Run]] = [
    {"gateway": run(3_000_000), "ceiling": run(4_000_000), "peer": run(100_000)},
    {"gateway": run(1_000_000), "ceiling": run(4_000_000), "peer": run(50_000)},
    {"gateway": run(2_000_000, server=0.5), "ceiling": run(4_000_000)},
]


def test_a_ratio_is_the_median_of_what_each_round_gave() -> None:
    assert report.ratio(ROUNDS, "gateway", "ceiling") == (0.5, 0.25, 0.75)
    assert report.ratio(ROUNDS, "gateway", "peer") == (25.0, 20.0, 30.0)
    assert report.ratio(ROUNDS, "gateway", "getmany") is None


def test_a_ratio_by_processor_time() -> None:
    assert report.ratio(ROUNDS, "gateway", "ceiling", "per_cpu") == (0.75, 0.25, 1.0)


def test_the_headroom_of_the_load_client_is_that_of_the_run_in_which_it_was_busiest() -> None:
    busy: dict[System, Run] = {"gateway": run(1_000_000, client=0.8), "ceiling": run(4_000_000, client=1.0)}
    assert report.headroom([*ROUNDS, busy]) == pytest.approx(1.25)


def test_a_line_is_json_with_everything_that_was_measured() -> None:
    line = json.loads(report.line(FANOUT, "ceiling", 2, run(4_000_000), 65_536))
    assert line["scenario"] == "fanout"
    assert line["system"] == "ceiling"
    assert line["round"] == 2
    assert line["deliveries_per_s"] == 4_000_000
    assert line["slice"] == 65_536
    assert line["faults"] == []


def test_a_table_has_a_line_per_system_and_straight_columns() -> None:
    title, heads, *rows = report.table(FANOUT, ROUNDS)
    assert "100 subscribers" in title
    assert [row.split()[0] for row in rows] == ["gateway", "ceiling", "peer"]
    assert "2,000,000" in rows[0]
    assert "50% (25% - 75%)" in rows[0]
    column = heads.index("deliveries/s") + len("deliveries/s")
    assert all(row[column - 1] == "0" and row[column] == " " for row in rows)


def test_every_scenario_has_a_gateway_and_something_to_compare_it_with() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        assert {"gateway", "ceiling"} <= set(scenario.systems)
        assert scenario.of("ceiling").mode == "push"
        assert scenario.of("gateway") == scenario


def test_the_window_holds_the_whole_run() -> None:
    settings = configuration(FANOUT, "t", "127.0.0.1:9092", 8000)
    assert settings["window"]["events"] >= FANOUT.total  # type: ignore[index]
