"""What the runs of a scenario say: one JSON line a run, and a table of medians and ratios."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.runs import Run
from benchmarks.scenarios import OURS, Scenario, System

Rounds = Sequence[Mapping[System, Run]]
"""The rounds of one scenario: in each, one run of every system, one after the other."""


def line(scenario: Scenario, system: System, number: int, run: Run, slice_bytes: int) -> str:
    """One run as a line of JSON. slice_bytes: what the ceiling sent in one call; 0: does not apply."""
    facts: dict[str, Any] = {
        "scenario": scenario.name,
        "system": system,
        "round": number,
        "subscribers": scenario.of(system).subscribers,
        "size": scenario.size,
        "partitions": scenario.partitions,
        "mode": scenario.of(system).mode,
        "deliveries_per_s": round(run.rate),
        "records_per_s": round(run.records_rate),
        "deliveries_per_server_cpu_s": round(run.per_cpu),
        **asdict(run),
        "seconds": round(run.seconds, 4),
        "slice": slice_bytes,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
    }
    return json.dumps(facts)


def ratio(
    rounds: Rounds, system: System, other: System, per: str = "rate"
) -> tuple[float, float, float] | None:
    """How many times as fast one system is as the other: the median over the rounds, the least, the most.

    Only what was measured in the same round is compared. None where one of the two was not run.
    per: the figure of a `Run` that is compared.
    """
    found = [
        getattr(one[system], per) / getattr(one[other], per)
        for one in rounds
        if system in one and other in one
    ]
    return (statistics.median(found), min(found), max(found)) if found else None


def headroom(rounds: Rounds) -> float:
    """How many times as much the load client could have read in the gateway's runs: how seldom it was busy.

    The least of all runs. Below 2, what was measured may be the client.
    """
    ours = [one[system] for one in rounds for system in OURS if system in one]
    return min(run.seconds / max(run.cpu["client"], 0.01) for run in ours)


def table(scenario: Scenario, rounds: Rounds) -> list[str]:
    """Medians and ratios of a scenario, as lines of text."""
    who = "one subscriber" if scenario.subscribers == 1 else f"{scenario.subscribers:,} subscribers"
    title = (
        f"{scenario.name} ({who}): {scenario.says}; {scenario.records:,} records of {scenario.size} bytes "
        f"in {scenario.partitions} partitions, medians of {len(rounds)} (least - most)"
    )
    rows: list[tuple[str, ...]] = [("", "deliveries/s", "records/s", *_RATIOS, "bytes/recv", "cpu seconds")]
    rows += [_row(system, rounds) for system in dict.fromkeys(system for one in rounds for system in one)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:-1], widths[1:-1]), row[-1]])
        for row in rows
    ]
    return [title, *(f"  {row}".rstrip() for row in aligned)]


def _row(system: System, rounds: Rounds) -> tuple[str, ...]:
    runs = [one[system] for one in rounds if system in one]
    cpu = {name: statistics.median(run.cpu[name] for run in runs) for name in runs[0].cpu}
    return (
        system,
        f"{statistics.median(run.rate for run in runs):,.0f}",
        f"{statistics.median(run.records_rate for run in runs):,.0f}",
        *(shown(ratio(rounds, system, other, per)) for other, per, shown in _RATIOS.values()),
        f"{statistics.median(run.receive for run in runs):,.0f}",
        ", ".join(f"{name} {used:.2f}" for name, used in cpu.items()),
    )


def _percent(found: tuple[float, float, float] | None) -> str:
    return "-" if found is None else f"{found[0]:.0%} ({found[1]:.0%} - {found[2]:.0%})"


def _times(found: tuple[float, float, float] | None) -> str:
    return "-" if found is None else f"{found[0]:.1f} ({found[1]:.1f} - {found[2]:.1f})"


_RATIOS: dict[str, tuple[System, str, Callable[[tuple[float, float, float] | None], str]]] = {
    "of ceiling": ("ceiling", "rate", _percent),
    "by its cpu": ("ceiling", "per_cpu", _percent),
    "x peer": ("peer", "rate", _times),
    "x by cpu": ("peer", "per_cpu", _times),
    "of getmany": ("getmany", "records_rate", _percent),
}
"""The columns of ratios: to which system, by which figure of a `Run`. The two by cpu compare what one second
of the server's processor time gives, the others what one second of the clock does."""
