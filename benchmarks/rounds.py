"""The rounds of a scenario, one after the other, on one broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.errors import RunVoid
from benchmarks.lab import Lab, Note
from benchmarks.run import System
from benchmarks.scenario import Scenario
from benchmarks.sizes import Sizes
from benchmarks.target import Target
from benchmarks.throughput import getmany
from kiwi_demo.broker import Broker

if TYPE_CHECKING:
    from benchmarks.spark import Kept

_WARM_RATE = 2_000
"""Records per second: some hundreds of requests."""


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
    warm_seconds: float = 0.0,
    kept: Kept | None = None,
) -> bool:
    """Give a line for every run, and one with the figures of every round that counts. Returns whether all do.
    warm_seconds: how long the broker is kept busy first, which compiles its code as it runs. kept: as in
    `Lab`."""
    good = True
    number = 0

    def about(facts: dict[str, Any]) -> None:
        line({"scenario": scenario.name, "round": number, **facts})

    lab = Lab(broker, folder, Note(about, say), only, target, kept)
    if warm_seconds:
        say(f"{scenario.name}: warming the broker")
        await getmany(lab, Sizes(subscribers=1, rate=_WARM_RATE, seconds=warm_seconds))
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
