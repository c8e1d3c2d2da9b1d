"""The rounds of a scenario, one after the other, on one broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.errors import RunVoid
from benchmarks.lab import Lab, Note
from benchmarks.run import System
from benchmarks.scenario import Scenario
from benchmarks.target import Target
from kiwi_gw.demo.broker import Broker


async def rounds(
    scenario: Scenario,
    times: int,
    broker: Broker,
    folder: Path,
    line: Callable[[dict[str, Any]], None],
    say: Callable[[str], None],
    *,
    only: Sequence[System] = (),
    target: Target | None = None,
) -> bool:
    """Gives a line for every run, and one with the figures of every round that counts. Returns whether
    all do."""
    good = True
    number = 0

    def about(facts: dict[str, Any]) -> None:
        line({"scenario": scenario.name, "round": number, **facts})

    lab = Lab(broker, folder, Note(about, say), only, target)
    for number in range(1, times + 1):
        say(f"{scenario.name}, round {number} of {times}")
        try:
            figures = await scenario.measure(lab, scenario.sizes)
        except RunVoid as error:
            say(f"  void: {error}")
            about({"void": str(error)})
            good = False
        else:
            about({"figures": {name: round(value, 4) for name, value in figures.items()}})
    return good
