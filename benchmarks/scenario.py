"""What a scenario is: a measurement with its sizes, and the figures that it should reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from benchmarks.lab import Lab
    from benchmarks.sizes import Sizes

Figures = Mapping[str, float]
"""What one round gave, by name, in the unit that the scenario's goal of that name has."""

Measure = Callable[["Lab", "Sizes"], Awaitable[Figures]]
"""One round of a scenario. Raises RunVoid where what was read is not what was produced."""

Unit = Literal["/s", "%", "x", "us", "ms", "s", "KiB", "MiB", ""]


def times(ratio: float) -> str:
    """Return a ratio in words."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


@dataclass(frozen=True, slots=True)
class Goal:
    """Describe one figure of a scenario. at_least, at_most, times_peer: the target, if it has one ("%": 0.6
    is 60 %). times_peer: so many times the peer's figure of the same round, at least."""

    figure: str
    unit: Unit = ""
    at_least: float | None = None
    at_most: float | None = None
    times_peer: float | None = None

    def reached(self, value: float, ratio: float | None = None) -> bool | None:
        """Return whether a value, or its ratio to the peer's, reaches the target. None: there is none."""
        if self.times_peer is not None:
            return ratio is not None and ratio >= self.times_peer
        if self.at_least is not None:
            return value >= self.at_least
        return value <= self.at_most if self.at_most is not None else None

    @property
    def target(self) -> str:
        """Return the target in words; empty if there is none."""
        if self.times_peer is not None:
            return f">= {times(self.times_peer)} the peer's"
        if self.at_least is not None:
            return f">= {self.shown(self.at_least)}"
        return f"<= {self.shown(self.at_most)}" if self.at_most is not None else ""

    def shown(self, value: float) -> str:
        match self.unit:
            case "%":
                return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"
            case "x":
                return times(value)
            case "/s":
                return f"{value:,.0f}/s"
            case "":
                return f"{value:,.0f}"
            case "us":
                return f"{value:,.3g} us" if value < 100 else f"{value:,.0f} us"
        return f"{value:,.1f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Describe a scenario. says: what is measured, for a reader of the table. small: sizes that take seconds,
    for the tests.

    repeat: rounds, if not as many as usual. needs: what the gateway must be able to do; without it the
    scenario is not run. group: the name of those that are run together, on one broker.
    """

    name: str
    says: str
    measure: Measure
    sizes: Sizes
    goals: tuple[Goal, ...]
    small: Mapping[str, Any] = field(default_factory=dict)
    repeat: int | None = None
    needs: Literal["replay", "metrics"] | None = None
    group: str = ""
