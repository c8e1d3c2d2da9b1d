from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import plots, report, results
from benchmarks.configuration import configuration, merged
from benchmarks.profile import table
from benchmarks.run import Run, System
from benchmarks.scenario import Goal
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import Sizes
from benchmarks.throughput import BARE, figures
from kiwi_gw.config.schema import CoreSettings
from tests.doc_blocks import replaced

FANOUT = next(one for one in SCENARIOS if one.name == "fanout")


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
    {"gateway": run(2_000_000, server=0.5), "ceiling": run(4_000_000), "best ceiling": run(8_000_000)},
]


def test_ratios_are_of_one_round() -> None:
    first, _, last = map(figures, ROUNDS)
    assert first["of the ceiling"] == 0.75
    assert first["times the peer"] == 30.0
    assert last["of the ceiling, by cpu"] == 1.0
    assert last["load client alone"] == 8.0  # 16 M/s per second of its own against 2 M/s
    assert "times the peer" not in last
    assert figures({"peer": run(1)}) == {}


def test_a_row_is_the_median_beside_its_target() -> None:
    rows = report.rows(FANOUT, [figures(one) for one in ROUNDS])
    by_figure = {row[1]: row[2:] for row in rows}
    assert rows[0] == ("fanout", "deliveries", "", "2,000,000/s (1,000,000/s to 3,000,000/s)", "", "", "")
    assert by_figure["of the ceiling"] == (">= 60%", "50% (25% to 75%)", "no", "", "")
    assert by_figure["times the peer"][2] == "no"
    assert by_figure["load client alone"][2] == "yes"


def test_beside_a_figure_stands_the_peers_and_the_median_of_the_ratios() -> None:
    rows = report.rows(FANOUT, [figures(one) for one in ROUNDS])
    assert {row[1]: row[5:] for row in rows}["deliveries per cpu second"] == ("75,000/s", "25.0x")


@pytest.mark.parametrize(("least", "reached"), [(25.0, "yes"), (25.1, "no")])
def test_a_target_may_be_a_ratio_to_the_peer(least: float, reached: str) -> None:
    goal = Goal("deliveries per cpu second", "/s", times_peer=least)
    rounds = [figures(one) for one in ROUNDS]
    ((_, _, target, _, found, *_),) = report.rows(replace(FANOUT, goals=(goal,)), rounds)
    assert (target, found) == (f">= {least}x the peer's", reached)
    ((*_, found, _, _),) = report.rows(replace(FANOUT, goals=(goal,)), rounds[2:])
    assert found == "no"  # without a peer nobody knows


@pytest.mark.parametrize(
    ("goal", "value", "reached"),
    [
        (Goal("a", at_least=2.0), 2.0, True),
        (Goal("a", at_least=2.0), 1.9, False),
        (Goal("a", at_most=0.0), 0.0, True),
        (Goal("a", at_most=2.0), 2.1, False),
        (Goal("a"), 5.0, None),
    ],
)
def test_whether_a_target_is_reached(goal: Goal, value: float, reached: bool | None) -> None:
    assert goal.reached(value) is reached


def test_text_and_markdown_have_every_goal_that_was_measured() -> None:
    rounds = [figures(one) for one in ROUNDS]
    first, second, heads, *lines = report.text([(FANOUT, rounds), (FANOUT, rounds[:1])])
    assert first.startswith("fanout: ")
    assert second.startswith("fanout: ")
    assert heads.split()[:2] == ["scenario", "figure"]
    assert len(lines) == 2 * len(FANOUT.goals) - 2  # the second one has no best ceiling
    assert report.markdown([(FANOUT, rounds)]).count("\n") == len(FANOUT.goals) + 2


def test_the_page_has_the_part_once() -> None:
    assert replaced(report.PAGE.read_text(), report.PART, "")


def test_every_scenario_is_whole() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        assert scenario.says
        assert len({goal.figure for goal in scenario.goals}) == len(scenario.goals)
        assert scenario.small


def test_a_line_is_json_with_everything_that_was_measured() -> None:
    said = json.loads(json.dumps(run(4_000_000).said()))
    assert said["deliveries_per_s"] == 4_000_000
    assert said["faults"] == []


def test_saved_lines_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    with (tmp_path / "out").open("w") as out:
        log = results.Log("fanout", True, out)
        log.add({"scenario": "fanout", "round": 1, "figures": {"deliveries": 3.0}})
        log.add({"scenario": "fanout", "round": 2, "void": "wrong"})
        log.close()
    assert results.saved("fanout") == log.lines
    assert results.of_rounds(log.lines) == [{"deliveries": 3.0}]
    assert results.saved("single") == []


def test_points_of_the_plots_are_medians() -> None:
    fast: list[dict[str, object]] = [
        {"system": "gateway", "subscribers": 10, "delays": {}, "deliveries_per_s": rate} for rate in (1, 9, 4)
    ]
    slow = [
        {"system": "gateway", "subscribers": 10, "rate": 100, "delays": {"p50": 1.0, "p99": p99}}
        for p99 in (2.0, 4.0)
    ]
    assert plots.throughput([*fast, *slow]) == {"gateway": {10: 4}}
    assert plots.delays([*fast, *slow], "p99") == {10: {100: 3.0}}


@pytest.mark.extended
@pytest.mark.integration
def test_plots_are_drawn_and_the_same_again(tmp_path: Path) -> None:
    lines = [
        {"system": "gateway", "subscribers": 10, "delays": {}, "deliveries_per_s": 5},
        {"system": "gateway", "subscribers": 10, "rate": 100, "delays": {"p50": 1.0, "p99": 2.0}},
    ]
    plots.draw(lines, tmp_path)
    assert plots.drawn(tmp_path) == list(plots.PLOTS.items())
    first = {name: (tmp_path / f"{name}.svg").read_bytes() for name in plots.PLOTS}
    plots.draw(lines, tmp_path)
    assert first == {name: (tmp_path / f"{name}.svg").read_bytes() for name in plots.PLOTS}
    assert all((tmp_path / f"{name}.png").stat().st_size < 100_000 for name in plots.PLOTS)


def test_settings_are_merged_key_by_key() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "d": 5}) == {"a": {"b": 1, "c": 4}, "d": 5}
    made = configuration(Sizes(settings={"server": {"drain_ms": 1}}), ["t"], "127.0.0.1:9092")
    assert made["server"] == {"address": "127.0.0.1:0", "drain_ms": 1}


def test_the_bare_gateway_has_no_metrics_and_no_limits() -> None:
    settings = CoreSettings.model_validate(BARE)
    limits = settings.server.limits
    assert not settings.metrics.enabled
    assert not any(
        (
            limits.max_connections,
            limits.max_subscriptions,
            limits.max_fragments,
            limits.commands_per_second,
            limits.requests_per_second,
            limits.stall_timeout_ms,
            limits.vanished_after_ms,
        )
    )


def test_a_profile_by_function() -> None:
    file = "/x/site-packages/aiokafka/conn.py"
    samples = [
        (3, [(file, 1, "read"), (file, 2, "main")]),
        (1, [("/y/kiwi_gw/core/source_hub.py", 7, "publish")]),
    ]
    lines = table("fanout", samples)
    alone = lines.index("\n  by function, without what it calls")
    assert lines[alone + 1 : alone + 3] == [
        "   75.0%  aiokafka/conn.py:read",
        "   25.0%  kiwi_gw/core/source_hub.py:publish",
    ]
    assert "   75.0%  aiokafka/conn.py:main" in lines
